// Groups of processes that exchange bytes by means of their own: bootstrap.
#include "catch.hpp"

#include "support/every_transport.hpp"
#include "support/fault.hpp"
#include "support/says.hpp"

#include <colls/bootstrap.hpp>
#include <colls/collectives.hpp>
#include <colls/detail/support/cores.hpp>
#include <colls/net/detail/forming/host_group.hpp>
#include <colls/net/detail/forming/interfaces.hpp>
#include <colls/operators.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>

#include <net/if.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace support;

namespace {

/// A folder as a store: a file for each key, which appears when it is complete.
class folder_store final : public colls::key_value_store {
public:
    folder_store() {
        std::string name = (std::filesystem::temp_directory_path() / "colls-bootstrap-XXXXXX").string();
        REQUIRE(mkdtemp(name.data()) != nullptr);
        root_ = name;
    }
    ~folder_store() override { std::filesystem::remove_all(root_); }  // ranks end without destructors
    folder_store(const folder_store&) = delete;
    folder_store& operator=(const folder_store&) = delete;

    void set(std::string_view key, const void* value, std::size_t bytes) override {
        const std::filesystem::path at = path_of(key), unfinished = at.string() + "+" + std::to_string(getpid());
        std::ofstream(unfinished, std::ios::binary)
            .write(static_cast<const char*>(value), static_cast<std::streamsize>(bytes));
        std::filesystem::rename(unfinished, at);
    }
    void get(std::string_view key, void* value, std::size_t bytes) override {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(patience);
        while (!std::filesystem::exists(path_of(key))) {
            if (std::chrono::steady_clock::now() > until)
                throw std::runtime_error("the store has no " + std::string(key));
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
        std::ifstream(path_of(key), std::ios::binary)
            .read(static_cast<char*>(value), static_cast<std::streamsize>(bytes));
    }
    int patience = 60;  ///< seconds

private:
    std::filesystem::path path_of(std::string_view key) const {
        std::string name(key);
        std::replace(name.begin(), name.end(), '/', '_');
        return root_ / name;
    }
    std::filesystem::path root_;
};

std::size_t descriptors() {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}
/// The address space that this process uses.
rlim_t mapped_bytes() {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}
/// The ranks are in the order of `members`, numbers of processes; large and small calls, and a split of it, work.
void check_group(colls::communicator& comm, const std::vector<int>& members, int own) {
    const int n = comm.size();
    expect(n == static_cast<int>(members.size()) && members[static_cast<std::size_t>(comm.rank())] == own, "ranks");
    std::vector<int> all(static_cast<std::size_t>(n));
    colls::all_gather(comm, std::vector<int>{own}, all);
    expect(all == members, "all_gather");
    int sum = 0;
    for (const int m : members) sum += m + 1;
    for (const std::size_t count : {1u, 100'000u}) {
        std::vector<int> x(count, own + 1);
        colls::all_reduce(comm, x, colls::sum);
        expect(std::count(x.begin(), x.end(), sum) == std::ssize(x), "all_reduce");
    }
    colls::communicator reversed = comm.split(0, -comm.rank());
    colls::all_gather(reversed, std::vector<int>{own}, all);
    std::reverse(all.begin(), all.end());
    expect(all == members, "a split group");
}
/// Those of n processes that `members` names form a group, and no other does anything. `before`: what a process does
/// first.
template <class Before>
void form(int n, const std::vector<int>& members, Before before) {
    folder_store store;
    CHECK_NOTHROW(colls::processes::run(n, [&](colls::communicator& processes) {
        const auto own = std::find(members.begin(), members.end(), processes.rank());
        if (own == members.end()) return;
        before(processes.rank());
        colls::communicator comm =
            colls::bootstrap(static_cast<int>(own - members.begin()), static_cast<int>(members.size()), store, "group");
        check_group(comm, members, processes.rank());
    }));
}

/// Ranks that are threads.
class exchange_of_threads final : public colls::member_exchange {
public:
    explicit exchange_of_threads(colls::communicator& comm) : comm_(comm) {}
    void all_gather(const void* own, std::size_t bytes, void* all) override {
        const auto* const from = static_cast<const std::byte*>(own);
        auto* const to = static_cast<std::byte*>(all);
        colls::all_gather(comm_, std::span(from, bytes), std::span(to, bytes * static_cast<std::size_t>(comm_.size())));
        if (++calls == fails_at) throw std::runtime_error("the exchange fails");
    }
    int calls = 0, fails_at = 0;

private:
    colls::communicator& comm_;
};

}  // namespace

namespace {

/// Whether two ranks find that they outnumber the cores: where they are bound to the allowed cores of these numbers
/// (-1: not bound), and a launcher says that it has started so many processes.
bool crowded(int first, int second, const char* launched, const char* transport) {
    folder_store store;
    std::atomic<int>& found =
        *new (mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0);
    colls::processes::run(2, [&](colls::communicator& processes) {
        const int rank = processes.rank(), wanted = rank == 0 ? first : second;
        cpu_set_t all, own;
        CPU_ZERO(&all);
        CPU_ZERO(&own);
        expect(sched_getaffinity(0, sizeof all, &all) == 0, "affinity");
        for (std::size_t c = 0, number = 0; c < CPU_SETSIZE; ++c)
            if (CPU_ISSET(c, &all) && static_cast<int>(number++) == wanted) CPU_SET(c, &own);
        if (wanted >= 0) expect(sched_setaffinity(0, sizeof own, &own) == 0, "binding");
        setenv("OMPI_COMM_WORLD_LOCAL_SIZE", launched, 1);
        setenv("COLLS_TRANSPORT", transport, 1);
        colls::communicator comm = colls::bootstrap(rank, 2, store, "group");
        const int cores = comm.context().backend->figures().cores;
        expect(comm.context().crowded == (cores < 2), "what predictions are made from");
        if (comm.context().crowded) ++found;
        int sum = 0;
        colls::all_reduce(comm, std::vector<int>{rank + 1}, std::span<int>(&sum, 1), colls::sum);
        expect(sum == 3, "all_reduce");
    });
    const int ranks = found;
    munmap(&found, 4096);
    CHECK((ranks == 0 || ranks == 2));
    return ranks > 0;
}

}  // namespace

TEST_CASE("bootstrap: addresses in numbers, with the interface of a link-local one", "[bootstrap]") {
    using colls::detail::numeric_address;
    const unsigned loopback = if_nametoindex("lo");
    REQUIRE(loopback != 0);
    CHECK(numeric_address("fe80::1%lo", 5).v6().sin6_scope_id == loopback);
    CHECK(numeric_address("fe80::1", 5).v6().sin6_scope_id == 0);
    CHECK(numeric_address("fe80::1%no such", 5).v6().sin6_scope_id == 0);
    CHECK(ntohs(numeric_address("::1", 5).v6().sin6_port) == 5);
    CHECK(numeric_address("127.0.0.1", 5).family() == AF_INET);
    for (const char* const name : {"", "localhost", "1.2.3", "lo%lo", "1.2.3.4%lo"})
        CHECK(numeric_address(name, 5).length == 0);
}

TEST_CASE("bootstrap: ranks with a core each, however they are bound, are not crowded", "[bootstrap]") {
    const int allowed = colls::detail::cores();
    const auto transport = GENERATE(as<std::string>(), "shm", "tcp");
    CAPTURE(transport);
    const auto found = [&](int a, int b, const char* launched) { return crowded(a, b, launched, transport.c_str()); };
    CHECK(found(0, 0, ""));
    CHECK(found(-1, -1, "100000"));
    if (allowed < 2) return;
    CHECK_FALSE(found(-1, -1, ""));
    CHECK_FALSE(found(0, 1, ""));
    CHECK_FALSE(found(0, 1, "2"));
}

TEST_CASE("bootstrap: a subset of processes, in any order, over shared memory and TCP", "[bootstrap]") {
    for (const char* transport : {"shm", "tcp"}) {
        INFO(transport);
        const with_environment chosen("COLLS_TRANSPORT", transport);
        for (const std::vector<int>& members :
            {std::vector{0}, std::vector{2, 0}, std::vector{3, 1, 0}, std::vector{0, 1, 2, 3, 4}})
            form(5, members, [](int) {});
    }
}

TEST_CASE("bootstrap: on several hosts, with equally and with unequally many members", "[bootstrap]") {
    const auto on_host = [](int host) { setenv("COLLS_HOST", host == 0 ? "first" : "second", 1); };
    form(4, {0, 1, 2, 3}, [&](int process) { on_host(process / 2); });
    form(4, {3, 0, 2}, [&](int process) { on_host(process == 3); });
}

TEST_CASE("bootstrap: members share a host where each has that of the first", "[bootstrap]") {
    struct : colls::member_exchange {
        void all_gather(const void*, std::size_t, void*) override {}
    } unused;
    colls::detail::forming f{.exchange = unused, .rank = 0, .size = 3, .env = {}};
    f.all.resize(3);
    CHECK(f.on_one_host());
    for (colls::detail::member_record& m : f.all) {
        m.host = 7;
        CHECK_FALSE(f.on_one_host());
        m.host = 0;
    }
}

TEST_CASE("bootstrap: where one member cannot map the memory, all take TCP, and it says why", "[bootstrap]") {
    for (const int limited : {0, 1}) {
        const int output = memfd_create("output", 0);
        form(3, {0, 1, 2}, [&](int process) {
            if (process == limited) {
                // Beyond what is mapped now, which under a sanitizer is terabytes. Process 0 would make do with a
                // smaller file.
                const rlim_t little = process == 0 ? rlim_t{1} << 20 : mapped_bytes() + (rlim_t{4} << 30);
                const rlimit limit{little, little};
                expect(setrlimit(process == 0 ? RLIMIT_FSIZE : RLIMIT_AS, &limit) == 0, "setrlimit fails");
            }
            setenv("COLLS_DEBUG", "info", 1);
            dup2(output, 2);
        });
        char text[4096] = {};
        CHECK(pread(output, text, sizeof text - 1, 0) > 0);
        close(output);
        INFO(text);
        CHECK(says(text, "rank " + std::to_string(limited) + ": no shared memory, so TCP: "));
        CHECK(says(text, "cannot map"));
    }
}

TEST_CASE("bootstrap: groups of the same processes share their memory, also where they form at once", "[bootstrap]") {
    folder_store store;
    CHECK_NOTHROW(colls::processes::run(3, [&](colls::communicator& processes) {
        const int own = processes.rank();
        const auto group = [&](const std::string& name, const std::vector<int>& members) {
            const auto at = std::find(members.begin(), members.end(), own) - members.begin();
            return colls::bootstrap(static_cast<int>(at), static_cast<int>(members.size()), store, name);
        };
        std::vector<colls::communicator> all;
        all.push_back(group("first", {0, 1, 2}));
        const std::size_t before = descriptors();
        for (int i = 0; i < 50; ++i) all.push_back(group("next" + std::to_string(i), {2, 1, 0}));
        if (own != 1) all.push_back(group("pair", {2, 0}));
        expect(descriptors() == before, "a group has descriptors of its own");
        for (int i = 1; i <= 50; ++i) check_group(all[static_cast<std::size_t>(i)], {2, 1, 0}, own);
        if (own != 1) check_group(all.back(), {2, 0}, own);
        // Ended in another order on each rank; later groups use the memory again.
        while (!all.empty()) {
            const std::size_t last = own == 0 ? 0 : own == 1 ? all.size() - 1 : all.size() / 2;
            all.erase(all.begin() + static_cast<std::ptrdiff_t>(last));
        }
        for (int i = 0; i < 3; ++i) {
            colls::communicator again = group("again" + std::to_string(i), {0, 1, 2});
            check_group(again, {0, 1, 2}, own);
        }
    }));
}

TEST_CASE("bootstrap: ranks that are threads of one process", "[bootstrap]") {
    for (const char* transport : {"shm", "tcp"}) {
        const with_environment chosen("COLLS_TRANSPORT", transport);
        CHECK_NOTHROW(colls::threads::run(3, [](colls::communicator& threads) {
            exchange_of_threads way(threads);
            colls::communicator comm = colls::bootstrap(threads.rank(), threads.size(), way);
            check_group(comm, {0, 1, 2}, threads.rank());
        }));
    }
}

TEST_CASE("bootstrap: a member of another version ends all members, before memory is shared", "[bootstrap]") {
    struct other_version final : colls::member_exchange {
        explicit other_version(colls::communicator& comm) : way(comm), differs(comm.rank() == 2) {}
        void all_gather(const void* own, std::size_t bytes, void* all) override {
            if (bytes != sizeof(colls::detail::member_record)) return way.all_gather(own, bytes, all);
            auto record = *static_cast<const colls::detail::member_record*>(own);
            if (differs) ++record.library;  // a patch more
            way.all_gather(&record, bytes, all);
        }
        exchange_of_threads way;
        bool differs;
    };
    std::atomic<int> refused = 0;
    colls::threads::run(3, [&](colls::communicator& threads) {
        other_version way(threads);
        try {
            static_cast<void>(colls::bootstrap(threads.rank(), 3, way));
        } catch (const colls::error& e) {
            refused += e.code() == colls::errc::mismatch && e.rank() == threads.rank() && e.peer() == 2 &&
                       way.way.calls == 1 &&
                       says(e.what(), "ranks 0 and 2 of the new group have a different version of the library");
        }
    });
    CHECK(refused == 3);
}

TEST_CASE("bootstrap: errors are those of the exchange, or name the rank", "[bootstrap]") {
    const auto what = [](auto f) {
        try {
            f();
        } catch (const std::exception& e) {
            return std::string(e.what());
        }
        return std::string("nothing");
    };
    const auto of_threads = [&](int fails_at) {
        return what([&] {
            colls::threads::run(2, [&](colls::communicator& threads) {
                exchange_of_threads way(threads);
                way.fails_at = fails_at;
                static_cast<void>(colls::bootstrap(threads.rank(), 2, way));
            });
        });
    };
    CHECK(says(of_threads(1), "the exchange fails"));
    CHECK(says(of_threads(2), "the exchange fails"));
    folder_store store;
    CHECK(says(what([&] { static_cast<void>(colls::bootstrap(3, 3, store, "a")); }), "rank 3 is out of range"));
    store.patience = 0;
    CHECK(says(what([&] { static_cast<void>(colls::bootstrap(0, 2, store, "b")); }), "the store has no b/0/1"));
    store.patience = 60;
    CHECK(says(what([&] {
        colls::processes::run(3, [&](colls::communicator& processes) {
            if (processes.rank() == 2) setenv("COLLS_TRANSPORT", "tcp", 1);
            static_cast<void>(colls::bootstrap(processes.rank(), 3, store, "c"));
        });
    }),
        "ranks 0 and 2 of the new group have a different transport"));
    CHECK(says(what([&] {
        colls::processes::run(2, [&](colls::communicator& processes) {
            colls::communicator comm = colls::bootstrap(processes.rank(), 2, store, "d");
            if (comm.rank() == 1) raise(SIGKILL);
            const char named = says(what([&] { colls::barrier(comm); }), "rank 1") ? 'y' : 'n';
            store.set("named", &named, 1);
        });
    }),
        "was killed by signal 9"));
    char named = 'n';
    store.get("named", &named, 1);
    CHECK(named == 'y');
}
