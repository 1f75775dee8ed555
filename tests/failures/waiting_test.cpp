// How a rank waits: the cores that it may use, the policy of a wait, and how ranks find that they share a core.
#include "catch.hpp"

#include <colls/colls.hpp>
#include <colls/detail/group/backoff.hpp>
#include <colls/detail/perform/started_operation.hpp>
#include <colls/detail/support/cgroup_quota.hpp>
#include <colls/detail/support/cores.hpp>
#include <colls/detail/support/machine.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>

using colls::detail::cgroup_quota;
using colls::detail::wait_action;
using colls::detail::wait_policy;

namespace {

/// A tree of files that stands for the system's, while it exists.
class tree {
public:
    tree() {
        std::string name = (std::filesystem::temp_directory_path() / "colls-waiting-XXXXXX").string();
        REQUIRE(mkdtemp(name.data()) != nullptr);
        root_ = name;
    }
    ~tree() { std::filesystem::remove_all(root_); }
    tree(const tree&) = delete;
    tree& operator=(const tree&) = delete;

    tree& with(const std::string& path, const std::string& text) {
        const std::filesystem::path at = root_ / path.substr(1);
        std::filesystem::create_directories(at.parent_path());
        std::ofstream(at) << text;
        return *this;
    }
    double cores() const { return cgroup_quota(root_.string()).cores(); }

private:
    std::filesystem::path root_;
};

const std::string version_2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string version_1 =
    "31 23 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 23 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
constexpr const char* mounts = "/proc/self/mountinfo";
constexpr const char* membership = "/proc/self/cgroup";

/// A rank that serves another library: after several looks, but not too many, it rests in that way.
bool looks_before(wait_policy& p, wait_action rest, double waited) {
    int looks = 0;
    wait_action next = wait_action::look;
    while (looks < 1000 && (next = p.next(waited, true)) == wait_action::look) ++looks;
    return looks >= 8 && looks < 1000 && next == rest;
}
/// Spins of a wait whose peer does not come, of a rank that finds that it shares its core, or not.
unsigned spins_of_a_wait(wait_policy& p, bool shares_core = false) {
    unsigned spun = p.first_spins();
    while (p.asks(spun)) {
        const unsigned limit = p.more_spins(spun, shares_core);
        REQUIRE(limit >= spun);
        if (limit == spun) break;
        spun = limit;
    }
    return spun;
}

}  // namespace

TEST_CASE("quota: version 2", "[cores]") {
    tree t;
    t.with(mounts, version_2).with(membership, "0::/job/rank\n");
    const std::string root = "/sys/fs/cgroup";
    CHECK(t.cores() == cgroup_quota::none);
    t.with(root + "/job/rank/cpu.max", "max 100000\n");
    CHECK(t.cores() == cgroup_quota::none);
    t.with(root + "/job/rank/cpu.max", "250000 100000\n");
    CHECK(t.cores() == 2.5);
    SECTION("a group above it has less") {
        t.with(root + "/job/cpu.max", "100000 50000\n");
        CHECK(t.cores() == 2);
    }
    SECTION("a group above it has more") {
        t.with(root + "/job/cpu.max", "800000 100000\n");
        CHECK(t.cores() == 2.5);
    }
    SECTION("the mounted root has less, as in a container") {
        t.with(root + "/cpu.max", "100000 100000\n").with(membership, "0::/\n");
        CHECK(t.cores() == 1);
    }
    SECTION("another group does not count") {
        t.with(root + "/other/cpu.max", "10000 100000\n");
        CHECK(t.cores() == 2.5);
    }
}

