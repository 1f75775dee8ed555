// The executors of kernels on host threads: every schedule and the eager path against a serial reference, and what
// happens when ranks fail. Run under ThreadSanitizer too.
#include "catch.hpp"

#include "cuda/host_ranks.hpp"
#include "support/own_transport.hpp"
#include "support/random.hpp"
#include "support/schedules.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <thread>

using namespace host_kernels;
using support::random_source;

namespace {

using word = std::uint64_t;

/// Maps x -> a x + b modulo 2^32: composing them is associative and does not commute.
struct compose_maps {
    constexpr word operator()(const word& x, const word& y) const {
        const word xa = x >> 32, xb = x & 0xffffffffu, ya = y >> 32, yb = y & 0xffffffffu;
        return (xa * ya & 0xffffffffu) << 32 | ((xa * yb + xb) & 0xffffffffu);
    }
};
/// A sum, or that: what the kernels look at in an operator at compile time, hooks and element type, is the same of
/// both.
struct sum_or_compose {
    bool composes;
    constexpr word operator()(const word& x, const word& y) const { return composes ? compose_maps{}(x, y) : x + y; }
};
/// A sum of contributions by a factor of each rank, with a last step: has leaf and finish, all that an operator may
/// have.
struct weighed_sum {
    word factor;
    constexpr word operator()(const word& a, const word& b) const { return a + b; }
    constexpr word leaf(const word& x) const { return factor * x; }
    constexpr word finish(const word& x, int n) const { return x + static_cast<word>(1000 * n); }
};
/// To another type; depends on value and index.
struct halved {
    constexpr std::uint32_t operator()(const word& x, std::size_t i) const {
        return static_cast<std::uint32_t>((x >> 7) + 13 * i);
    }
};

/// To the same type, so that it works in place; depends on value and index.
struct marked {
    constexpr word operator()(const word& x, std::size_t i) const { return x ^ (77 * i + 5); }
};

enum class mode { sum, ordered, all_hooks, epilogue, epilogue_of_one_type };

/// One call of all ranks.
struct job {
    collective what{};
    const support::row* row = nullptr;  // null: the eager path
    mode how = mode::sum;
    int n = 1, root = 0, channels = 1;
    bool in_place = false;
    std::size_t count = 0;  // elements of all user blocks
    std::vector<std::uint64_t> offsets;
    kernel::slot_map map;
    std::vector<kernel::kernel_call> calls;
    std::vector<std::unique_ptr<buffer<word>>> ins, outs;
    std::vector<std::unique_ptr<buffer<std::uint32_t>>> narrow;
    word seed = 0;

