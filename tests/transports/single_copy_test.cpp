// Copies that the kernel makes between the processes of a host: results, what happens where they are refused, at the
// start or later, and where a process dies.
#include "catch.hpp"

#include "support/launch.hpp"

#include <colls/detail/choose/explanation.hpp>
#include <colls/detail/execute/copy_policy.hpp>
#include <colls/detail/execute/distance.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

using namespace support;

namespace {

/// From now on the system refuses copies between processes to this one.
void forbid_copies() {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog all{static_cast<unsigned short>(std::size(program)), program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) != 0)
        std::abort();
}

struct setting_of_single_copies {
    explicit setting_of_single_copies(const char* value) { setenv("COLLS_SINGLE_COPY", value, 1); }
    ~setting_of_single_copies() { unsetenv("COLLS_SINGLE_COPY"); }
};

struct counters {
    std::atomic<int> wrong{0}, done{0}, refused{0}, died{0};
    std::atomic<std::size_t> first_wrong{0};
    std::atomic<int> choices{0};
};
counters& shared_counters() { return *new (shared_pool::of_test().take(sizeof(counters))) counters; }

using numbers = std::vector<std::uint32_t>;
std::uint32_t value(int rank, std::size_t i, int salt) {
    return static_cast<std::uint32_t>(rank) * 0x9e3779b9u + static_cast<std::uint32_t>(i) * 2654435761u +
           static_cast<std::uint32_t>(salt);
}

/// One rank's calls with ordinary buffers of its own, of `count` elements a block or about so. Each call's expected
/// result is computed from all ranks' inputs.
class battery {
public:
    battery(colls::communicator& comm, std::size_t count, counters& c) : comm_(comm), k_(count), c_(c) {}

    void run() {
        const int n = comm_.size();
        for (int salt = 0; salt < 2; ++salt) {
            all_gather(salt);
            all_to_all(salt, false);
            all_to_all(salt, true);
            all_reduce(salt);
            for (int root = 0; root < n; root += n - 1) {
                broadcast(salt, root);
                gather(salt, root);
                gather_at_limit(salt, root);
                scatter(salt, root);
                variants(salt, root);
                if (n == 1) break;
            }
        }
        ++c_.done;
    }
    void run_all_gather() {
        all_gather(0);
        ++c_.done;
    }

private:
    numbers own(std::size_t count, int salt) const { return of(comm_.rank(), count, salt); }
    static numbers of(int rank, std::size_t count, int salt) {
        numbers v(count);
        for (std::size_t i = 0; i < count; ++i) v[i] = value(rank, i, salt);
        return v;
    }
    void expect(const numbers& got, const numbers& wanted) {
        for (std::size_t i = 0; i < wanted.size(); ++i)
            if (got[i] != wanted[i]) {
                c_.first_wrong = i;
                ++c_.wrong;
                return;
            }
    }
    std::size_t n() const { return static_cast<std::size_t>(comm_.size()); }
    numbers joined(std::size_t count, int salt) const {
        numbers all;
        for (int r = 0; r < comm_.size(); ++r) {
            const numbers one = of(r, count, salt);
            all.insert(all.end(), one.begin(), one.end());
        }
        return all;
    }
    /// The input is written over as soon as the call is over: no peer may still read it.
    void spoil(numbers& in) { std::fill(in.begin(), in.end(), 0xdeadbeef); }

