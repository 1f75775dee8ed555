// A shrink of which a store decides: elastic::shrink. The folder as a store.
#include "catch.hpp"

#include "support/every_transport.hpp"
#include "support/fault.hpp"
#include "support/says.hpp"

#include <colls/colls.hpp>
#include <colls/detail/support/descriptor.hpp>
#include <colls/elastic.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

using namespace support;

namespace {

struct counters {
    std::atomic<int> ready, right, refused, wrong, left_out;
    std::atomic<int> process[4];
};

/// A folder of its own for a test.
struct own_folder {
    std::string path = std::filesystem::temp_directory_path() / "colls_shrink_XXXXXX";
    own_folder() {
        if (mkdtemp(path.data()) == nullptr) throw std::runtime_error("no folder");
    }
    own_folder(const own_folder&) = delete;
    own_folder& operator=(const own_folder&) = delete;
    ~own_folder() { std::filesystem::remove_all(path); }
    auto files() const {
        return std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator());
    }
};

/// Kills its process once it has written a list.
class deadly_folder final : public colls::elastic::store {
public:
    explicit deadly_folder(const std::string& path) : to_(path) {}
    std::string read(std::string_view key) override { return to_.read(key); }
    bool compare_and_set(std::string_view key, std::string_view expected, std::string_view value) override {
        const bool first = to_.compare_and_set(key, expected, value);
        if (first) raise(SIGKILL);
        return first;
    }

private:
    colls::elastic::folder to_;
};

/// Runs f on n ranks, some of which are killed on purpose.
template <class F>
void run_with_deaths(const std::string& transport, int n, F f) {
    try {
        run_over(transport, n, f);
    } catch (const std::exception&) {}
}
/// Meets the others, which are in `fails`, and dies. A barrier of theirs may fail by that: what has not been sent is
/// lost.
void meets_and_dies(colls::communicator& comm) {
    try {
        colls::barrier(comm);
    } catch (const colls::error&) {}  // another one has died
    raise(SIGKILL);
}
/// Returns what broke the group, of which a rank has died.
std::string fails(colls::communicator& comm, counters& count) {
    try {
        while (comm.size() > 1) colls::barrier(comm);
        return "left alone";
    } catch (const colls::error& x) {
        count.ready += 1;
        return x.what();
    }
}
bool computes(colls::communicator& comm, int size) {
    std::vector<int> x(5000, comm.rank() + 1);
    colls::all_reduce(comm, x, colls::sum);
    return comm.size() == size && x == std::vector<int>(5000, size * (size + 1) / 2);
}

}  // namespace

TEST_CASE("elastic::shrink: ranks without a majority go on by the store, again and again", "[shrink_by_store]") {
    for (const std::string& transport : process_transports()) {
        own_folder place;
        common<counters> shared;
        counters& count = *shared;
        run_with_deaths(transport, 5, [&](colls::communicator& comm) {
            colls::elastic::folder door(place.path);
            for (const int size : {2, 1}) {  // of 5 ranks three die, of two one
                const int died = comm.size() - size;
                if (comm.rank() < died) meets_and_dies(comm);
                const std::string why = fails(comm, count);
                comm = colls::elastic::shrink(comm, door, "group");
                const bool right = computes(comm, size);
                if (!right) std::fprintf(stderr, "a group of %d goes on, after: %s\n", comm.size(), why.c_str());
                count.right += right;
            }
        });
        INFO(transport);
        CHECK(count.right == 3);
        CHECK(place.files() == (transport == "shm" ? 0 : 4));  // a list of each group, and its lock
    }
}

TEST_CASE("elastic::shrink: one that the store does not list gets an error", "[shrink_by_store]") {
    own_folder place;
    common<counters> shared;
    counters& count = *shared;
    const with_environment chosen("COLLS_TIMEOUT", "2");
    run_with_deaths("tcp", 4, [&](colls::communicator& comm) {
        colls::elastic::folder door(place.path);
        count.process[comm.rank()] = getpid();
        const auto stop = [&](int signal) {
            for (const int r : {0, 1}) kill(count.process[r], signal);
        };
        if (comm.rank() == 3) {
            colls::barrier(comm);  // with the others, which are in `fails`
            stop(SIGSTOP);
        }
        if (comm.rank() >= 2) {
            fails(comm, count);
            comm = colls::elastic::shrink(comm, door, "group");
            count.right += computes(comm, 2);
            if (comm.rank() == 1) stop(SIGCONT);
            for (int i = 0; i < 3000 && count.left_out < 2; ++i)
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
            return;
        }
        fails(comm, count);
        try {
            comm = colls::elastic::shrink(comm, door, "group");
            count.wrong += 1;
        } catch (const colls::error& x) {
            const bool right = x.code() == colls::errc::peer_failed && says(x.what(), "without this rank");
            (right ? count.left_out : count.wrong) += 1;
            if (!right) std::fprintf(stderr, "%s\n", x.what());
        }
    });
    CHECK(count.right == 2);
    CHECK(count.left_out == 2);
    CHECK(count.wrong == 0);
}

TEST_CASE("elastic::shrink: the rank dies that has written the list", "[shrink_by_store]") {
    own_folder place;
    common<counters> shared;
    counters& count = *shared;
    run_with_deaths("tcp", 4, [&](colls::communicator& comm) {
        colls::elastic::folder door(place.path);
        deadly_folder deadly(place.path);
        const int number = comm.rank();
        if (number == 3) meets_and_dies(comm);
        fails(comm, count);
        comm = colls::elastic::shrink(comm, number == 0 ? static_cast<colls::elastic::store&>(deadly) : door, "group");
        // The list of ranks 0 to 2 stands, of which one is dead.
        count.ready += comm.size() == 3;
        try {
            for (;;) colls::barrier(comm);
        } catch (const colls::error&) {}
        comm = colls::elastic::shrink(comm, door, "group");
        count.right += computes(comm, 2);
    });
    CHECK(count.ready == 3 + 2);
    CHECK(count.right == 2);
}