    bool in_two_hops() const { return !row && what == collective::all_reduce && seed % 3 != 0; }
    std::string describe() const {
        return std::string(colls::name_of(what)) + " by " +
               (row                ? row->name
                   : in_two_hops() ? "the eager path in two hops"
                                   : "the eager path") +
               ", n " + std::to_string(n) + ", root " + std::to_string(root) + ", count " + std::to_string(count) +
               ", channels " + std::to_string(channels) + ", mode " + std::to_string(static_cast<int>(how)) +
               (in_place ? ", in place" : "") + (offsets.empty() ? "" : ", v") + ", chunk " +
               std::to_string(calls.empty() ? 0 : calls[0].chunk);
    }
    std::size_t before(int b) const {
        return offsets.empty() ? kernel::balanced(count, index(n), index(b)).first : offsets[index(b)];
    }
    std::size_t length(int b) const { return (b + 1 == n ? count : before(b + 1)) - before(b); }
    bool owns_in() const { return what == collective::gather || what == collective::all_gather; }
    bool owns_out() const { return what == collective::scatter || what == collective::reduce_scatter; }
    std::size_t gives(int r) const {
        if (what == collective::barrier) return 0;
        if (what == collective::broadcast || what == collective::scatter) return r == root ? count : 0;
        return owns_in() ? length(r) : count;
    }
    std::size_t takes(int r) const {
        if (what == collective::barrier) return 0;
        if (what == collective::gather || what == collective::reduce) return r == root ? count : 0;
        return owns_out() ? length(r) : count;
    }
    word input(int r, std::size_t i) const {
        word x = (seed + static_cast<word>(r) * 0x10001 + i) * 0x9e3779b97f4a7c15ull;
        x ^= x >> 29;
        return x | word{1} << 32;
    }
    static word factor_of(int r) { return static_cast<word>(3 + r); }
    word fold(int ranks, std::size_t i) const {
        const auto leaf = [&](int r) { return how == mode::all_hooks ? factor_of(r) * input(r, i) : input(r, i); };
        word all = leaf(0);
        for (int r = 1; r < ranks; ++r) all = how == mode::ordered ? compose_maps{}(all, leaf(r)) : all + leaf(r);
        return how == mode::all_hooks && ranks == n ? all + static_cast<word>(1000 * n) : all;
    }
    word expected(int r, std::size_t i) const {
        const auto from_blocks = [&] {
            int b = 0;
            while (i - before(b) >= length(b)) ++b;
            return b;
        };
        switch (what) {
            case collective::broadcast:
                return input(root, i);
            case collective::scatter:
                return input(root, before(r) + i);
            case collective::gather:
            case collective::all_gather: {
                const int b = from_blocks();
                return input(b, i - before(b));
            }
            case collective::all_to_all: {
                const int b = from_blocks();
                return input(b, before(r) + i - before(b));
            }
            case collective::reduce_scatter:
                return fold(n, before(r) + i);
            case collective::inclusive_scan:
                return fold(r + 1, i);
            case collective::exclusive_scan:
                return fold(r, i);
            default:
                return fold(n, i);
        }
    }
    std::string wrong() {
        for (int r = 0; r < n; ++r) {
            const std::string at = "rank " + std::to_string(r) + ": ";
            for (std::size_t i = 0; i < takes(r); ++i) {
                if (what == collective::exclusive_scan && r == 0) break;
                const word want = expected(r, i);
                if (how == mode::epilogue) {
                    const auto got = narrow[index(r)]->data()[i], narrowed = halved{}(want, i);
                    if (got != narrowed)
                        return at + "element " + std::to_string(i) + " is " + std::to_string(got) + " instead of " +
                               std::to_string(narrowed);
                } else if (const word got = reinterpret_cast<const word*>(calls[index(r)].out)[i],
                    right = how == mode::epilogue_of_one_type ? marked{}(want, i) : want;
                    got != right) {
                    return at + "element " + std::to_string(i) + " is " + std::to_string(got) + " instead of " +
                           std::to_string(right);
                }
            }
            if (!in_place)
                for (std::size_t i = 0; i < gives(r); ++i)
                    if (ins[index(r)]->data()[i] != input(r, i))
                        return at + "input " + std::to_string(i) + " has changed";
            if (!ins[index(r)]->intact() || !outs[index(r)]->intact() ||
                (how == mode::epilogue && !narrow[index(r)]->intact()))
                return at + "memory beside a buffer has changed";
        }
        return {};
    }
};

/// Makes the job's buffers and calls. `hide`: some buffers are out of the others' reach.
void prepare(job& j, random_source& random, const kernel::workspace_layout& sizes, bool hide) {
    const auto n = index(j.n);
    for (int r = 0; r < j.n; ++r) {
        const std::size_t a = 8 * random.below(2), b = random.one_in(2) ? a : 8 - a;
        const std::size_t whole = j.in_place ? std::max(j.gives(r), j.takes(r)) : j.gives(r);
        j.ins.push_back(std::make_unique<buffer<word>>(whole, a));
        j.outs.push_back(std::make_unique<buffer<word>>(j.in_place ? 0 : j.takes(r), b));
        if (j.how == mode::epilogue)
            j.narrow.push_back(std::make_unique<buffer<std::uint32_t>>(j.takes(r), 4 * random.below(4)));
        word *in = j.ins.back()->data(), *out = j.in_place ? in : j.outs.back()->data();
        if (j.in_place && j.owns_in() && j.takes(r) == j.count) in += j.before(r);
        if (j.in_place && j.owns_out() && j.gives(r) == j.count) out += j.before(r);
        for (std::size_t i = 0; i < j.gives(r); ++i) in[i] = j.input(r, i);
        kernel::kernel_call c;
        c.in = reinterpret_cast<const std::byte*>(in);
        c.out = j.how == mode::epilogue ? reinterpret_cast<std::byte*>(j.narrow.back()->data())
                                        : reinterpret_cast<std::byte*>(out);
        c.in_where = {
            reinterpret_cast<std::uint64_t>(c.in), hide && random.one_in(3) ? kernel::shared_address::hidden : 0, 0};
        c.out_where = {
            reinterpret_cast<std::uint64_t>(c.out), hide && random.one_in(3) ? kernel::shared_address::hidden : 0, 0};
        c.count = j.count;
        c.offsets = j.offsets.empty() ? nullptr : j.offsets.data();
        c.fingerprint = j.seed | 1;
        c.root = j.root;
        c.channels = j.channels;
        c.user_blocks = j.row ? j.map.blocks : colls::owned(j.what) || j.what == collective::all_to_all ? j.n : 1;
        if (j.in_two_hops()) c.chunks = 2;
        if (j.row) {
            c.slots = j.map.slots.data();
            c.overwrites = j.map.overwrites.data();
            c.width = j.map.width;
            c.keeps_input = j.map.keeps_input;
            std::size_t longest = 0;
            for (int i = 0; i < c.user_blocks; ++i)
                longest = std::max(longest,
                    j.offsets.empty()
                        ? static_cast<std::size_t>(kernel::balanced(j.count, index(c.user_blocks), index(i)).count)
                        : j.length(i));
            c.chunk = std::min<std::uint64_t>(
                16 * (1 + j.seed % 3), kernel::chunk_within(sizes.scratch_bytes / (2 * index(c.width)), sizeof(word)));
            REQUIRE(2 * index(c.width) * kernel::slot_bytes(c.chunk, sizeof(word)) <= sizes.scratch_bytes);
            c.chunks = static_cast<std::int32_t>(kernel::chunks_needed(longest, index(j.channels), c.chunk));
        }
        j.calls.push_back(c);
    }
    REQUIRE(j.calls.size() == n);
}

template <collective C, class D, class Op, class E>
bool run_call(
    kernel::host_thread_group& g, const kernel::rank_handle& t, const job& j, int channel, const Op& op, const E& e) {
    const kernel::kernel_call& c = j.calls[index(t.rank)];
    kernel::load_call(g, t, c);
    if (!j.row) return kernel::run_eager<C, word, D>(g, channel, op, e);
    const kernel::erased_schedule<C> s{j.row->schedule};
    if (j.seed % 2 == 0) return kernel::run_schedule<word, D>(g, channel, s, op, e);
    // As a table of its own steps: what a kernel asks of a schedule beyond these, a table does not have.
    const int n = t.sizes.ranks, role = colls::rooted(C) ? colls::mod(t.rank - j.root + s.root(n), n) : t.rank;
    const std::vector<kernel::stored_step> steps = kernel::steps_of(s, role, n);
    return kernel::run_schedule<word, D>(g, channel, kernel::stored<C>(s, steps.data(), role, n), op, e);
}
template <collective C>
bool run_call(kernel::host_thread_group& g, const kernel::rank_handle& t, const job& j, int channel) {
    if (channel >= j.channels) return true;
    const colls::cuda::no_epilogue none;
    if constexpr (colls::reduces(C)) {
        const sum_or_compose op{j.how == mode::ordered};
        switch (j.how) {
            case mode::sum:
            case mode::ordered:
                return run_call<C, word>(g, t, j, channel, op, none);
            case mode::all_hooks:
                return run_call<C, word>(g, t, j, channel, weighed_sum{job::factor_of(t.rank)}, none);
            case mode::epilogue:
                return run_call<C, std::uint32_t>(g, t, j, channel, op, halved{});
            case mode::epilogue_of_one_type:
                return run_call<C, word>(g, t, j, channel, op, marked{});
        }
        return false;
    } else {
        if constexpr (C != collective::barrier) {
            if (j.how == mode::epilogue)
                return run_call<C, std::uint32_t>(g, t, j, channel, kernel::no_operator{}, halved{});
            if (j.how == mode::epilogue_of_one_type)
                return run_call<C, word>(g, t, j, channel, kernel::no_operator{}, marked{});
        }
        return run_call<C, word>(g, t, j, channel, kernel::no_operator{}, none);
    }
}
template <std::size_t... c>
bool run_any_call(
    kernel::host_thread_group& g, const kernel::rank_handle& t, const job& j, int channel, std::index_sequence<c...>) {
    bool ok = false;
    static_cast<void>(((static_cast<std::size_t>(j.what) == c &&
                           (ok = run_call<static_cast<collective>(c)>(g, t, j, channel), true)) ||
                       ...));
    return ok;
}
template <std::size_t... c>
kernel::slot_map map_any(collective what, const colls::any_schedule& s, int n, std::index_sequence<c...>) {
    kernel::slot_map m;
    static_cast<void>(
        ((static_cast<std::size_t>(what) == c &&
             (m = kernel::make_slot_map(kernel::erased_schedule<static_cast<collective>(c)>{s}, n), true)) ||
            ...));
    return m;
}
using all_collectives = std::make_index_sequence<colls::collective_count>;

/// Runs all jobs, one after the other, and checks their results. Each thread calls before(rank, job) ahead of each job.
template <class Before>
void run_and_check(host_ranks& group, std::deque<job>& jobs, const Before& before) {
    const bool ok = group.run([&](kernel::host_thread_group& g, const kernel::rank_handle& t, int channel) {
        int call = 0;
        for (const job& j : jobs) {
            before(t.rank, call++);
            if (!run_any_call(g, t, j, channel, all_collectives{})) return false;
        }
        return true;
    });
    for (int r = 0; r < group.size(); ++r) {
        const auto& report = group.report(r);
        INFO("rank " << r << " gave up: " << report.what << ", peer " << report.peer << ", round " << report.round
                     << ", block " << report.block);
        REQUIRE(report.what == 0);
    }
    REQUIRE(ok);
    std::size_t i = 0;
    for (job& j : jobs) {
        if (const std::string wrong = j.wrong(); !wrong.empty())
            FAIL("call " << i << ": " << j.describe() << ": " << wrong);
        ++i;
    }
    CHECK(i == jobs.size());
    jobs.clear();
}

void run_and_check(host_ranks& group, std::deque<job>& jobs) {
    run_and_check(group, jobs, [](int, int) {});
}

constexpr std::size_t scratch_bytes = 1 << 17, eager_bytes = 1 << 14;

/// A random call of the row's schedule, or on the eager path if there is none.
job drawn(random_source& random, collective what, const support::row* row, int n, int channels) {
    job j;
    j.what = what;
    j.row = row;
    j.n = n;
    j.seed = random.next();
    j.channels = random.between(1, channels);
    if (row) j.map = map_any(what, row->schedule, n, all_collectives{});
    const bool direct = row == nullptr || row->name == "direct";
    const bool in_order = !row || support::keeps_order(*row, n);
    if (colls::reduces(what)) {
        j.how = static_cast<mode>(random.below(5));
        if (j.how == mode::ordered && !in_order) j.how = mode::all_hooks;
    } else if (what != collective::barrier && random.one_in(3)) {
        j.how = random.one_in(2) ? mode::epilogue : mode::epilogue_of_one_type;
    }
    if (colls::rooted(what)) j.root = j.how == mode::ordered && !direct ? 0 : random.between(0, n - 1);
    const std::size_t ranks = index(n), limit = row ? 700 : 300;
    const std::size_t counts[] = {
        0, 1, ranks - 1, ranks, ranks + 1, 16 * ranks, 97, limit, random.below(static_cast<unsigned>(limit))};
    j.count = counts[random.below(9)];
    if (what == collective::all_to_all) j.count = (j.count + ranks - 1) / ranks * ranks;
    if (what == collective::barrier) j.count = 0;
    if ((what == collective::all_gather || what == collective::reduce_scatter) && random.one_in(4)) {
        j.offsets = {0};
        for (int b = 0; b < n; ++b)
            j.offsets.push_back(j.offsets.back() + random.below(static_cast<unsigned>(2 * limit / ranks + 1)));
        j.count = j.offsets.back();
    }
    j.in_place =
        j.how != mode::epilogue && what != collective::barrier && what != collective::all_to_all && random.one_in(3);
    return j;
}

}  // namespace