    void all_gather(int salt) {
        numbers in = own(k_, salt), out(k_ * n());
        colls::all_gather(comm_, in, out);
        spoil(in);
        expect(out, joined(k_, salt));
        std::fill(out.begin(), out.end(), 0u);
        in = own(k_, salt + 7);
        colls::all_gather<colls::ring>(comm_, in, out);
        spoil(in);
        expect(out, joined(k_, salt + 7));
    }
    void all_to_all(int salt, bool in_place) {
        numbers in = own(k_ * n(), salt), out(k_ * n());
        colls::all_to_all(comm_, in, in_place ? in : out);
        const numbers got = in_place ? in : out;
        spoil(in);
        numbers wanted;
        for (int r = 0; r < comm_.size(); ++r) {
            const numbers from = of(r, k_ * n(), salt);
            const auto at = from.begin() + static_cast<std::ptrdiff_t>(k_ * static_cast<std::size_t>(comm_.rank()));
            wanted.insert(wanted.end(), at, at + static_cast<std::ptrdiff_t>(k_));
        }
        expect(got, wanted);
    }
    void all_reduce(int salt) {
        numbers x = own(k_ * n() + 1, salt), wanted(x.size());
        for (int r = 0; r < comm_.size(); ++r)
            for (std::size_t i = 0; i < x.size(); ++i) wanted[i] += value(r, i, salt);
        colls::all_reduce(comm_, x, colls::sum);
        expect(x, wanted);
    }
    void broadcast(int salt, int root) {
        numbers x = own(k_ * n() + 3, salt);
        colls::broadcast(comm_, x, root);
        const numbers got = x;
        spoil(x);
        expect(got, of(root, k_ * n() + 3, salt));
    }
    void gather(int salt, int root) {
        const bool here = comm_.rank() == root;
        numbers in = own(k_, salt), out(here ? k_ * n() : 0);
        colls::gather(comm_, in, out, root);
        spoil(in);
        if (here) expect(out, joined(k_, salt));
    }
    /// Rank 0's block is an element longer than the eager path takes, and the others' are not.
    void gather_at_limit(int salt, int root) {
        const std::size_t most = (colls::detail::eager_capacity - 8) / sizeof(numbers::value_type);
        const bool here = comm_.rank() == root;
        numbers in = own(most + (comm_.rank() == 0), salt), out(here ? most * n() + 1 : 0), all;
        colls::gather(comm_, in, out, root);
        spoil(in);
        for (int r = 0; here && r < comm_.size(); ++r) {
            const numbers one = of(r, most + (r == 0), salt);
            all.insert(all.end(), one.begin(), one.end());
        }
        expect(out, all);
    }
    void scatter(int salt, int root) {
        const bool here = comm_.rank() == root;
        numbers in(here ? joined(k_, salt) : numbers{}), out(k_);
        colls::scatter(comm_, in, out, root);
        spoil(in);
        expect(out, own(k_, salt));
    }
    /// Blocks of k, 0, k / 3 ... elements.
    std::size_t length(int rank) const { return rank % 3 == 1 ? 0 : k_ / (1 + static_cast<std::size_t>(rank)); }
    void variants(int salt, int root) {
        const bool here = comm_.rank() == root;
        std::vector<std::size_t> counts;
        numbers all;
        for (int r = 0; r < comm_.size(); ++r) {
            counts.push_back(length(r));
            const numbers one = of(r, length(r), salt);
            all.insert(all.end(), one.begin(), one.end());
        }
        numbers in = own(length(comm_.rank()), salt), out(all.size());
        colls::all_gather_v(comm_, in, out, counts);
        expect(out, all);
        numbers collected(here ? all.size() : 0);
        colls::gather_v(comm_, in, collected, counts, root);
        spoil(in);
        if (here) expect(collected, all);
        colls::scatter_v(comm_, collected, in, counts, root);
        spoil(collected);
        expect(in, own(length(comm_.rank()), salt));
        // Rank r sends length((r + q) % n) elements to rank q.
        std::vector<std::size_t> sent, received;
        numbers wanted;
        for (int q = 0; q < comm_.size(); ++q) {
            const std::size_t count = length((comm_.rank() + q) % comm_.size());
            sent.push_back(count);
            received.push_back(count);
            for (std::size_t i = 0; i < count; ++i) wanted.push_back(value(q, i, 31 * comm_.rank()));
        }
        numbers from, to(wanted.size());
        for (int q = 0; q < comm_.size(); ++q)
            for (std::size_t i = 0; i < sent[static_cast<std::size_t>(q)]; ++i)
                from.push_back(value(comm_.rank(), i, 31 * q));
        colls::all_to_all_v(comm_, from, to, sent, received);
        spoil(from);
        expect(to, wanted);
    }