TEST_CASE("elastic::shrink: a value that is no list is refused", "[shrink_by_store]") {
    struct other_values final : colls::elastic::store {
        std::string read(std::string_view) override { return "12 10"; }
        bool compare_and_set(std::string_view, std::string_view, std::string_view) override { return false; }
    };
    common<counters> shared;
    counters& count = *shared;
    run_with_deaths("tcp", 1, [&](colls::communicator& comm) {
        other_values door;
        try {
            comm = colls::elastic::shrink(comm, door, "group");
        } catch (const colls::error& x) {
            count.right += x.code() == colls::errc::mismatch && says(x.what(), "no list");
        }
    });
    CHECK(count.right == 1);
}

TEST_CASE("folder: a value is replaced by those alone that know it, whatever its bytes", "[shrink_by_store]") {
    own_folder place;
    colls::elastic::folder door(place.path);
    std::string large(100'000, '\0');  // read in many parts
    for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7 + i / 256);
    CHECK(door.read("a") == "");
    CHECK(!door.compare_and_set("a", "x", "y"));
    CHECK(door.read("a") == "");
    CHECK(door.compare_and_set("a", "", "first"));
    CHECK(door.read("a") == "first");
    CHECK(!door.compare_and_set("a", "", "second"));
    CHECK(!door.compare_and_set("a", "firs", "second"));
    CHECK(!door.compare_and_set("a", "first ", "second"));
    CHECK(door.read("a") == "first");
    // What one that died has left of another value.
    std::ofstream(place.path + "/a.next") << std::string(1000, 'z');
    CHECK(door.compare_and_set("a", "first", large));
    CHECK(door.read("a") == large);
    CHECK(door.compare_and_set("a", large, large.substr(0, 4096)));
    CHECK(door.read("a") == large.substr(0, 4096));
    CHECK(door.compare_and_set("a", large.substr(0, 4096), ""));
    CHECK(door.read("a") == "");
    CHECK(door.compare_and_set("b/c/d", "", "below"));
    CHECK(door.read("b/c/d") == "below");
    CHECK(std::filesystem::exists(place.path + "/b_c_d"));
    CHECK(colls::elastic::folder(place.path).read("b/c/d") == "below");
}

TEST_CASE("folder: as a store of bootstrap, what was set first stands, and one that is missing is waited for",
    "[shrink_by_store]") {
    own_folder place;
    const with_environment patience("COLLS_TIMEOUT", "60");
    colls::elastic::folder door(place.path);
    door.set("a", "12345678", 8);
    door.set("a", "abcdefgh", 8);
    char value[10] = "xxxxxxxxx";
    door.get("a", value, 8);
    CHECK(std::string(value, 9) == "12345678x");
    door.get("a", value, 3);
    CHECK(std::string(value, 4) == "1234");
    std::memset(value, 'x', 9);
    door.get("a", value, 9);  // no more than there is
    CHECK(std::string(value, 9) == "12345678x");
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        colls::elastic::folder(place.path).set("b", "late", 4);
    });
    door.get("b", value, 4);
    later.join();
    CHECK(std::string(value, 4) == "late");
    const with_environment impatient("COLLS_TIMEOUT", "0.1");
    try {
        door.get("c", value, 4);
        CHECK(false);
    } catch (const colls::error& x) {
        CHECK(x.code() == colls::errc::timeout);
        CHECK(says(x.what(), "the store has no value of c"));
    }
}

TEST_CASE(
    "folder: one that cannot be used, or is locked by a process that is stopped, is an error", "[shrink_by_store]") {
    own_folder place;
    const auto refusal = [](auto f, colls::errc code) -> std::string {
        try {
            f();
        } catch (const colls::error& x) {
            CHECK(x.code() == code);
            return x.what();
        }
        return "none";
    };
    using colls::errc;
    colls::elastic::folder none(place.path + "/none"), door(place.path);
    CHECK(none.read("a") == "");
    CHECK(says(refusal([&] { none.compare_and_set("a", "", "x"); }, errc::unsupported), "/none/a.lock: No such file"));
    for (const char* const name : {"b", "c.next", "d.lock"}) std::filesystem::create_directory(place.path + "/" + name);
    CHECK(says(
        refusal([&] { static_cast<void>(door.read("b")); }, errc::unsupported), "cannot read " + place.path + "/b"));
    CHECK(says(refusal([&] { door.compare_and_set("c", "", "x"); }, errc::unsupported),
        "cannot write " + place.path + "/c.next"));
    CHECK(says(refusal([&] { door.compare_and_set("d", "", "x"); }, errc::unsupported),
        "cannot write " + place.path + "/d.lock"));
    const colls::detail::descriptor lock(open((place.path + "/e.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    REQUIRE(flock(lock.get(), LOCK_EX) == 0);
    {
        const with_environment impatient("COLLS_TIMEOUT", "0.1");
        CHECK(says(refusal([&] { door.compare_and_set("e", "", "x"); }, errc::timeout), "e.lock: is it stopped?"));
    }
    const with_environment patience("COLLS_TIMEOUT", "60");
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        flock(lock.get(), LOCK_UN);
    });
    CHECK(door.compare_and_set("e", "", "x"));
    later.join();
    CHECK(door.read("e") == "x");
}