TEST_CASE("kernel executors: every schedule gives the results of the serial reference", "[cuda]") {
    struct shape {
        int n, channels, threads, times;
    };
    for (const shape s : {shape{1, 2, 2, 2}, {2, 2, 2, 3}, {3, 2, 2, 2}, {4, 1, 2, 2}, {5, 2, 1, 1}, {6, 1, 1, 1},
             {7, 1, 1, 1}, {8, 1, 1, 2}}) {
        INFO("n " << s.n);
        random_source random(static_cast<std::uint64_t>(s.n));
        host_ranks group(s.n, s.channels, s.threads, eager_bytes, scratch_bytes);
        std::deque<job> jobs;
        for (int time = 0; time < s.times; ++time)
            for (const support::row& r : support::all_schedules()) {
                if (!r.supports(s.n)) continue;
                const auto what = static_cast<collective>(r.collective);
                jobs.push_back(drawn(random, what, &r, s.n, s.channels));
                prepare(jobs.back(), random, group.sizes(), random.one_in(2));
                if (random.one_in(6)) {  // an eager call in between
                    jobs.push_back(drawn(random, what, nullptr, s.n, s.channels));
                    prepare(jobs.back(), random, group.sizes(), false);
                }
            }
        run_and_check(group, jobs);
    }
}

namespace {

/// Counts the bytes that it sends, and moves nothing now and then, or late.
class slow_transport : public support::queue_transport {
public:
    slow_transport(std::shared_ptr<support::queue_network> network, int rank, std::atomic<std::uint64_t>& sent)
        : queue_transport(std::move(network), rank), random_(static_cast<std::uint64_t>(rank)), sent_(sent) {}
    std::uint64_t send(
        int to, const colls::extend::message_label& label, const colls::extend::piece* pieces, int count) override {
        for (int i = 0; i < count; ++i) sent_ += pieces[i].bytes;
        return queue_transport::send(to, label, pieces, count);
    }
    void progress() override {
        if (random_.one_in(40)) std::this_thread::sleep_for(std::chrono::microseconds(random_.below(200)));
        if (!random_.one_in(3)) queue_transport::progress();
    }

private:
    random_source random_;
    std::atomic<std::uint64_t>& sent_;
};

/// For each channel of a rank a transport over queues. `sent`: bytes that each rank has sent.
make_transports by_queues(int n, int channels, std::deque<std::atomic<std::uint64_t>>& sent) {
    std::vector<std::shared_ptr<support::queue_network>> networks;
    for (int c = 0; c < channels; ++c) networks.push_back(std::make_shared<support::queue_network>(n));
    sent.resize(index(n));
    return [networks, &sent](int rank) {
        std::vector<std::unique_ptr<colls::extend::message_transport>> all;
        for (const auto& network : networks)
            all.push_back(std::make_unique<slow_transport>(network, rank, sent[index(rank)]));
        return all;
    };
}

}  // namespace

TEST_CASE("kernel executors: between hosts every schedule gives the results of the serial reference", "[cuda][far]") {
    struct shape {
        std::vector<int> hosts;
        int channels, threads;
        bool in_gpu = false;
    };
    for (const shape& s :
        {shape{{0, 1}, 2, 2}, {{0, 0, 1}, 2, 2}, {{0, 0, 1}, 2, 2, true}, {{0, 1, 2}, 1, 2}, {{0, 0, 1, 1}, 2, 1},
            {{0, 0, 1, 2, 2, 2}, 1, 1}, {{0, 1, 0, 1, 0}, 1, 2}, {{0, 0, 0, 0, 1, 1, 1, 1}, 1, 1}}) {
        const int n = static_cast<int>(s.hosts.size());
        INFO("n " << n << (s.in_gpu ? ", windows in memory of the GPU" : ""));
        random_source random(static_cast<std::uint64_t>(n + 900));
        std::deque<std::atomic<std::uint64_t>> sent;
        host_ranks group(n, s.channels, s.threads, eager_bytes, scratch_bytes);
        group.spread(s.hosts, 1 << 16, by_queues(n, s.channels, sent), {}, s.in_gpu);
        std::deque<job> jobs;
        for (const support::row& r : support::all_schedules()) {
            if (!r.supports(n)) continue;
            jobs.push_back(drawn(random, static_cast<collective>(r.collective), &r, n, s.channels));
            prepare(jobs.back(), random, group.sizes(), random.one_in(2));
        }
        run_and_check(group, jobs);
        group.part();
        for (const auto& bytes : sent) CHECK(bytes > 0);
    }
}

TEST_CASE("kernel executors: a proxy that sleeps is woken by a launch, by a refusal and by its end", "[cuda][far]") {
    // Without that it would sleep for an hour, and kernels give up after a minute.
    const kernel::proxy_naps for_long{.after = 0, .part = 1e15, .longest = 3600, .longest_with_graphs = 3600};
    random_source random(7);
    std::deque<std::atomic<std::uint64_t>> sent;
    host_ranks group(2, 1, 2, eager_bytes, scratch_bytes, 60);
    group.spread({0, 1}, 1 << 16, by_queues(2, 1, sent), for_long);
    const support::row* in_one_round = nullptr;
    for (const support::row& r : support::all_schedules())
        if (static_cast<collective>(r.collective) == collective::barrier && r.supports(2) && r.schedule.rounds(2) == 1)
            in_one_round = &r;
    REQUIRE(in_one_round != nullptr);
    for (std::uint64_t call = 1; call <= 5; ++call) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));  // most proxies sleep by now
        std::deque<job> jobs;
        jobs.push_back(drawn(random, collective::barrier, in_one_round, 2, 1));
        prepare(jobs.back(), random, group.sizes(), false);
        std::thread launching([&] {
            for (const int r : {0, 1})
                while (std::atomic_ref<std::uint64_t>(*group.handle(r).far.posted(0)).load(std::memory_order_acquire) <
                       call)
                    std::this_thread::yield();
            group.wake(false);
        });
        run_and_check(group, jobs);
        launching.join();
    }
    group.part();
}