    colls::communicator& comm_;
    const std::size_t k_;
    counters& c_;
};

/// A buffer with guard words on both sides: ordinary memory, at the beginning of a page or 4 bytes behind it, or memory
/// from allocate().
class guarded_buffer {
public:
    enum kind { allocated, ordinary, shifted };
    static constexpr std::size_t guard = 16;
    guarded_buffer(colls::communicator& comm, kind k, std::size_t count) : count_(count) {
        const std::size_t skip = guard + (k == shifted ? 1 : 0), whole = skip + count + guard;
        if (k == allocated)
            shared_.emplace(comm.allocate<std::uint32_t>(whole));
        else
            own_.resize(whole + 1024);
        std::uint32_t* base = k == allocated ? shared_->data() : own_.data();
        if (k != allocated)
            while (reinterpret_cast<std::uintptr_t>(base + guard) % 4096 != 0) ++base;
        at_ = base + skip;
        std::fill(at_ - guard, at_ + count + guard, mark);
    }
    std::span<std::uint32_t> words() { return {at_, count_}; }
    bool is_intact() const {
        const auto is_mark = [](std::uint32_t x) { return x == mark; };
        return std::all_of(at_ - guard, at_, is_mark) && std::all_of(at_ + count_, at_ + count_ + guard, is_mark);
    }

private:
    static constexpr std::uint32_t mark = 0xfeedc0de;
    std::size_t count_;
    std::optional<colls::memory<std::uint32_t>> shared_;
    numbers own_;
    std::uint32_t* at_ = nullptr;
};

/// Random calls, of which each rank takes the same ones with buffers of its own choice, compared with what one rank
/// computes from the inputs of all.
class mixed_calls {
public:
    mixed_calls(colls::communicator& comm, counters& c) : comm_(comm), c_(c) {}
    void run(int calls, unsigned seed) {
        std::mt19937 same(seed), own(seed + 1000u * static_cast<unsigned>(comm_.rank() + 1));
        for (int i = 0; i < calls; ++i) {
            const auto what = static_cast<unsigned>(same() % 7);
            const int root = static_cast<int>(same() % static_cast<unsigned>(comm_.size()));
            // Most are of 4 bytes to 200 KB a rank, some of up to 600 KB.
            const std::size_t block = 1 + same() % (same() % 8 == 0 ? 150'000 : std::size_t{4} << (same() % 15));
            const bool in_place = what != 5 && own() % 3 == 0;  // on this rank
            call(what, root, block, in_place, i, own);
        }
        ++c_.done;
    }

private:
    using kind = guarded_buffer::kind;
    std::uint32_t of(int rank, std::size_t i) const { return value(rank, i, salt_); }

    void call(unsigned what, int root, std::size_t block, bool in_place, int number, std::mt19937& own) {
        const auto n = static_cast<std::size_t>(comm_.size()), me = static_cast<std::size_t>(comm_.rank());
        salt_ = 7919 * number;
        const std::size_t whole = block * n;
        const bool gathers = what == 1, scatters = what == 2;
        guarded_buffer from(comm_, static_cast<kind>(own() % 3), gathers ? block : whole),
            to(comm_, static_cast<kind>(own() % 3), scatters ? block : whole);
        // In place the output is the input, or the one is a block of the other.
        const std::span<std::uint32_t> all_in = from.words(), all_out = to.words();
        std::span<std::uint32_t> in = all_in, out = all_out;
        if (in_place || what == 6) in = gathers ? all_out.subspan(me * block, block) : all_out;
        if (in_place && scatters) in = all_in, out = all_in.subspan(me * block, block);
        for (std::size_t i = 0; i < in.size(); ++i) in[i] = of(comm_.rank(), i);
        const auto sum = [&](std::size_t i) {
            std::uint32_t x = 0;
            for (int r = 0; r < comm_.size(); ++r) x += of(r, i);
            return x;
        };
        const auto rank_at = [&](std::size_t i) { return static_cast<int>(i / block); };
        switch (what) {
            case 0:
                colls::all_reduce(comm_, in, out, colls::sum);
                return judge(out, from, to, sum);
            case 1:
                colls::all_gather(comm_, in, out);
                return judge(out, from, to, [&](std::size_t i) { return of(rank_at(i), i % block); });
            case 2:
                colls::reduce_scatter(comm_, in, out, colls::sum);
                return judge(out, from, to, [&](std::size_t i) { return sum(me * block + i); });
            case 3:
                colls::all_to_all(comm_, in, out);
                return judge(out, from, to, [&](std::size_t i) { return of(rank_at(i), me * block + i % block); });
            case 4:
                colls::reduce(comm_, in, out, colls::sum, root);
                if (comm_.rank() != root) out = out.first(0);  // what it holds there is not said
                return judge(out, from, to, sum);
            case 5: {
                const std::span<std::uint32_t> mine = comm_.rank() == root ? in : out.first(0);
                const std::span<std::uint32_t> part = out.first(block);
                colls::scatter(comm_, mine, part, root);
                return judge(part, from, to, [&](std::size_t i) { return of(root, me * block + i); });
            }
            default:
                return broadcast(out, root, from, to);
        }
    }
    void broadcast(std::span<std::uint32_t> x, int root, guarded_buffer& from, guarded_buffer& to) {
        colls::broadcast(comm_, x, root);
        judge(x, from, to, [&](std::size_t i) { return of(root, i); });
    }
    template <class F>
    void judge(std::span<std::uint32_t> got, guarded_buffer& from, guarded_buffer& to, F wanted) {
        bool right = from.is_intact() && to.is_intact();
        for (std::size_t i = 0; i < got.size() && right; ++i) right = got[i] == wanted(i);
        if (!right) {
            ++c_.wrong;
            c_.first_wrong = static_cast<std::size_t>(salt_ / 7919);
        }
        // As a caller does next: no peer may still read the inputs.
        std::fill(from.words().begin(), from.words().end(), 0xdeadbeef);
        std::fill(to.words().begin(), to.words().end(), 0xdeadbeef);
    }

    colls::communicator& comm_;
    counters& c_;
    int salt_ = 0;
};

}  // namespace