TEST_CASE("quota: version 1", "[cores]") {
    tree t;
    t.with(mounts, version_1).with(membership, "5:cpuset:/set\n4:cpu,cpuacct:/job/rank\n1:name=systemd:/x\n0::/\n");
    const std::string root = "/sys/fs/cgroup/cpu,cpuacct";
    const auto set = [&](const std::string& group, const char* quota, const char* period) {
        t.with(root + group + "/cpu.cfs_quota_us", quota).with(root + group + "/cpu.cfs_period_us", period);
    };
    set("", "-1\n", "100000\n");
    set("/job/rank", "-1\n", "100000\n");
    CHECK(t.cores() == cgroup_quota::none);
    set("/job/rank", "150000\n", "50000\n");
    CHECK(t.cores() == 3);
    set("/job", "200000\n", "100000\n");
    CHECK(t.cores() == 2);
    SECTION("a container that sees its own group as the mount's root") {
        t.with(mounts, "31 23 0:28 /job /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
        set("/rank", "50000\n", "100000\n");
        CHECK(t.cores() == 0.5);
        t.with(mounts, "31 23 0:28 /jo /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
        set("", "400000\n", "100000\n");
        CHECK(t.cores() == 4);  // /job is not below /jo, so that only the mount's root counts
    }
    SECTION("both versions mounted") {
        t.with(mounts, version_1 + "33 23 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n")
            .with("/sys/fs/cgroup/unified/cpu.max", "100000 100000\n");
        CHECK(t.cores() == 1);
    }
}

TEST_CASE("quota: what cannot be understood is none", "[cores]") {
    tree t;
    CHECK(t.cores() == cgroup_quota::none);
    t.with(mounts, version_2);
    CHECK(t.cores() == cgroup_quota::none);
    for (const char* line : {"", "\n", "0:", "0::", "::", "0::no slash\n", "0::/../..\n"}) {
        t.with(membership, line);
        CHECK(t.cores() == cgroup_quota::none);
    }
    t.with(membership, "0::/job\n");
    for (const char* text : {"", "\n", "max", "-1 100000", "0 100000", "100000", "100000 0", "100000 -5", "nan 100000",
             "inf 100000", "100000 nan", "two cores", "1e300 1"}) {
        t.with("/sys/fs/cgroup/job/cpu.max", text);
        CHECK(t.cores() == cgroup_quota::none);
    }
    t.with("/sys/fs/cgroup/job/cpu.max", "100000 100000");
    for (const char* line : {"", "30", "30 23 0:26 / /sys/fs/cgroup rw cgroup2\n", " - cgroup2\n", "a - b"}) {
        t.with(mounts, line);
        CHECK(t.cores() == cgroup_quota::none);
    }
    t.with(mounts, "a - b\n" + version_2);
    CHECK(t.cores() == 1);
}

TEST_CASE("cores: the least of affinity and quota, and one at least", "[cores]") {
    using colls::detail::cores_within;
    CHECK(cores_within(64, cgroup_quota::none) == 64);
    CHECK(cores_within(64, 2) == 2);
    CHECK(cores_within(64, 2.9) == 2);
    CHECK(cores_within(64, 0.5) == 1);
    CHECK(cores_within(2, 8) == 2);
    CHECK(cores_within(0, cgroup_quota::none) == 1);
    CHECK(colls::detail::cores() >= 1);
}

TEST_CASE("cores: those that the ranks of a host have together", "[cores]") {
    using colls::detail::core_share;
    struct expected {
        int cores;
        bool crowded;
    };
    const auto together = [](std::initializer_list<core_share> shares) {
        colls::detail::cores_together all;
        for (const core_share& s : shares) all.add(s);
        return all;
    };
    const auto check = [&](std::initializer_list<core_share> shares, expected e) {
        CHECK(together(shares).cores() == e.cores);
        CHECK(together(shares).crowded() == e.crowded);
    };
    // {cores, their set, of the host, launched}
    check({{4, 1, 4}, {4, 1, 4}}, {4, false});                        // not bound
    check({{1, 1, 4}, {1, 2, 4}}, {2, false});                        // bound to one core each
    check({{1, 1, 4}, {1, 1, 4}}, {1, true});                         // to the same
    check({{2, 1, 8}, {2, 1, 8}, {2, 2, 8}, {2, 2, 8}}, {4, false});  // to sockets
    check({{2, 1, 8}, {2, 1, 8}, {2, 1, 8}, {2, 2, 8}, {2, 2, 8}}, {4, true});
    check({{3, 1, 4}, {3, 2, 4}}, {4, false});            // sets that overlap
    check({{1, 1, 2}, {1, 2, 2}, {1, 3, 2}}, {2, true});  // as far as the quota goes
    check({{1, 1, 4}, {1, 2, 1}}, {1, true});
    check({{4, 1, 4, 4}, {4, 1, 4, 4}}, {4, false});  // half of a job that fits
    check({{2, 1, 2, 4}, {2, 1, 2, 4}}, {1, true});   // half of one that does not
    check({{4, 1, 4, 8}}, {1, false});
    check({{1, 1, 4, 4}, {1, 2, 4, 4}}, {2, false});
    CHECK(together({{2, 1, 2}, {2, 1, 2}, {2, 1, 2}}).of_group(12) == 8);
    CHECK(together({{2, 1, 2}, {2, 1, 2}}).of_group(12) == colls::detail::cores_together::plenty);
    using colls::detail::with_cores_of;
    CHECK(with_cores_of({.cores = 8}, 8, 16).cores == 4);  // of two hosts, one
    CHECK(with_cores_of({.cores = 2}, 1, 16).cores == 1);
    CHECK(with_cores_of({.cores = colls::detail::cores_together::plenty}, 1, 2).cores ==
          colls::detail::cores_together::plenty);
    CHECK(together({{4, 1, 4}, {8, 2, 8}}).cores() == 4);  // of hosts that let a rank use four cores, and eight
    CHECK(colls::detail::own_share().cores >= 1);
    CHECK(colls::detail::own_share().most >= colls::detail::own_share().cores);
}

TEST_CASE("wait policy: ranks that have a core each spin, yield, and sleep", "[wait]") {
    wait_policy p(false, false);
    CHECK(p.first_spins() == wait_policy::unasked);
    CHECK(spins_of_a_wait(p) == wait_policy::of_memory.most);
    for (int i = 0; i < 100'000; ++i) REQUIRE(p.next(1e-3) == wait_action::yield);
    CHECK(p.next(4e-3) == wait_action::sleep);
    CHECK(p.next(0) == wait_action::yield);  // of the next wait
    CHECK(looks_before(p, wait_action::yield, 4e-3));
    CHECK(wait_policy::sleep_for(0) == 50e-6);
    CHECK(wait_policy::sleep_for(3e-3) == 50e-6);
    CHECK(wait_policy::sleep_for(6.4e-3) == Approx(100e-6));
    CHECK(wait_policy::sleep_for(5) == 1e-3);
}

TEST_CASE("wait policy: where ranks outnumber cores they yield at once", "[wait]") {
    for (const bool by_messages : {false, true}) {
        wait_policy p(true, by_messages);
        CHECK(spins_of_a_wait(p) == 0);
        CHECK(p.next(0) == wait_action::yield);
        CHECK(p.next(0, true) == wait_action::yield);
        CHECK(looks_before(p, wait_action::sleep, 4e-3));
        p.over(0, 100);
        CHECK(spins_of_a_wait(p) == 0);
    }
}

TEST_CASE("wait policy: a rank that shares its core yields at once, until it has it alone", "[wait]") {
    wait_policy p(false, false);
    CHECK(spins_of_a_wait(p, true) == wait_policy::unasked);  // the first wait: it did not know
    CHECK(p.next(0) == wait_action::yield);
    p.over(wait_policy::unasked, 1);
    CHECK(spins_of_a_wait(p, true) == 0);
    CHECK(spins_of_a_wait(p, true) == 0);
    CHECK(spins_of_a_wait(p, false) == wait_policy::of_memory.most);
    CHECK(p.first_spins() == wait_policy::unasked);

    SECTION("now and then it sleeps, so that the system may choose another core") {
        const auto yields = [&] {
            unsigned count = 0;
            while (p.next(0) == wait_action::yield) ++count;
            return count;
        };
        CHECK(spins_of_a_wait(p, true) == wait_policy::unasked);
        CHECK(yields() == wait_policy::first_streak - 1);
        CHECK(yields() == 2 * wait_policy::first_streak - 1);
        for (int i = 0; i < 10; ++i) yields();
        CHECK(yields() == wait_policy::longest_streak - 1);
        spins_of_a_wait(p, false);
        CHECK(spins_of_a_wait(p, true) == wait_policy::unasked);
        CHECK(yields() == wait_policy::first_streak - 1);
    }
}

TEST_CASE("wait policy: a rank does not move from core to core all the time", "[wait]") {
    wait_policy p(false, false);
    CHECK(p.moves(100));
    CHECK(!p.moves(100));
    double now = 100, pause = wait_policy::first_pause;
    for (int i = 0; i < 10; ++i) {
        CHECK(!p.moves(now + 0.9 * pause));
        now += 1.1 * pause;
        CHECK(p.moves(now));
        pause = std::min(2 * pause, wait_policy::longest_pause);
    }
}

TEST_CASE("wait policy: a yield that lost the core to another program makes ranks sleep instead", "[wait]") {
    wait_policy p(false, false);
    const auto sleeps = [&] {
        unsigned count = 0;
        while (p.next(0) == wait_action::sleep) ++count;
        return count;
    };
    p.yielded(1e-5);
    CHECK(sleeps() == 0);
    p.yielded(4e-3);
    CHECK(sleeps() == wait_policy::first_sleeps);
    p.yielded(4e-3);
    CHECK(sleeps() == 2 * wait_policy::first_sleeps);
    for (int i = 0; i < 20; ++i) p.yielded(4e-3);
    CHECK(sleeps() == wait_policy::most_sleeps);
    p.yielded(1e-6);
    p.yielded(4e-3);
    CHECK(sleeps() == wait_policy::first_sleeps);
}

TEST_CASE("wait policy: spins adapt to what waits took", "[wait]") {
    wait_policy memory(false, false), messages(false, true);
    CHECK(spins_of_a_wait(messages) == wait_policy::of_messages.most);
    SECTION("short waits need few") {
        for (int i = 0; i < 500; ++i) memory.over(100, 0), messages.over(5, 0);
        CHECK(spins_of_a_wait(memory) > 400);
        CHECK(spins_of_a_wait(memory) < 420);
        CHECK(spins_of_a_wait(messages) < 40);
        memory.over(300, 0);
        CHECK(spins_of_a_wait(memory) == 1200);
    }
    SECTION("where a yield brings the peer, or the peer is late, spinning is in vain; never fewer than the least") {
        for (const unsigned yields : {1u, 1000u}) {
            for (int i = 0; i < 20; ++i) memory.over(2000, yields), messages.over(256, yields);
            CHECK(spins_of_a_wait(memory) == wait_policy::of_memory.fewest);
            CHECK(spins_of_a_wait(messages) == wait_policy::of_messages.fewest);
        }
    }
    SECTION("where a peer comes soon after the last spin, more are worth it; never more than the most") {
        for (int i = 0; i < 20; ++i) memory.over(2000, 1), messages.over(256, 1);
        memory.over(256, 20), messages.over(1, 20);
        CHECK(spins_of_a_wait(memory) == 2 * wait_policy::of_memory.fewest);
        CHECK(spins_of_a_wait(messages) == 2 * wait_policy::of_messages.fewest);
        for (int i = 0; i < 20; ++i) memory.over(2000, 20), messages.over(256, 20);
        CHECK(spins_of_a_wait(memory) == wait_policy::of_memory.most);
        CHECK(spins_of_a_wait(messages) == wait_policy::of_messages.most);
    }
}

/// Gives the thread its affinity back: one of them is the program's.
struct kept_affinity {
    const colls::detail::affinity of{};
    ~kept_affinity() { of.apply(); }
};

TEST_CASE("waiting: ranks on one core tell each other, and withdraw it when they leave", "[wait]") {
    if (colls::detail::cores() < 2) return;  // they outnumber the cores, and need not ask
    std::atomic<int> shared{0}, left{0};
    colls::threads::run(2, [&](colls::communicator& comm) {
        const kept_affinity kept;
        cpu_set_t set;
        CPU_ZERO(&set);
        const int core = sched_getcpu();
        static std::atomic<int> chosen{-1};
        int none_yet = -1;
        chosen.compare_exchange_strong(none_yet, core, std::memory_order_relaxed);
        const int common = chosen.load(std::memory_order_relaxed);
        CPU_SET(static_cast<std::size_t>(common), &set);
        if (sched_setaffinity(0, sizeof set, &set) != 0) return;
        int in = comm.rank() + 1, out = 0;
        for (int i = 0; i < 1000; ++i) {
            colls::all_reduce(comm, std::span<const int>(&in, 1), std::span<int>(&out, 1), colls::sum);
            if (out != 3) return;
        }
        const colls::detail::group_memory& memory = comm.context().memory;
        shared += memory.core(0).load(std::memory_order_relaxed) == common + 1 &&
                  memory.core(1).load(std::memory_order_relaxed) == common + 1;
        colls::barrier(comm);  // a rank that leaves withdraws its core
        if (comm.rank() == 1) return;
        while (memory.state(1).gone.load(std::memory_order_acquire) == 0) sched_yield();
        left += memory.core(1).load(std::memory_order_relaxed) == 0;
    });
    CHECK(shared == 2);
    CHECK(left == 1);
}

TEST_CASE("waiting: a rank that has left a core that it has told says so in its next wait, however short", "[wait]") {
    if (colls::detail::cores() < 2) return;  // no rank tells its core
    std::atomic<int> corrected{0}, silent{0};
    colls::threads::run(2, [&](colls::communicator& comm) {
        colls::detail::rank_context& self = comm.context();
        std::atomic<std::uint16_t>& own = self.memory.core(comm.rank());
        const auto wait_a_moment = [&] {
            colls::detail::backoff wait(self);
            wait({});
        };
        self.waits = wait_policy(false, false);  // the ranks may have shared a core when the group formed
        own.store(0, std::memory_order_relaxed);
        wait_a_moment();
        silent += own.load(std::memory_order_relaxed) == 0;
        constexpr std::uint16_t another = 60'000;
        own.store(another, std::memory_order_relaxed);
        wait_a_moment();
        corrected += own.load(std::memory_order_relaxed) != another;
    });
    CHECK(silent == 2);
    CHECK(corrected == 2);
}

TEST_CASE("waiting: of two ranks on a core the higher one moves, and may run where it could before", "[wait]") {
    if (colls::detail::cores() < 2) return;  // they outnumber the cores, and stay
    enum case_of : int { higher, lower, bound };
    for (const int which : {higher, lower, bound}) {
        std::atomic<int> asked{-1}, moved{-1}, same_cores{-1}, over{0};
        colls::threads::run(2, [&](colls::communicator& comm) {
            if (comm.rank() != (which == lower ? 0 : 1)) {
                while (over == 0) std::this_thread::yield();
                return;
            }
            const kept_affinity kept;
            colls::detail::affinity one;
            const auto here = static_cast<std::uint16_t>(sched_getcpu() + 1);
            for (int c = 0; c < 8 * CPU_SETSIZE; ++c)
                if (c + 1 != here) one.remove(c);
            // Several times: the system may move the rank as well, before it asks, and after it has moved.
            for (int trial = 0; trial < 100 && (trial == 0 || (which == higher && !(asked == 1 && moved == 1)));
                ++trial) {
                one.apply();
                if (which != bound) kept.of.apply();
                const colls::detail::affinity before;
                colls::detail::rank_context& self = comm.context();
                self.waits = wait_policy(false, false);
                // The other rank, which is not in a call, seems to be here, too.
                self.memory.core(1 - comm.rank()).store(here, std::memory_order_relaxed);
                colls::detail::backoff wait(self);
                for (unsigned i = 0; i < wait_policy::unasked + 1; ++i) wait({});
                asked = !self.waits.moves(0);
                moved = self.memory.core(comm.rank()).load(std::memory_order_relaxed) != here;
                const colls::detail::affinity after;
                same_cores = CPU_EQUAL_S(sizeof after.set, after.set, before.set);
            }
            over = 1;
        });
        INFO(which);
        CHECK(asked == (which != lower));
        if (which == higher) CHECK(moved == 1);
        if (which == bound) CHECK(moved == 0);
        CHECK(same_cores == 1);
    }
}

TEST_CASE("waiting: the next waits of a rank are as long as its last ones took", "[wait]") {
    std::atomic<int> shorter{0}, longer{0};
    colls::threads::run(1, [&](colls::communicator& comm) {
        colls::detail::rank_context& self = comm.context();
        const auto waits = [&](unsigned looks) {
            colls::detail::backoff wait(self);
            for (unsigned i = 0; i < looks; ++i) wait({});
        };
        self.waits = wait_policy(false, false);
        for (int i = 0; i < 100; ++i) waits(100);  // of spins alone
        shorter += !self.waits.asks(500);
        waits(500 + 10);  // the last of them yield
        longer += self.waits.asks(700);
    });
    CHECK(shorter == 1);
    CHECK(longer == 1);
}

namespace {

using namespace std::chrono_literals;

/// In memory that forked processes share.
struct shared_words {
    std::atomic<int> wanted{0};  ///< by rank 1, of the hook
    std::atomic<int> given{0};   ///< by the hook
    std::atomic<int> nested{0}, refused{0};
    std::atomic<int> failed{0};  ///< ranks whose call has failed
};
shared_words& words() {
    static shared_words* const all = new (
        mmap(nullptr, sizeof(shared_words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) shared_words;
    return *all;
}
/// Rank 1 comes to the call only when rank 0, which waits for it there, has run the hook: as where rank 1 first sends
/// by another library, which makes progress in rank 0's hook alone.
void each_wait(colls::communicator& comm) {
    std::vector<int> x(3000, 1);
    const auto started = [&] { return colls::start::all_reduce(comm, x, colls::sum); };
    const auto late = [&] {
        if (comm.rank() != 1) return;
        const int turn = words().wanted.fetch_add(1) + 1;
        const auto until = std::chrono::steady_clock::now() + 100s;  // less than the deadline of rank 0
        while (words().given.load() < turn) {
            if (std::chrono::steady_clock::now() > until) throw std::runtime_error("the hook has not run");
            std::this_thread::yield();
        }
    };
    late(), colls::barrier(comm);
    late(), colls::all_reduce(comm, x, colls::sum);
    late(), comm.rank() == 0 ? colls::recv(comm, x, 1) : colls::send(comm, x, 0);
    {
        late();
        auto o = started();
        o.wait();
    }
    {
        late();
        auto o = started();
        while (!o.wait_for(100ms)) {}
    }
    {
        late();
        colls::operation all[] = {started()};
        if (colls::wait_any(all) != 0) throw std::runtime_error("wait_any");
    }
    late();
    colls::communicator part = comm.split(0, 0);
    late(), colls::barrier(part);
}

/// One that comes on at each so many looks, and is over where it `ends`.
struct creeping_operation final : colls::detail::operation_state {
    creeping_operation(colls::detail::rank_context& self, unsigned looks) : operation_state(self), every(looks) {
        site.what = "recv";
        site.fingerprint = colls::detail::no_call;
        done = false;
    }
    void begin() override {}
    bool advance() override {
        if (++looked % every == 0) ++now.chunk;
        return done = ends || now.chunk == 8;
    }
    unsigned looked = 0, every;
    bool ends = false;
};

}  // namespace

TEST_CASE(
    "a measurement: another thread, on another core, does what it is asked while this one does its own", "[cores]") {
    if (!colls::detail::second_core()) return;
    const int here = sched_getcpu();
    colls::detail::two_threads threads;
    std::thread::id other;
    bool may_come_here = true;
    threads.together([&] {
        cpu_set_t set;
        may_come_here = sched_getaffinity(0, sizeof set, &set) != 0 || CPU_ISSET(static_cast<std::size_t>(here), &set);
        other = std::this_thread::get_id();
    });
    CHECK(other != std::thread::id());
    CHECK(other != std::this_thread::get_id());
    if (sched_getcpu() == here) CHECK(!may_come_here);  // else this thread may have moved before the other began
    // Each waits for the other within one question.
    for (int i = 1; i <= 100; ++i) {
        std::atomic<int> own{0}, theirs{0};
        const auto meet = [i](std::atomic<int>& mine, const std::atomic<int>& yours) {
            mine.store(i);
            while (yours.load() != i) std::this_thread::yield();
        };
        threads.together([&] { meet(theirs, own); }, [&] { meet(own, theirs); });
    }
    while (!threads.late()) std::this_thread::yield();
}

TEST_CASE("a measurement: figures are plausible, or the usual ones", "[cores]") {
    const colls::extend::machine usual, found = colls::detail::measured();
    CHECK(found.cores == colls::detail::cores());
    CHECK(found.alpha > 1e-9);
    CHECK(found.alpha < 2e-6);
    CHECK(found.gamma > 1e-13);
    CHECK((found.beta <= 0.7 * found.gamma || found.beta == usual.beta));
    CHECK(found.near_below > 0);
}

TEST_CASE("wait hook: runs in every kind of wait, over every transport", "[wait]") {
    colls::set_wait_hook(
        [](void* all) {
            auto& w = *static_cast<shared_words*>(all);
            w.given.store(w.wanted.load());
        },
        &words());
    SECTION("threads") { CHECK_NOTHROW(colls::threads::run(2, each_wait)); }
    SECTION("shared memory") { CHECK_NOTHROW(colls::processes::run(2, each_wait)); }
    SECTION("TCP") {
        setenv("COLLS_TRANSPORT", "tcp", 1);
        CHECK_NOTHROW(colls::processes::run(2, each_wait));
        unsetenv("COLLS_TRANSPORT");
    }
    colls::set_wait_hook(nullptr);
    CHECK(words().given.load() == words().wanted.load());
}

TEST_CASE("wait hook: may call with another group, and not with the one that waits", "[wait]") {
    static thread_local colls::communicator *waiting = nullptr, *other = nullptr;
    colls::set_wait_hook([](void*) {
        if (waiting == nullptr || words().nested.load() != 0) return;
        colls::barrier(*other);  // a group of one
        try {
            colls::barrier(*waiting);
        } catch (const colls::error& e) {
            words().refused = e.code() == colls::errc::invalid_argument &&
                              std::string(e.what()).find("the wait hook") != std::string::npos;
        }
        words().nested = 1;
    });
    colls::threads::run(2, [](colls::communicator& comm) {
        colls::threads::run(1, [&](colls::communicator& own) {
            if (comm.rank() == 0) waiting = &comm, other = &own;
            const auto until = std::chrono::steady_clock::now() + 100s;
            while (comm.rank() == 1 && words().nested.load() == 0 && std::chrono::steady_clock::now() < until)
                std::this_thread::sleep_for(100us);
            colls::barrier(comm);
            waiting = nullptr;
        });
    });
    colls::set_wait_hook(nullptr);
    CHECK(words().nested == 1);
    CHECK(words().refused == 1);
}

TEST_CASE("waiting: the deadline of an operation that is tested counts from when it moved last", "[wait]") {
    colls::threads::run(1, [](colls::communicator& comm) {
        colls::detail::rank_context& self = comm.context();
        self.env.timeout = 1e-9;  // the second look in one place is past it
        for (const bool in_test : {true, false}) {
            colls::operation moves(comm.handle(), hand_to_caller(self, *new creeping_operation(self, 20)));
            while (!(in_test ? moves.test() : moves.wait_for(0s))) {}
        }
        colls::operation stands(comm.handle(), hand_to_caller(self, *new creeping_operation(self, 1'000'000)));
        try {
            while (!stands.test()) {}
            throw std::runtime_error("it has no deadline");
        } catch (const colls::error& e) {
            if (e.code() != colls::errc::timeout) throw;
        }
    });
}

TEST_CASE("waiting: a rank waits no more for an operation that a test has found over", "[wait]") {
    colls::threads::run(1, [](colls::communicator& comm) {
        colls::detail::rank_context& self = comm.context();
        const auto waits = [&] { return self.memory.state(0).waits.load(); };
        auto* const creeping = new creeping_operation(self, 1'000'000);
        colls::operation started(comm.handle(), hand_to_caller(self, *creeping));
        while (waits() == 0)
            if (started.test()) throw std::runtime_error("it is over");
        creeping->ends = true;
        if (!started.test() || waits() != 0) throw std::runtime_error("it still waits");
    });
}

TEST_CASE("set_timeout: a deadline of one communicator and its parts, or none", "[wait]") {
    constexpr int timeout = static_cast<int>(colls::errc::timeout);
    // Rank 1 does not come before rank 0 has given up, so that nothing but the deadline can end the wait.
    const auto never_comes = [](colls::communicator& comm) {
        const auto until = std::chrono::steady_clock::now() + 100s;
        while (comm.rank() == 1 && words().failed.load() == 0 && std::chrono::steady_clock::now() < until)
            std::this_thread::sleep_for(1ms);
        if (comm.rank() == 1) return;
        try {
            colls::barrier(comm);
        } catch (...) {
            words().failed = 1;
            throw;
        }
    };
    const auto comes_late = [](colls::communicator& comm) {
        if (comm.rank() == 1) std::this_thread::sleep_for(300ms);
        colls::barrier(comm);
    };
    for (const bool threads : {true, false}) {
        INFO((threads ? "threads" : "processes"));
        // 0 where f returns on both ranks.
        const auto code_of = [&](auto f) {
            words().failed = 0;
            try {
                threads ? colls::threads::run(2, f) : colls::processes::run(2, f);
            } catch (const colls::error& e) {
                return static_cast<int>(e.code());
            }
            return 0;
        };
        // Processes would have to form their group within the deadline, too.
        setenv("COLLS_TIMEOUT", threads ? "0.1" : "inf", 1);
        if (threads) CHECK(code_of(never_comes) == timeout);
        CHECK(code_of([&](colls::communicator& comm) {
            comm.set_timeout(0.1s);
            comm.set_timeout(std::chrono::nanoseconds::max());
            comes_late(comm);
            colls::communicator part = comm.split(0, 0);
            comes_late(part);
        }) == 0);
        setenv("COLLS_TIMEOUT", "inf", 1);
        CHECK(code_of(comes_late) == 0);
        CHECK(code_of([&](colls::communicator& comm) {
            comm.set_timeout(0.1s);
            never_comes(comm);
        }) == timeout);
        // A part has the deadline that its parent has when it is split off.
        CHECK(code_of([&](colls::communicator& comm) {
            comm.set_timeout(50s);
            colls::communicator part = comm.split(0, 0), other = part.split(0, 0);
            if (part.context().env.timeout != 50 || other.context().env.timeout != 50)
                throw std::runtime_error("another deadline");
        }) == 0);
    }
    unsetenv("COLLS_TIMEOUT");
    try {
        colls::threads::run(1, [](colls::communicator& comm) { comm.set_timeout(0s); });
        FAIL("a deadline of 0 was accepted");
    } catch (const colls::error& e) {
        CHECK(e.code() == colls::errc::invalid_argument);
    }
}

TEST_CASE("wait policy: where many ranks share a core, they sleep soon", "[wait]") {
    CHECK(!colls::detail::sleep_at_once(8, 2));
    CHECK(colls::detail::sleep_at_once(9, 2));
    wait_policy many(true, false, true), few(true, false);
    for (unsigned rested = 0; rested < wait_policy::yields_before_bell; ++rested)
        CHECK(many.next(0, false, true, rested) == wait_action::yield);
    CHECK(many.next(0, false, true, wait_policy::yields_before_bell) == wait_action::sleep);
    CHECK(many.next(0) == wait_action::yield);  // no peer would wake it
    CHECK(few.next(0, false, true) == wait_action::yield);
    CHECK(wait_policy::sleep_at_bell_for(0, 30) == 16e-3);
    CHECK(wait_policy::sleep_at_bell_for(1, 30) == 0.25);
    CHECK(wait_policy::sleep_at_bell_for(0.1, 30) == 0.025);
    CHECK(wait_policy::sleep_at_bell_for(5, 30) == 0.4);
    CHECK(wait_policy::sleep_at_bell_for(29.75, 30) == 0.25);
    CHECK(wait_policy::sleep_at_bell_for(31, 30) == 1e-3);
    CHECK(wait_policy::sleep_at_bell_for(0, 0.08) == 0.01);
}

// A wake that is lost shows: the rank sleeps to the end of its two seconds, though the word was published.
TEST_CASE("waiting: a rank that sleeps is woken by what its peer publishes", "[wait]") {
    const bool fences = GENERATE(false, true);
    CAPTURE(fences);
    constexpr int values = 20'000;
    std::atomic<int> words[2] = {0, 0}, lost{0}, slept{0};
    colls::threads::run(2, [&](colls::communicator& comm) {
        colls::detail::rank_context& self = comm.context();
        const bool was = self.crowded;
        colls::barrier(comm);
        self.crowded = fences;
        open_bell(self);
        colls::barrier(comm);
        const int peer = 1 - self.rank;
        for (int v = 1; v <= values && lost == 0; ++v) {
            if (self.rank == v % 2) {
                words[self.rank].store(v, std::memory_order_release);
                wake_sleepers(self);
                continue;
            }
            const auto there = [&] { return words[peer].load(std::memory_order_acquire) == v; };
            for (colls::detail::sleeper s; !there() && lost == 0;) {
                if (!s.is_at(self, peer)) {
                    s.come(self, peer);
                } else if (slept.fetch_add(1, std::memory_order_relaxed); !s.sleep(2) && there()) {
                    lost.fetch_add(1, std::memory_order_relaxed);
                }
            }
        }
        self.crowded = was;
        colls::barrier(comm);
    });
    CHECK(lost == 0);
    CHECK(slept > 0);
}