namespace {

/// Has no memory left when it is to move something, and tells when it ends.
struct failing_transport final : colls::extend::message_transport {
    explicit failing_transport(std::atomic<int>& ended) : ended_(ended) {}
    ~failing_transport() override { ended_.fetch_add(1, std::memory_order_relaxed); }
    std::uint64_t send(int, const colls::extend::message_label&, const colls::extend::piece*, int) override {
        return 0;
    }
    std::uint64_t receive(int, const colls::extend::message_label&, const colls::extend::piece*, int) override {
        return 0;
    }
    std::uint64_t sent(int) const override { return 0; }
    std::uint64_t received(int) const override { return 0; }
    void abandon() override {}
    bool tell(int, const colls::extend::control_message&) override { return true; }
    void tell_all(const colls::extend::control_message&) override {}
    void progress() override { throw std::bad_alloc(); }
    void idle(double) override {}

private:
    std::atomic<int>& ended_;
};

}  // namespace

TEST_CASE("proxy: where it has no memory left its kernels give up, and its transports end at once", "[cuda][far]") {
    constexpr int channels = 2;
    std::atomic<int> ended{0};
    host_ranks group(2, channels, 1, eager_bytes, scratch_bytes);
    group.spread({0, 1}, 1 << 16, [&](int) {
        std::vector<std::unique_ptr<colls::extend::message_transport>> all;
        for (int c = 0; c < channels; ++c) all.push_back(std::make_unique<failing_transport>(ended));
        return all;
    });
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (ended < 2 * channels && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    CHECK(ended == 2 * channels);  // so that the ranks of other hosts learn it
    group.part();
    for (const int r : {0, 1})
        CHECK(group.report(r).order == kernel::poison_word(kernel::failure::failed, colls::none));
}

TEST_CASE("proxy: a message in memory of a GPU is cut where it has more pieces than may be, on both sides alike",
    "[cuda][far]") {
    std::deque<std::atomic<std::uint64_t>> sent;
    host_ranks group(2, 1, 1, eager_bytes, scratch_bytes);
    group.spread({0, 1}, 1 << 16, by_queues(2, 1, sent), {}, true);
    const auto value_at = [](std::uint64_t post, int from, int i) {
        return static_cast<std::byte>(50 * from + 7 * i + static_cast<int>(post));
    };
    // A piece of i bytes each, but for some: their places differ from rank to rank.
    const auto bytes_of = [](int i) { return static_cast<std::uint32_t>(i % 5 == 4 ? 0 : i + 1); };
    const auto place_of = [](int rank, int i) { return static_cast<std::uint32_t>(128 * (rank == 0 ? i : 100 - i)); };
    std::uint64_t post = 0;
    for (const int pieces : {0, 1, 16, 20, 21, 100}) {
        for (const int r : {0, 1}) {
            const kernel::far_memory& far = group.handle(r).far;
            kernel::far_post& p = far.post(0, post);
            p.value = post + 1;
            p.fingerprint = 5;
            p.round = 0;
            p.ports = 1;
            p.sends[0] = p.receives[0] = {1 - r, 0, pieces};
            for (int i = 0; i < pieces; ++i) {
                for (const bool receives : {false, true})
                    far.pieces(0, post, receives)[i] = {place_of(r, i), bytes_of(i)};
                std::fill_n(far.window(0, post, false) + place_of(r, i), bytes_of(i), value_at(post, r, i));
            }
            std::atomic_ref(*far.posted(0)).store(post + 1, std::memory_order_release);
        }
        ++post;
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        const auto reaches_post = [&](std::uint64_t* at) {
            while (std::atomic_ref(*at).load(std::memory_order_acquire) != post)
                if (std::chrono::steady_clock::now() > until) return false;
            return true;
        };
        for (const int r : {0, 1}) {
            INFO("post " << post << " of rank " << r);
            REQUIRE(reaches_post(group.handle(r).far.arrived(0, 1 - r)));
            for (int i = 0; i < pieces; ++i)
                for (std::uint32_t b = 0; b < bytes_of(i); ++b)
                    REQUIRE(group.handle(r).far.window(0, post - 1, true)[place_of(r, i) + b] ==
                            value_at(post - 1, 1 - r, i));
        }
        for (const int r : {0, 1}) REQUIRE(reaches_post(group.handle(r).far.done(0)));
    }
    group.part();
}

TEST_CASE(
    "proxy: naps are a part of the time that nothing happened, and shorter once there are graphs", "[cuda][far]") {
    const kernel::proxy_naps naps;
    CHECK(naps.length(5e-3, false) == Approx(1e-4));
    CHECK(naps.length(1, false) == naps.longest);
    CHECK(naps.length(1, true) == naps.longest_with_graphs);
    CHECK(naps.longest_with_graphs < naps.longest);
    CHECK(naps.length(1e-3, true) < naps.longest_with_graphs);
}

TEST_CASE("kernel executors: hierarchies of hosts of different sizes, some of whose slots stand for no block",
    "[cuda][far]") {
    for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 1, 2, 2, 2}, {0, 1, 0, 1, 0}, {0, 1, 1, 1}}) {
        const int n = static_cast<int>(hosts.size());
        INFO("n " << n);
        const colls::host_hierarchy<colls::circulant<>> family{colls::host_map(hosts)};
        std::vector<support::row> rows;
        const auto add = [&]<collective c>(std::integral_constant<collective, c>) {
            if constexpr (colls::provides<colls::host_hierarchy<colls::circulant<>>, c>)
                rows.push_back({"by hosts", c, colls::any_schedule(colls::schedule_of<c>(family))});
            else
                rows.push_back({"by hosts", c,
                    colls::any_schedule(
                        colls::schedule_of<c>(colls::host_hierarchy<colls::tree<2>>{colls::host_map(hosts)}))});
        };
        add(std::integral_constant<collective, collective::broadcast>());
        add(std::integral_constant<collective, collective::scatter>());
        add(std::integral_constant<collective, collective::gather>());
        add(std::integral_constant<collective, collective::all_gather>());
        add(std::integral_constant<collective, collective::reduce>());
        add(std::integral_constant<collective, collective::reduce_scatter>());
        add(std::integral_constant<collective, collective::all_reduce>());
        constexpr int channels = 2;
        random_source random(static_cast<std::uint64_t>(n + 70));
        std::deque<std::atomic<std::uint64_t>> sent;
        host_ranks group(n, channels, 1, eager_bytes, scratch_bytes);
        group.spread(hosts, 1 << 16, by_queues(n, channels, sent));
        std::deque<job> jobs;
        for (int time = 0; time < 6; ++time)
            for (const support::row& r : rows) {
                jobs.push_back(drawn(random, static_cast<collective>(r.collective), &r, n, channels));
                prepare(jobs.back(), random, group.sizes(), random.one_in(2));
            }
        run_and_check(group, jobs);
        group.part();
    }
}

