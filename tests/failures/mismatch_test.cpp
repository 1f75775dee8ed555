// One rank makes a different call from the others: every rank gets an error, in that call or the next, that names both
// calls.
//
// Not detected, and not tried: a gather or scatter whose root has so few additional elements that no other rank's block
// becomes longer.
#include "catch.hpp"

#include "support/fault.hpp"

#include <memory>
#include <optional>
#include <span>
#include <type_traits>

using namespace support;

namespace {

constexpr int max_ranks = 5;

/// In what the call of the odd rank differs.
enum class oddity {
    collective,
    count,
    zero_count,
    large_count,
    type,
    size,
    operation,
    root,
    order,
    too_few,
    too_many,
    started,
    schedule,
    table,
    sends,
    gathers,
    message,
    message_type,
    split
};
constexpr const char* oddities[] = {"a different collective", "a different count", "a count of 0",
    "a much larger count", "a different type", "a type of a different size", "a different operator", "a different root",
    "two calls in reverse order", "a missing call", "an additional call", "started, not blocking",
    "a different schedule", "a different table of counts", "a longer block in all_to_all_v",
    "a longer block in gather_v", "a message of a different size", "a message of a different type", "split"};
constexpr int oddity_count = static_cast<int>(std::size(oddities));

enum class type { integer, real, wide };

/// One call, as a value. The buffers of every rank are long enough for it.
struct one_call {
    verb collective = verb::barrier;
    std::size_t count = 0;  ///< of the whole
    int root = 0;
    type element = type::integer;
    bool takes_max = false, started = false;

    bool operator==(const one_call&) const = default;
};

struct rank_memory {
    std::byte *in, *out;
};
constexpr std::size_t max_bytes = 8 << 20;

template <class Way, class T>
typename Way::result make_as(colls::communicator& comm, const one_call& c, const arguments& a) {
    if (!reduces(c.collective)) return move_call<Way, T>(comm, a);
    return c.takes_max ? fold_call<Way, T>(comm, a, colls::max) : fold_call<Way, T>(comm, a, colls::sum);
}
template <class Way>
typename Way::result make_as(colls::communicator& comm, const one_call& c, const arguments& a) {
    switch (c.element) {
        case type::integer:
            return make_as<Way, int>(comm, c, a);
        case type::real:
            return make_as<Way, float>(comm, c, a);
        default:
            return make_as<Way, double>(comm, c, a);
    }
}
void make(colls::communicator& comm, const one_call& c, const rank_memory& m) {
    shape s;
    s.collective = c.collective;
    s.n = comm.size();
    s.root = c.root;
    if (c.collective == verb::all_to_all)
        s.counts.assign(s.size() * s.size(), c.count / s.size());
    else
        s.counts = balanced(c.count, s.n);
    arguments a;
    a.collective = c.collective;
    a.in = m.in;
    a.out = m.out;
    a.in_count = s.in_count(comm.rank());
    a.out_count = c.collective == verb::broadcast ? s.total() : s.out_count(comm.rank());
    a.root = c.root;
    if (c.started)
        make_as<start_way>(comm, c, a).wait();
    else
        make_as<blocking_way>(comm, c, a);
}

/// What all ranks call, and what one of them calls instead.
struct attempt {
    oddity how{};
    int n = 0, odd = 0;
    bool reached = false;
    std::vector<one_call> calls, instead;
    const char *schedule = nullptr, *other_schedule = nullptr;
    std::uint64_t chance = 0;