TEST_CASE("single copies: a buffer is within reach of the others from the first byte they share to the last",
    "[single_copy]") {
    constexpr std::size_t all = 64;
    alignas(16) std::byte memory[all + 16];
    colls::detail::shared_access shared;
    CHECK(shared.is_whole());
    CHECK(shared.has(memory, sizeof memory));
    shared.base = memory + 8;
    shared.reach = all;
    CHECK_FALSE(shared.is_whole());
    CHECK(shared.has(memory + 8, all));
    CHECK_FALSE(shared.has(memory + 8, all + 1));
    CHECK_FALSE(shared.has(memory + 7, 1));
    CHECK(shared.has(memory + 8 + all - 1, 1));
    CHECK_FALSE(shared.has(memory + 8 + all, 1));
    CHECK_FALSE(shared.has(memory + 8 + all - 1, 2));
    CHECK_FALSE(shared.has(memory + 9, ~std::size_t{0}));
    CHECK(shared.from_offset(shared.to_offset(memory + 20)) == memory + 20);
}

TEST_CASE("single copies: every collective with ordinary buffers, copied once or staged", "[single_copy]") {
    for (const char* how : {"1", "0"}) {
        const setting_of_single_copies s(how);
        for (const int n : {2, 3, 5})
            for (const std::size_t count : {5'000u, 6'145u, 70'001u, 300'007u}) {  // 20 KB, 24 KB, 273 KB, 1.14 MB
                if (n > 2 && count > 100'000) continue;
                counters& c = shared_counters();
                colls::processes::run(n, [&](colls::communicator& comm) { battery(comm, count, c).run(); });
                INFO("COLLS_SINGLE_COPY=" << how << ", " << n << " ranks, blocks of " << count << ", element "
                                          << c.first_wrong);
                CHECK(c.wrong == 0);
                CHECK(c.done == n);
            }
    }
}

// COLLS_TUNE is read once in a process: the calls are made by this program, started once for each setting.
TEST_CASE("single copies: the random calls of one setting", "[.mixed_calls]") {
    for (const int n : {2, 3, 4}) {
        counters& c = shared_counters();
        colls::processes::run(n,
            [&](colls::communicator& comm) { mixed_calls(comm, c).run(n == 2 ? 150 : 50, static_cast<unsigned>(n)); });
        INFO(n << " ranks, call " << c.first_wrong);
        CHECK(c.wrong == 0);
        CHECK(c.done == n);
    }
}

TEST_CASE(
    "single copies: random calls with buffers of all kinds, near and far, copied once and staged", "[single_copy]") {
    char self[4096] = {};
    REQUIRE(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (const bool near : {false, true}) {
        char file[] = "/tmp/colls_single_copy_XXXXXX";
        const int opened = mkstemp(file);
        REQUIRE(opened >= 0);
        // No pair of cores is nearer than 0 s, and each is nearer than 0.9 s.
        const std::string text = std::string("machine 3e-7 2e-11 5e-11 ") + (near ? "0.9" : "0") + "\n";
        REQUIRE(write(opened, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
        close(opened);
        for (const char* how : {"0", "1"}) {
            const std::string command = std::string("COLLS_TUNE=") + file + " COLLS_SINGLE_COPY=" + how + " '" + self +
                                        "' '[.mixed_calls]' > /dev/null";
            INFO(command);
            CHECK(std::system(command.c_str()) == 0);
        }
        unlink(file);
    }
}

TEST_CASE("single copies: ordinary buffers go as is best at the distance that the cores have now", "[single_copy]") {
    namespace detail = colls::detail;
    for (const int n : {2, 3}) {
        counters& c = shared_counters();
        colls::processes::run(n, [&](colls::communicator& comm) {
            detail::rank_context& self = comm.context();
            const bool first = self.access.starts_near;
            mixed_calls calls(comm, c);
            numbers in(100'000), out(in.size() * static_cast<std::size_t>(n));
            for (const bool moved : {true, false, true}) {
                const bool near = moved ? !first : first;
                // As if the system had moved a core. Ranks that make the same calls agree on when it was.
                for (int i = 0; i < 500 && detail::near_so_far(self) != near; ++i) {
                    const double limit = self.backend->figures().near_below;
                    if (comm.rank() == 0)
                        detail::distance::take_sample(self, self.direct.count, near ? limit / 2 : 2 * limit);
                    colls::barrier(comm);
                }
                colls::all_gather(comm, in, out);
                const bool agreed = detail::near_so_far(self) == near;  // else a sample was taken meanwhile
                // The choices for calls of this size: smaller ones are staged at any distance.
                const std::size_t bytes = out.size() * sizeof(out[0]);
                for (const detail::schedule_choice& made : self.choices) {
                    const bool of_this_call =
                        (made.key & 0xffff) == detail::size_class(bytes) &&
                        (made.key >> 16 & 15) == static_cast<std::uint64_t>(colls::collective::all_gather);
                    if (!made.staged || !of_this_call) continue;
                    ++c.choices;
                    c.wrong += (made.staged->within == detail::reach::processes) !=
                               detail::copies_at(self, (made.key >> 25 & 1) != 0);
                }
                if (moved && agreed) {
                    c.wrong += self.access.copies_between && detail::copies_at(self, near) != near;
                    c.wrong += detail::streams_at(self, near) == near;
                }
                calls.run(8, static_cast<unsigned>(n));
            }
        });
        INFO(n << " ranks, call " << c.first_wrong);
        CHECK(c.wrong == 0);
        CHECK(c.done == 3 * n);
        CHECK(c.choices >= 3 * n);
    }
}

TEST_CASE("single copies: where the system refuses them to one rank, all ranks stage", "[single_copy]") {
    const setting_of_single_copies s("1");
    counters& c = shared_counters();
    const auto rank = [&](colls::communicator& comm) {
        // Whatever has not been refused to the other ranks would be an error from here on.
        if (comm.rank() != 1) forbid_copies();
        battery(comm, 70'001, c).run();
    };
    launch_world(3, 3, rank, [](int r) {
        if (r == 1) forbid_copies();
    });
    CHECK(c.wrong == 0);
    CHECK(c.done == 3);
}

TEST_CASE("single copies: not made where COLLS_SINGLE_COPY is 0; other values are refused", "[single_copy]") {
    {
        const setting_of_single_copies s("0");
        counters& c = shared_counters();
        colls::processes::run(2, [&](colls::communicator& comm) {
            forbid_copies();
            battery(comm, 70'001, c).run();
        });
        CHECK(c.wrong == 0);
        CHECK(c.done == 2);
    }
    const setting_of_single_copies s("yes");
    CHECK_THROWS_WITH(colls::processes::run(1, [](colls::communicator&) {}),
        Catch::Contains("COLLS_SINGLE_COPY is yes, which is none of: 0, 1, auto"));
}

TEST_CASE(
    "single copies: what is staged past the caches comes to both places, whole pieces and the rest", "[single_copy]") {
    const setting_of_single_copies s("0");
    constexpr std::size_t piece = colls::detail::store_policy::piece / sizeof(std::uint32_t);
    constexpr std::size_t chunk = colls::detail::store_policy::staged_chunk / sizeof(std::uint32_t);
    for (const int n : {2, 3})
        for (const std::size_t count : {std::size_t{1}, piece, 2 * piece + 77, chunk + 3 * piece + 5}) {
            counters& c = shared_counters();
            colls::processes::run(n, [&](colls::communicator& comm) {
                colls::detail::rank_context& self = comm.context();
                self.access.streams = true;                            // as if so measured
                self.waits = colls::detail::wait_policy(true, false);  // asks for no other rank on its core
                battery(comm, count, c).run_all_gather();
            });
            INFO(n << " ranks, blocks of " << count << ", element " << c.first_wrong);
            CHECK(c.wrong == 0);
            CHECK(c.done == n);
        }
}

TEST_CASE("single copies: refused later, they are an error on all ranks that names rank and remedy", "[single_copy]") {
    const setting_of_single_copies s("1");
    for (const int root : {0, 1}) {  // rank 1 pulls, or pushes its part
        counters& c = shared_counters();
        try {
            colls::processes::run(2, [&](colls::communicator& comm) {
                if (comm.rank() == 1) forbid_copies();
                std::vector<float> x(1'000'000);
                try {
                    colls::broadcast(comm, x, root);
                } catch (const colls::error&) {
                    ++c.refused;
                    throw;
                }
            });
            FAIL("no error");
        } catch (const colls::error& e) {
            CHECK(e.code() == colls::errc::peer_failed);
            CHECK_THAT(e.what(), Catch::Contains("rank 1 in broadcast"));
            CHECK_THAT(e.what(), Catch::Contains("COLLS_SINGLE_COPY=0"));
        }
        CHECK(c.refused == 2);
    }
}

TEST_CASE("single copies: a peer that dies after it has entered a call ends the call with an error", "[single_copy]") {
    const setting_of_single_copies s("1");
    counters& c = shared_counters();
    try {
        colls::processes::run(2, [&](colls::communicator& comm) {
            std::vector<float> in(3'000'000, 1.f), out(6'000'000);
            colls::all_gather(comm, in, out);
            if (comm.rank() == 1) {
                auto begun = colls::start::all_gather(comm, in, out);
                raise(SIGKILL);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            try {
                colls::start::all_gather(comm, in, out).wait();
            } catch (const colls::error& e) {
                // How it ended is known, not only that its memory cannot be read.
                c.died += e.code() == colls::errc::peer_failed && e.peer() == 1 &&
                          std::string_view(e.what()).find("cannot copy") == std::string_view::npos;
                throw;
            }
        });
        FAIL("no error");
    } catch (const colls::error& e) {
        CHECK_THAT(e.what(), Catch::Contains("killed by signal 9"));
    }
    CHECK(c.died == 1);
}