TEST_CASE(
    "kernel executors: messages between ranks, within hosts and between them, beside collective calls", "[cuda][far]") {
    struct shape {
        std::vector<int> hosts;
        int channels, threads;
        bool in_gpu = false;
    };
    for (const shape& s : {shape{{0, 0}, 2, 3}, {{0, 1}, 2, 3}, {{0, 1}, 1, 2, true}, {{0, 0, 0}, 1, 2},
             {{0, 0, 1}, 1, 2}, {{0, 1, 0, 1, 2}, 2, 2}}) {
        const int n = static_cast<int>(s.hosts.size());
        const bool spread = s.hosts.back() != 0;
        INFO("n " << n << ", between hosts: " << spread);
        random_source random(static_cast<std::uint64_t>(n + 40));
        std::deque<std::atomic<std::uint64_t>> sent;
        host_ranks group(n, s.channels, s.threads, eager_bytes, scratch_bytes);
        // Places for pieces of 128 bytes.
        if (spread) group.spread(s.hosts, 1 << 12, by_queues(n, s.channels, sent), {}, s.in_gpu);
        const support::row ring{"ring", support::verb::all_reduce,
            colls::any_schedule(colls::schedule_of<collective::all_reduce>(colls::ring{}))};
        for (int round = 0; round < 6; ++round) {
            struct message_between {
                int from, to;
                std::unique_ptr<buffer<unsigned char>> out, in;
            };
            std::vector<message_between> all;
            for (int i = 0; i < (round == 5 ? 200 : round == 4 ? 1 : 4 * n); ++i) {
                // In the last round more than a launch brings with it; in the one before, one alone.
                const int from = round >= 4 ? 0 : static_cast<int>(random.below(index(n))),
                          to = round >= 4 ? n - 1 : static_cast<int>(random.below(index(n)));
                std::size_t bytes = random.below(round == 5 ? 200 : random.one_in(4) ? 60'000 : 3'000);
                if (random.one_in(5)) bytes = 0;
                if (round == 4) bytes = 3'000;

                all.push_back({from, to, std::make_unique<buffer<unsigned char>>(bytes, random.below(16)),
                    std::make_unique<buffer<unsigned char>>(bytes, random.below(16))});
                for (std::size_t b = 0; b < bytes; ++b)
                    all.back().out->data()[b] = static_cast<unsigned char>(random.below(256));
            }
            // Each rank lists its messages on its own; some are in memory that its peers do not reach.
            std::vector<std::vector<kernel::message_list>> launches(index(n));
            for (int r = 0; r < n; ++r) {
                std::vector<kernel::message> sends, receives;
                for (auto& m : all) {
                    const auto at = [](auto& b) { return reinterpret_cast<std::byte*>(b->data()); };
                    const bool hidden =
                        random.one_in(2) && m.from != m.to && s.hosts[index(m.from)] == s.hosts[index(m.to)];
                    if (m.from == r)
                        sends.push_back({at(m.out), m.out->size(), m.to,
                            static_cast<std::uint16_t>(
                                hidden ? kernel::shared_address::hidden : kernel::shared_address::absolute)});
                    if (m.to == r) receives.push_back({at(m.in), m.in->size(), m.from});
                }
                kernel::message_order(r, n, s.channels, std::move(sends), std::move(receives), [&](int peer) {
                    return s.hosts[index(peer)] != s.hosts[index(r)];
                }).for_each_launch([&](const kernel::message_list& l, int) { launches[index(r)].push_back(l); });
            }
            std::deque<job> jobs;
            jobs.push_back(drawn(random, collective::all_reduce, &ring, n, s.channels));
            prepare(jobs.back(), random, group.sizes(), false);
            std::vector<std::vector<unsigned char>> wanted;
            for (auto& m : all) wanted.emplace_back(m.out->data(), m.out->data() + m.out->size());
            // After a collective call, whose last messages may still be under way, and before that of the next round. A
            // rank of one channel writes to what it has sent as soon as its part is over.
            REQUIRE(group.run([&](auto& g, const kernel::rank_handle& h, int channel) {
                bool well = run_any_call(g, h, jobs[0], channel, all_collectives{});
                well = group.run_messages(g, h.rank, channel, launches[index(h.rank)]) && well;
                for (auto& m : all)
                    if (well && s.channels == 1 && m.from == h.rank && g.index() == 0)
                        std::memset(m.out->data(), 0xee, m.out->size());
                return well;
            }));
            for (std::size_t i = 0; i < all.size(); ++i) {
                auto& m = all[i];
                INFO("from " << m.from << " to " << m.to << ", " << m.in->size() << " bytes");
                REQUIRE(std::equal(wanted[i].begin(), wanted[i].end(), m.in->data()));
                REQUIRE((m.in->intact() && m.out->intact()));
            }
            REQUIRE(jobs[0].wrong() == "");
        }
        if (spread) group.part();
    }
}

namespace {

/// Ranks that wait for seconds: it sleeps between two looks, where the others would take the time of both cores.
struct patient_group : kernel::host_thread_group {
    using kernel::host_thread_group::host_thread_group;
    static void pause() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }
};
static_assert(kernel::thread_group<patient_group>);

}  // namespace

// Each of these ranks has more peers than shared memory has lanes, or than windows usually have places.
TEST_CASE("kernel executors: messages with more ranks than have lanes in shared memory", "[cuda][far]") {
    for (const bool spread : {false, true}) {
        // Within a host all send to all; between hosts, where each rank is alone on its own, the last one hears all.
        const int n = spread ? 131 : 66, last = n - 1;
        INFO("n " << n);
        std::vector<int> hosts(index(n));
        std::iota(hosts.begin(), hosts.end(), 0);
        std::deque<std::atomic<std::uint64_t>> sent;
        host_ranks group(n, 1, 1, 128, 64 << 10);
        if (spread) group.spread(hosts, 1 << 15, by_queues(n, 1, sent));
        const auto number = [n](int from, int to) { return static_cast<std::uint32_t>(from * n + to); };
        std::vector<std::vector<std::uint32_t>> out(index(n)), in(index(n), std::vector<std::uint32_t>(index(n)));
        for (int r = 0; r < n; ++r)
            for (int to = 0; to < n; ++to) out[index(r)].push_back(number(r, to));
        std::vector<std::vector<kernel::message_list>> launches(index(n));
        for (int r = 0; r < n; ++r) {
            std::vector<kernel::message> sends, receives;
            const auto word_of = [r](auto& of, int peer) {
                return reinterpret_cast<std::byte*>(&of[index(r)][index(peer)]);
            };
            for (int peer = 0; peer < n; ++peer) {
                const auto region = static_cast<std::uint16_t>(!spread && (r + peer) % 3 == 0 && peer != r
                                                                   ? kernel::shared_address::hidden
                                                                   : kernel::shared_address::absolute);
                if (!spread || peer == last) sends.push_back({word_of(out, peer), 4, peer, region});
                if (!spread || r == last) receives.push_back({word_of(in, peer), 4, peer});
            }
            const kernel::message_order order(
                r, n, 1, std::move(sends), std::move(receives), [&](int peer) { return spread && peer != r; });
            if (r == last) CHECK(order.list().lanes > kernel::most_messages);
            if (r == last && spread) CHECK(group.handle(r).far.layout.places() >= static_cast<unsigned>(last));
            order.for_each_launch([&](const kernel::message_list& l, int) { launches[index(r)].push_back(l); });
        }
        REQUIRE(group.run<patient_group>([&](auto& g, const kernel::rank_handle& h, int channel) {
            return group.run_messages(g, h.rank, channel, launches[index(h.rank)]);
        }));
        for (int to = 0; to < n; ++to)
            for (int from = 0; from < n && (!spread || to == last); ++from)
                REQUIRE(in[index(to)][index(from)] == number(from, to));
        if (spread) group.part();
    }
}