    attempt(std::uint64_t seed, std::uint64_t number, int ranks) : n(ranks) {
        random_source random = stream(seed, number, static_cast<std::uint64_t>(n));
        how = static_cast<oddity>(number % oddity_count);
        if (how == oddity::table && n < 3) how = oddity::sends;  // a table needs two counts of other ranks to swap
        odd = random.between(0, n - 1);
        reached = random.one_in(2);
        chance = random.next();
        one_call c = draw(random);
        const auto again = [&](auto fits) {
            while (!fits(c)) c = draw(random);
        };
        const auto ranks_ = static_cast<std::size_t>(n);
        one_call other = c;
        instead.clear();
        switch (how) {
            case oddity::collective: {
                while (other.collective == c.collective) other = draw(random);
                break;
            }
            case oddity::count:
                again([](const one_call& x) { return x.count > 0; });
                other = c;
                other.count += ranks_;  // each block becomes longer
                break;
            case oddity::zero_count:
                again([&](const one_call& x) { return x.count >= ranks_; });
                other = c;
                other.count = 0;
                break;
            case oddity::large_count:
                again(
                    [&](const one_call& x) { return x.count >= ranks_ && x.count * 40 * sizeof(double) <= max_bytes; });
                other = c;
                other.count *= 40;
                break;
            case oddity::type:
                again([](const one_call& x) { return x.count > 0; });
                c.element = type::integer;
                other = c;
                other.element = type::real;
                break;
            case oddity::size:
                again([](const one_call& x) { return x.count > 0; });
                c.element = random.one_in(2) ? type::integer : type::real;
                other = c;
                other.element = type::wide;
                if (c.collective != verb::all_to_all && c.count % (2 * ranks_) == 0 && random.one_in(2))
                    other.count /= 2;  // as many bytes
                break;
            case oddity::operation:
                again([](const one_call& x) { return reduces(x.collective); });
                other = c;
                other.takes_max = !c.takes_max;
                break;
            case oddity::root:
                again([](const one_call& x) { return rooted(x.collective); });
                other = c;
                other.root = (c.root + random.between(1, n - 1)) % n;
                break;
            case oddity::order: {
                one_call second = draw(random);
                while (second.collective == c.collective) second = draw(random);
                calls = {c, second};
                instead = {second, c};
                return;
            }
            case oddity::too_few: {
                one_call second = draw(random);
                while (second == c) second = draw(random);
                calls = {c, second};
                instead = {second};
                return;
            }
            case oddity::too_many:
                again([](const one_call& x) { return x.collective != verb::barrier; });
                calls = {c};
                instead = {c, c};
                return;
            case oddity::started:
                c.started = random.one_in(2);
                other = c;
                other.started = !c.started;
                break;
            case oddity::schedule: {
                constexpr verb both[] = {verb::all_reduce, verb::all_gather, verb::reduce_scatter};
                c.count = 1 + random.below(5000);
                c.collective = both[random.below(std::size(both))];
                other = c;
                schedule = random.one_in(2) ? "direct" : "ring";
                other_schedule = "circulant";
                break;
            }
            default:
                return;  // see `make_own`
        }
        calls = {c};
        instead = {other};
    }