TEST_CASE("kernel executors: each byte of a hierarchy crosses the network once for a host", "[cuda][far]") {
    struct shape {
        int hosts, each;
    };
    for (const shape s : {shape{2, 2}, {3, 2}, {4, 1}, {2, 3}}) {
        const int n = s.hosts * s.each;
        INFO(s.hosts << " hosts of " << s.each);
        std::vector<int> hosts;
        for (int r = 0; r < n; ++r) hosts.push_back(r / s.each);
        constexpr int channels = 2;
        std::deque<std::atomic<std::uint64_t>> sent;
        host_ranks group(n, channels, 2, eager_bytes, scratch_bytes);
        group.spread(hosts, 1 << 16, by_queues(n, channels, sent));
        const support::row row{"hierarchical", support::verb::all_reduce,
            colls::any_schedule(
                colls::schedule_of<collective::all_reduce>(colls::hierarchical<colls::direct, colls::ring>{s.each}))};
        random_source random(static_cast<std::uint64_t>(n));
        std::deque<job> jobs;
        jobs.push_back(drawn(random, collective::all_reduce, &row, n, channels));
        job& j = jobs.back();
        j.how = mode::sum;
        j.channels = channels;
        j.offsets.clear();
        j.count = index(n) * 120;
        const std::uint64_t bytes = j.count * sizeof(word);
        prepare(j, random, group.sizes(), false);
        run_and_check(group, jobs);
        group.part();
        const auto h = static_cast<std::uint64_t>(s.hosts), g = static_cast<std::uint64_t>(s.each);
        for (const auto& b : sent) CHECK(b == 2 * (h - 1) * bytes / h / g);
    }
}

TEST_CASE("kernel executors: the eager path gives the results of the serial reference", "[cuda]") {
    for (const int n : {1, 2, 3, 4, 7, 8}) {
        INFO("n " << n);
        random_source random(static_cast<std::uint64_t>(n + 100));
        host_ranks group(n, n < 5 ? 2 : 1, 2, eager_bytes, 128);
        std::deque<job> jobs;
        for (int i = 0; i < 200; ++i) {
            jobs.push_back(
                drawn(random, static_cast<collective>(i % colls::collective_count), nullptr, n, group.channels()));
            prepare(jobs.back(), random, group.sizes(), false);
        }
        run_and_check(group, jobs);
    }
}

namespace {

enum class way { pulled, eager, eager_in_two_hops };
constexpr way all_ways[] = {way::pulled, way::eager, way::eager_in_two_hops};
bool is_eager(way how) { return how == way::eager || how == way::eager_in_two_hops; }

/// One all_reduce of all ranks, by the ring or on the eager path, with a fingerprint for each rank; 0: the rank makes
/// no call.
struct failing_call {
    static constexpr std::size_t count = 500;
    explicit failing_call(const std::vector<std::uint64_t>& of_ranks)
        : fingerprints(of_ranks), map(kernel::make_slot_map(ring_schedule{}, static_cast<int>(of_ranks.size()))) {
        for (std::size_t r = 0; r < fingerprints.size(); ++r) {
            data.emplace_back(count, word{r});
            kernel::kernel_call c;
            c.in = reinterpret_cast<const std::byte*>(data.back().data());
            c.out = reinterpret_cast<std::byte*>(data.back().data());
            c.in_where = c.out_where = {reinterpret_cast<std::uint64_t>(c.in), 0, 0};
            c.count = count;
            c.fingerprint = fingerprints[r];
            c.chunk = 512;
            c.slots = map.slots.data();
            c.overwrites = map.overwrites.data();
            c.width = map.width;
            c.user_blocks = map.blocks;
            calls.push_back(c);
        }
    }
    bool run(patient_group& g, const kernel::rank_handle& t, way how) {
        kernel::kernel_call c = calls[index(t.rank)];
        if (c.fingerprint == 0) return true;
        const colls::cuda::no_epilogue none;
        if (is_eager(how)) c.user_blocks = 1;
        if (how == way::eager_in_two_hops) c.chunks = 2;
        kernel::load_call(g, t, c);
        if (is_eager(how)) return kernel::run_eager<collective::all_reduce, word, word>(g, 0, colls::sum, none);
        return kernel::run_schedule<word, word>(g, 0, ring_schedule{}, colls::sum, none);
    }
    using ring_schedule = colls::schedule_for<colls::ring, collective::all_reduce>;
    std::vector<std::uint64_t> fingerprints;
    kernel::slot_map map;
    std::deque<std::vector<word>> data;
    std::vector<kernel::kernel_call> calls;
};

}  // namespace

TEST_CASE("kernel executors: the other ranks time out for a rank that makes no call", "[cuda]") {
    for (const way how : all_ways) {
        host_ranks group(3, 1, 2, eager_bytes, scratch_bytes, 3);
        failing_call t({7, 7, 0});
        CHECK_FALSE(group.run<patient_group>(
            [&](patient_group& g, const kernel::rank_handle& handle, int) { return t.run(g, handle, how); }));
        for (const int r : {0, 1}) {
            CHECK(group.report(r).what == static_cast<std::uint64_t>(kernel::failure::late));
            CHECK(group.report(r).rank == r);
            CHECK(group.report(r).peer == 2);
            CHECK(group.report(r).round == colls::none);
        }
        CHECK(group.report(2).what == 0);
        // A rank that has given up fails at once in the next call.
        std::atomic<int> gave_up{0};
        group.run<patient_group>([&](patient_group& g, const kernel::rank_handle& handle, int) {
            if (handle.rank != 2 && !t.run(g, handle, how)) ++gave_up;
            return true;
        });
        CHECK(gave_up == 4);
    }
}

TEST_CASE("kernel executors: a timeout without end is one, in nanoseconds too", "[cuda]") {
    CHECK(kernel::nanoseconds_of(2.5) == 2'500'000'000u);
    for (const double seconds : {1e9, 1e30, std::numeric_limits<double>::infinity()})
        CHECK(kernel::nanoseconds_of(seconds) == ~std::uint64_t{0});
}

TEST_CASE("kernel executors: a rank that waits gives up when its host orders it", "[cuda]") {
    for (const way how : all_ways) {
        host_ranks group(3, 1, 2, eager_bytes, scratch_bytes);  // the timeout is 300 s
        failing_call t({7, 7, 0});
        CHECK(group.run<patient_group>([&](patient_group& g, const kernel::rank_handle& handle, int) {
            if (handle.rank != 2) return !t.run(g, handle, how);
            for (const int r : {0, 1}) group.order(r, kernel::failure::died, 2);
            return true;
        }));
        const std::uint64_t died = static_cast<std::uint64_t>(kernel::failure::died);
        for (const int r : {0, 1}) {
            CHECK(group.report(r).what == died);
            CHECK(group.report(r).peer == 2);
        }
        CHECK(group.report(2).what == 0);
    }
}

TEST_CASE("kernel executors: a refused call fails at the ranks that wait for long", "[cuda]") {
    host_ranks group(2, 1, 2, eager_bytes, scratch_bytes);  // the timeout is 300 s
    failing_call t({7, 7});
    const auto run = [&](double seconds) {
        return group.run<patient_group>([&](patient_group& g, const kernel::rank_handle& handle, int) {
            if (handle.rank == 0) return t.run(g, handle, way::pulled);
            if (g.index() == 0) group.refuse(1, kernel::poison_word(kernel::failure::refused, 1));
            std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
            if (seconds > 1) return false;
            if (g.index() == 0) group.refuse(1, 0);
            return t.run(g, handle, way::pulled);
        });
    };
    CHECK(run(0.2));  // the rank makes the call in time
    CHECK(group.report(0).what == 0);
    CHECK_FALSE(run(1.4));
    CHECK(group.report(0).what == static_cast<std::uint64_t>(kernel::failure::refused));
    CHECK(group.report(0).peer == 1);
    CHECK(group.report(0).told_by == 1);
    CHECK(group.report(1).what == 0);
}

TEST_CASE("kernel executors: a rank that is late fails for the reason of the rank that gave up", "[cuda]") {
    for (const way how : all_ways) {
        host_ranks group(3, 1, 2, eager_bytes, scratch_bytes, 3);
        failing_call t({7, 7, 7});
        const auto call_on = [&](std::vector<int> ranks) {
            group.run<patient_group>([&](patient_group& g, const kernel::rank_handle& handle, int) {
                return std::count(ranks.begin(), ranks.end(), handle.rank) == 0 || t.run(g, handle, how);
            });
        };
        call_on({0});
        call_on({1, 2});
        if (how == way::eager) {  // rank 0 has sent all its words: the others miss it in their next call only
            for (const int r : {1, 2}) CHECK(group.report(r).what == 0);
            call_on({1, 2});
        }
        CHECK(group.report(0).what == static_cast<std::uint64_t>(kernel::failure::late));
        CHECK(group.report(0).told_by == colls::none);
        for (const int r : {1, 2}) {
            INFO("rank " << r << ", way " << static_cast<int>(how));
            CHECK(group.report(r).what == static_cast<std::uint64_t>(kernel::failure::late));
            CHECK(group.report(r).told_by != colls::none);  // without a timeout of its own
        }
    }
}

namespace {

/// Reads only when may_read() is true, so that the test decides when a rank gives up.
struct late_reader : patient_group {
    using patient_group::patient_group;
    static inline std::function<bool()> may_read;
    static kernel::quad load(const kernel::quad* from) {
        while (!may_read()) pause();
        return kernel::host_thread_group::load(from);
    }
};
static_assert(kernel::thread_group<late_reader>);

}  // namespace

// The root gives up while its data is being read. It may overwrite its data then, so the reader must fail too.
TEST_CASE("kernel executors: a rank fails if the peer that it reads from gives up", "[cuda]") {
    constexpr int n = 2;
    constexpr std::size_t count = 600;
    using schedule = colls::schedule_for<colls::direct, collective::broadcast>;
    const kernel::slot_map map = kernel::make_slot_map(schedule{}, n);
    host_ranks group(n, 1, 2, eager_bytes, scratch_bytes, 3);
    late_reader::may_read = [&] { return kernel::host_thread_group::acquire(&group.report(0).what) != 0; };
    std::vector<std::vector<word>> data(n, std::vector<word>(count, 5));
    CHECK_FALSE(group.run<late_reader>([&](late_reader& g, const kernel::rank_handle& t, int) {
        kernel::kernel_call c;
        c.in = c.out = reinterpret_cast<std::byte*>(data[index(t.rank)].data());
        c.in_where = c.out_where = {reinterpret_cast<std::uint64_t>(c.in), 0, 0};
        c.count = count;
        c.chunk = 1024;
        c.slots = map.slots.data();
        c.overwrites = map.overwrites.data();
        c.width = map.width;
        c.user_blocks = map.blocks;
        kernel::load_call(g, t, c);
        return kernel::run_schedule<word, word>(g, 0, schedule{}, kernel::no_operator{}, colls::cuda::no_epilogue{});
    }));
    CHECK(group.report(0).what == static_cast<std::uint64_t>(kernel::failure::late));
    CHECK(group.report(0).peer == 1);
    CHECK(group.report(1).what == static_cast<std::uint64_t>(kernel::failure::late));
    CHECK(group.report(1).told_by == 0);
    late_reader::may_read = nullptr;
}

// Rank 0 gives up while rank 2 reads its message, and that of rank 1, which does not: rank 2 looks at both afterwards.
TEST_CASE("kernel executors: a receiver fails if one of its senders gives up while it reads", "[cuda]") {
    constexpr int n = 3;
    host_ranks group(n, 1, 2, eager_bytes, scratch_bytes, 60);
    std::atomic<bool> ordered{false};
    late_reader::may_read = [&] {
        if (!ordered.exchange(true)) group.order(0, kernel::failure::aborted, 0);
        return kernel::host_thread_group::acquire(&group.report(0).what) != 0;
    };
    std::vector<std::vector<kernel::quad>> data(n, std::vector<kernel::quad>(150)), got = data;
    const auto at = [](auto& of, int r) { return reinterpret_cast<std::byte*>(of[index(r)].data()); };
    CHECK_FALSE(group.run<late_reader>([&](late_reader& g, const kernel::rank_handle& t, int channel) {
        std::vector<kernel::message> sends, receives;
        const std::uint64_t bytes = 150 * sizeof(kernel::quad);
        if (t.rank < 2) sends.push_back({at(data, t.rank), bytes, 2});
        for (int r = 0; r < 2 && t.rank == 2; ++r) receives.push_back({at(got, r), bytes, r});
        kernel::load_call(g, t, {});
        const kernel::message_order order(t.rank, n, 1, sends, receives, [](int) { return false; });
        bool well = true;
        order.for_each_launch(
            [&](const kernel::message_list& list, int) { well = kernel::run_messages(g, channel, list); });
        return well;
    }));
    CHECK(group.report(0).what == static_cast<std::uint64_t>(kernel::failure::aborted));
    CHECK(group.report(2).what == static_cast<std::uint64_t>(kernel::failure::aborted));
    CHECK(group.report(2).told_by == 0);
    late_reader::may_read = nullptr;
}

TEST_CASE("kernel executors: a message shorter, or longer, than its receiver expects is a mismatch", "[cuda]") {
    constexpr std::uint64_t most = 4096;
    for (const std::uint64_t sent : {most / 2, most}) {
        host_ranks group(2, 1, 2, eager_bytes, scratch_bytes);
        std::vector<kernel::quad> from(most / sizeof(kernel::quad)), to(from);
        CHECK_FALSE(group.run<patient_group>([&](patient_group& g, const kernel::rank_handle& t, int channel) {
            std::vector<kernel::message> sends, receives;
            if (t.rank == 0)
                sends.push_back({reinterpret_cast<std::byte*>(from.data()), sent, 1});
            else
                receives.push_back({reinterpret_cast<std::byte*>(to.data()), most + most / 2 - sent, 0});
            kernel::load_call(g, t, {});
            const kernel::message_order order(t.rank, 2, 1, sends, receives, [](int) { return false; });
            bool well = true;
            order.for_each_launch(
                [&](const kernel::message_list& list, int) { well = kernel::run_messages(g, channel, list); });
            return well;
        }));
        CHECK(group.report(1).what == static_cast<std::uint64_t>(kernel::failure::mismatch));
        CHECK(group.report(1).peer == 0);
    }
}

// Flags repeat after 2^32 eager calls: words that were written 2^32 calls ago must not pass for new ones.
TEST_CASE("kernel executors: eager flags start again after 2^32 calls", "[cuda]") {
    for (const int n : {2, 3}) {
        random_source random(static_cast<std::uint64_t>(n + 300));
        host_ranks group(n, 2, 2, eager_bytes, 128);
        for (int r = 0; r < n; ++r)
            for (int b = 0; b < group.channels(); ++b) {
                kernel::channel_of(group.handle(r), r, b).eager_calls = 0xfffffff9u;
                for (const unsigned parity : {0u, 1u}) {
                    std::uint64_t* const slot = kernel::eager_slot_of(group.handle(r), r, b, 0, parity);
                    for (std::uint64_t i = 0; i < group.sizes().eager_bytes_of_channel() / 16; ++i)
                        slot[i] = std::uint64_t{2 + parity} << 32 | 12345;
                }
            }
        std::deque<job> jobs;
        for (int i = 0; i < 24; ++i) {
            // In the first calls only the root sends data: old words stay in the slots of the other ranks until the
            // flags start again.
            jobs.push_back(drawn(random, i < 6 ? collective::broadcast : collective::all_reduce, nullptr, n, 1));
            jobs.back().channels = group.channels();  // all channels come to the last flag in the same call
            jobs.back().root = 0;
            jobs.back().count = 280;
            prepare(jobs.back(), random, group.sizes(), false);
        }
        // One rank is late then, so that the others look at its slots before it has sent anything.
        run_and_check(group, jobs, [&](int rank, int call) {
            if (rank == n - 1 && (call == 6 || call == 7)) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        });
        for (int r = 0; r < n; ++r)
            CHECK(kernel::channel_of(group.handle(r), r, 0).eager_calls == 0xfffffff9u + 24 + 2);
    }
}

TEST_CASE("kernel executors: all ranks report a rank that makes another call", "[cuda]") {
    for (const way how : all_ways) {
        host_ranks group(3, 1, 2, eager_bytes, scratch_bytes);
        failing_call t({7, 9, 7});
        CHECK_FALSE(group.run<patient_group>(
            [&](patient_group& g, const kernel::rank_handle& handle, int) { return t.run(g, handle, how); }));
        int found = 0;
        for (const int r : {0, 1, 2}) {
            const auto& report = group.report(r);
            CHECK(report.what == static_cast<std::uint64_t>(kernel::failure::mismatch));
            CHECK(report.own_fingerprint == (r == 1 ? 9u : 7u));
            if (report.told_by != colls::none) {  // told by a rank that reports the same peer
                REQUIRE(report.told_by != r);
                CHECK(report.peer == group.report(report.told_by).peer);
                CHECK(report.fingerprint_of_peer == 0);
                continue;
            }
            ++found;
            CHECK((r == 1 ? report.peer != 1 : report.peer == 1));
            CHECK(report.fingerprint_of_peer == (r == 1 ? 7u : 9u));
        }
        CHECK(found > 0);
    }
}

TEST_CASE("kernel executors: small floats are folded in float, and rounded once", "[cuda]") {
    using colls::bfloat16;
    constexpr int n = 4;
    constexpr std::size_t count = 300;
    const auto s = colls::schedule_of<collective::all_reduce>(colls::one_shot{});
    const kernel::slot_map map = kernel::make_slot_map(s, n);
    host_ranks group(n, 1, 2, eager_bytes, 1 << 14);
    const auto input = [](int r, std::size_t i) {
        return bfloat16(r == 0 ? 256.0f : 1.0f + 0.0078125f * static_cast<float>(i % 7));
    };
    for (const bool eager : {false, true}) {
        std::vector<std::vector<bfloat16>> in(n, std::vector<bfloat16>(count)), out = in;
        for (int r = 0; r < n; ++r)
            for (std::size_t i = 0; i < count; ++i) in[index(r)][i] = input(r, i);
        CHECK(group.run([&](kernel::host_thread_group& g, const kernel::rank_handle& t, int) {
            kernel::kernel_call c;
            c.in = reinterpret_cast<const std::byte*>(in[index(t.rank)].data());
            c.out = reinterpret_cast<std::byte*>(out[index(t.rank)].data());
            c.in_where = {reinterpret_cast<std::uint64_t>(c.in), 0, 0};
            c.out_where = {reinterpret_cast<std::uint64_t>(c.out), 0, 0};
            c.count = count;
            c.chunk = 512;
            c.slots = map.slots.data();
            c.overwrites = map.overwrites.data();
            c.width = map.width;
            const colls::cuda::no_epilogue none;
            kernel::load_call(g, t, c);
            return eager ? kernel::run_eager<collective::all_reduce, bfloat16, bfloat16>(g, 0, colls::sum, none)
                         : kernel::run_schedule<bfloat16, bfloat16>(g, 0, s, colls::sum, none);
        }));
        std::size_t wrong = 0, rounded_more_often = 0;
        for (std::size_t i = 0; i < count; ++i) {
            float sum = 0;
            bfloat16 stepwise = input(0, i);
            for (int r = 0; r < n; ++r) sum += float(input(r, i));
            for (int r = 1; r < n; ++r) stepwise += input(r, i);
            for (int r = 0; r < n; ++r) wrong += out[index(r)][i].bits != bfloat16(sum).bits;
            rounded_more_often += stepwise.bits != bfloat16(sum).bits;
        }
        CHECK(wrong == 0);
        CHECK(rounded_more_often > 0);  // or this input could not show the difference
    }
}

TEST_CASE("kernel executors: buffers at every offset from 16 bytes, of blocks that do not divide", "[cuda]") {
    using element = std::uint16_t;
    constexpr int n = 3;
    constexpr std::size_t count = 433, offsets = 16 / sizeof(element);
    const auto s = colls::schedule_of<collective::all_reduce>(colls::direct{});
    const kernel::slot_map map = kernel::make_slot_map(s, n);
    host_ranks group(n, 1, 2, eager_bytes, 1 << 14);
    const auto input = [](int r, std::size_t i) {
        return static_cast<element>(i * 2654435761u >> 7 ^ static_cast<unsigned>(r) * 40503u);
    };
    // One call for each pair of offsets, of the first rank's input and of the last one's output; those of the others
    // differ from them.
    const auto offset_of = [](std::size_t call, int r, bool out) {
        const std::size_t all = out ? call / offsets + 3 * static_cast<std::size_t>(n - 1 - r)
                                    : call % offsets + 5 * static_cast<std::size_t>(r);
        return all % offsets * sizeof(element);
    };
    std::deque<buffer<element>> in, out;
    for (std::size_t call = 0; call < offsets * offsets; ++call)
        for (int r = 0; r < n; ++r) {
            in.emplace_back(count, offset_of(call, r, false));
            out.emplace_back(count, offset_of(call, r, true));
            for (std::size_t i = 0; i < count; ++i) in.back().data()[i] = input(r, i);
        }
    CHECK(group.run([&](kernel::host_thread_group& g, const kernel::rank_handle& t, int) {
        bool ok = true;
        for (std::size_t call = 0; ok && call < offsets * offsets; ++call) {
            kernel::kernel_call c;
            c.in = reinterpret_cast<const std::byte*>(in[call * n + index(t.rank)].data());
            c.out = reinterpret_cast<std::byte*>(out[call * n + index(t.rank)].data());
            c.in_where = {reinterpret_cast<std::uint64_t>(c.in), 0, 0};
            c.out_where = {reinterpret_cast<std::uint64_t>(c.out), 0, 0};
            c.count = count;
            c.chunk = 512;
            c.slots = map.slots.data();
            c.overwrites = map.overwrites.data();
            c.width = map.width;
            c.user_blocks = map.blocks;
            kernel::load_call(g, t, c);
            ok = kernel::run_schedule<element, element>(g, 0, s, colls::sum, colls::cuda::no_epilogue{});
        }
        return ok;
    }));
    std::size_t wrong = 0;
    for (std::size_t at = 0; at < out.size(); ++at) {
        for (std::size_t i = 0; i < count; ++i)
            wrong += out[at].data()[i] != static_cast<element>(input(0, i) + input(1, i) + input(2, i));
        wrong += !in[at].intact() || !out[at].intact();
    }
    CHECK(wrong == 0);
}