    one_call draw(random_source& random) const {
        constexpr std::size_t counts[] = {1, 2, 7, 13, 60, 500, 2100, 5000, 30'000};
        one_call c;
        c.collective = static_cast<verb>(random.below(colls::collective_count));
        c.count = c.collective == verb::barrier ? 0 : counts[random.below(std::size(counts))];
        if (c.collective == verb::all_to_all) c.count *= static_cast<std::size_t>(n);
        c.root = rooted(c.collective) ? random.between(0, n - 1) : 0;
        c.element = c.collective == verb::barrier ? type::integer : static_cast<type>(random.below(3));
        c.takes_max = reduces(c.collective) && random.one_in(2);
        c.started = random.one_in(4);
        return c;
    }

    /// The names of the calls that the error may give for the odd rank, or for the others.
    std::vector<std::string> names(bool of_odd) const {
        std::vector<std::string> all = {"barrier"};  // the call that follows
        for (const one_call& c : of_odd ? instead : calls) all.push_back(name_of(c.collective));
        switch (how) {
            case oddity::table:
                all.push_back("all_gather");
                all.push_back("reduce_scatter");
                break;
            case oddity::sends:
                all.push_back("all_to_all");
                break;
            case oddity::gathers:
                all.push_back("gather");
                break;
            case oddity::message:
            case oddity::message_type:
                all.push_back("send");
                all.push_back("recv");
                break;
            case oddity::split:
                if (of_odd) all.push_back("all_gather");
                break;
            default:
                break;
        }
        return all;
    }
    std::string describe() const {
        std::string text = oddities[static_cast<int>(how)];
        text += ", n " + std::to_string(n) + ", odd rank " + std::to_string(odd) + (reached ? ", allocated" : "");
        if (schedule) text += std::string(", ") + schedule + " and " + other_schedule;
        for (const auto* side : {&calls, &instead})
            for (const one_call& c : *side)
                text += std::string(side == &calls ? "; " : "; instead ") + (c.started ? "started " : "") +
                        name_of(c.collective) + " of " + std::to_string(c.count) + " root " + std::to_string(c.root) +
                        " type " + std::to_string(static_cast<int>(c.element)) + (c.takes_max ? " max" : "");
        return text;
    }

    /// This rank's part.
    void make_calls(colls::communicator& comm, const rank_memory& m) const {
        const bool is_odd = comm.rank() == odd;
        if (calls.empty()) return make_own(comm, m, is_odd);
        for (const one_call& c : is_odd ? instead : calls) ::make(comm, c, m);
    }

private:
    void make_own(colls::communicator& comm, const rank_memory& m, bool is_odd) const {
        const auto size = static_cast<std::size_t>(n);
        const auto me = static_cast<std::size_t>(comm.rank());
        const std::size_t count = 1 + chance % (chance % 2 ? 10 : 5000);
        int* const in = reinterpret_cast<int*>(m.in);
        int* const out = reinterpret_cast<int*>(m.out);
        std::vector<std::size_t> counts(size, count), received(size, count);
        switch (how) {
            case oddity::table: {  // the odd rank has its own count right, and two counts of others swapped
                const std::size_t a = (static_cast<std::size_t>(odd) + 1) % size,
                                  b = (static_cast<std::size_t>(odd) + 2) % size;
                counts[a] += 3;
                if (is_odd) std::swap(counts[a], counts[b]);
                if (chance >> 8 & 1)
                    colls::all_gather_v(comm, std::span(in, counts[me]), std::span(out, size * count + 3), counts);
                else
                    colls::reduce_scatter_v(
                        comm, std::span(in, size * count + 3), std::span(out, counts[me]), counts, colls::sum);
                break;
            }
            case oddity::sends:
                if (is_odd) counts[(me + 1) % size] += 1 + chance % 3;
                colls::all_to_all_v(comm, std::span(in, size * count + counts[(me + 1) % size] - count),
                    std::span(out, size * count), counts, received);
                break;
            case oddity::gathers: {  // the odd rank's block is longer than the root's table says
                const int root = (odd + 1) % n;
                if (comm.rank() == root)
                    colls::gather_v(comm, std::span(in, count), std::span(out, size * count), counts, root);
                else
                    colls::gather_v(
                        comm, std::span(in, count + is_odd), std::span(out, 0), std::vector<std::size_t>(), root);
                break;
            }
            case oddity::message:
                if (is_odd) colls::send(comm, std::span(in, count + 1), (odd + 1) % n);
                if (comm.rank() == (odd + 1) % n) colls::recv(comm, std::span(out, count), odd);
                break;
            case oddity::message_type:
                if (is_odd) colls::send(comm, std::span(reinterpret_cast<float*>(in), count), (odd + 1) % n);
                if (comm.rank() == (odd + 1) % n) colls::recv(comm, std::span(out, count), odd);
                break;
            default:
                if (is_odd)
                    comm.split(0, 0);
                else
                    colls::barrier(comm);
        }
    }
};

/// How many attempts a rank made, and in how many of them it got the right error.
struct tally {
    int attempts, detected;
    int by_oddity[oddity_count];
    char failures[4096];  ///< attempts without an error or with a wrong one
};
struct all_tallies {
    tally of[max_ranks];
};
common<all_tallies>& tallies() {
    static common<all_tallies> all;
    return all;
}

bool names_one(const std::string& text, const std::vector<std::string>& names) {
    for (const std::string& name : names)
        if (text.find(name) != std::string::npos) return true;
    return false;
}

/// Empty, or what is wrong with the error.
std::string judge(const attempt& a, const colls::error& x) {
    const std::string text = x.what();
    std::string wrong;
    if (x.code() != colls::errc::mismatch) wrong += "code " + std::to_string(static_cast<int>(x.code())) + "; ";
    if (text.find("rank " + std::to_string(a.odd)) == std::string::npos) wrong += "the odd rank is not named; ";
    if (!names_one(text, a.names(false))) wrong += "the call of the other ranks is not named; ";
    if (!names_one(text, a.names(true))) wrong += "the call of the odd rank is not named; ";
    return wrong.empty() ? wrong : wrong + text;
}

void attempt_one(colls::communicator& world, std::uint64_t seed, std::uint64_t number, const rank_memory& own,
    const rank_memory& reached, tally& mine) {
    const attempt a(seed, number, world.size());
    std::string wrong;
    const char* const by = world.rank() == a.odd ? a.other_schedule : a.schedule;
    std::optional<with_environment> choice;
    if (by) choice.emplace("COLLS_SCHEDULE", by);  // read when a group is made
    colls::communicator group = world.split(0, world.rank());
    choice.reset();
    const rank_memory& memory = a.reached ? reached : own;
    try {
        a.make_calls(group, memory);
        colls::barrier(group);
        wrong = "no error";
    } catch (const colls::error& x) {
        wrong = judge(a, x);
        if (setting("COLLS_TEST_FIGURES", 0) > 1)
            std::fprintf(stderr, "%s: %s\n", oddities[static_cast<int>(a.how)], x.what());
    }
    ++mine.attempts;
    if (wrong.empty()) {
        ++mine.detected;
        ++mine.by_oddity[static_cast<int>(a.how)];
    } else {
        const std::size_t used = std::strlen(mine.failures);
        std::snprintf(mine.failures + used, sizeof mine.failures - used, "number %llu: %s:\n    %s\n",
            static_cast<unsigned long long>(number), a.describe().c_str(), wrong.c_str());
    }
}

}  // namespace

TEST_CASE("mismatch: every rank gets an error that names the odd rank and both calls", "[mismatch]") {
    const std::uint64_t trials = setting("COLLS_TEST_TRIALS", long_run    ? 1200
                                                              : sanitized ? 100
                                                                          : 140),
                        seed = setting("COLLS_TEST_SEED", 1);
    const std::uint64_t from = setting("COLLS_TEST_FROM", 0);
    for (const std::string& transport : process_transports())
        for (int n = 2; n <= max_ranks; ++n) {
            const with_environment by("COLLS_TRANSPORT", transport.c_str());
            const std::uint64_t each = (trials + max_ranks - 2) / (max_ranks - 1);
            std::memset(static_cast<void*>(&*tallies()), 0, sizeof(all_tallies));
            std::string thrown;
            try {
                colls::processes::run(n, [&](colls::communicator& world) {
                    tally& mine = tallies()->of[world.rank()];
                    const auto in = std::make_unique<std::byte[]>(max_bytes),
                               out = std::make_unique<std::byte[]>(max_bytes);
                    colls::memory<std::byte> near_in = world.allocate<std::byte>(max_bytes),
                                             near_out = world.allocate<std::byte>(max_bytes);
                    std::memset(near_in.data(), 0, max_bytes);
                    for (std::uint64_t i = from; i < from + each; ++i)
                        attempt_one(world, seed, i, {in.get(), out.get()}, {near_in.data(), near_out.data()}, mine);
                    // The parent of all these groups still works.
                    int sum = 1;
                    colls::all_reduce(world, std::span(&sum, 1), colls::sum);
                    if (sum != world.size()) throw std::runtime_error("all_reduce in the world gave a wrong sum");
                });
            } catch (const std::exception& x) {
                thrown = x.what();
            }
            INFO(transport << ", n " << n << ", seed " << seed);
            CHECK(thrown == "");
            for (int r = 0; r < n; ++r) {
                const tally& got = tallies()->of[r];
                INFO("rank " << r << "\n" << got.failures);
                CHECK(got.attempts == static_cast<int>(each));
                CHECK(got.detected == got.attempts);
            }
            if (setting("COLLS_TEST_FIGURES", 0)) {
                std::printf("%s, %d ranks: %d mismatches\n", transport.c_str(), n, tallies()->of[0].detected);
                std::fflush(stdout);
            }
        }
}
