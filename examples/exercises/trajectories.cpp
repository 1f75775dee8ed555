// What a learner receives from its actors: returns, then whole trajectories, for 2 to 64 actors. A gather in two levels
// lowers the number of the learner's messages, not of its bytes; compression by the aggregators lowers the bytes.
//
// ranks: 6 3 2
#include "../common/program.hpp"

#include <colls/transports/threads.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

constexpr std::size_t dimensions = 4;

/// An episode of one actor in a made-up environment: its states, and its return.
struct episode {
    std::vector<float> states;  // steps x dimensions
    double value = 0;
};

episode play(int actor, std::size_t steps) {
    std::mt19937_64 random(static_cast<std::uint64_t>(actor) + 1);
    episode e{.states = std::vector<float>(steps * dimensions)};
    float state[dimensions] = {};
    for (std::size_t s = 0; s < steps; ++s)
        for (std::size_t d = 0; d < dimensions; ++d) {
            state[d] += static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-53 - 0.5);
            e.states[s * dimensions + d] = state[d];
            e.value -= std::abs(static_cast<double>(state[d]));
        }
    return e;
}

/// What the learner, rank 0 of a group whose other ranks are actors, has received.
struct received {
    std::size_t messages = 0, bytes = 0;
    std::vector<float> states;  // of all actors, in order
};

// example-begin flat
/// Every actor sends its trajectory to the learner: one message each.
received gather_flat(colls::communicator& comm, std::span<const float> own) {
    std::vector<std::size_t> counts(comm.rank() == 0 ? static_cast<std::size_t>(comm.size()) : 0);
    const std::size_t count = own.size();  // the learner's is empty
    colls::gather(comm, std::span(&count, 1), counts, 0);
    received r;
    if (comm.rank() == 0)
        for (const std::size_t c : counts) {
            r.states.resize(r.states.size() + c);
            r.messages += c > 0;
            r.bytes += c * sizeof(float);
        }
    colls::gather_v(comm, own, r.states, counts, 0);
    return r;
}
// example-end

/// A trajectory in 8 bits a number, as the difference from the number before, with one scale.
struct compressed {
    float scale;
    std::vector<std::int8_t> codes;
};

/// States change by at most 0.5 a step, so differences fit 8 bits well. The error does not grow: each difference is
/// taken from what the receiver has.
compressed compress(std::span<const float> states) {
    compressed c{.scale = 0.5f / 126, .codes = std::vector<std::int8_t>(states.size())};
    float has[dimensions] = {};
    for (std::size_t i = 0; i < states.size(); ++i) {
        const float code = std::clamp(std::round((states[i] - has[i % dimensions]) / c.scale), -127.0f, 127.0f);
        c.codes[i] = static_cast<std::int8_t>(code);
        has[i % dimensions] += code * c.scale;
    }
    return c;
}

void decompress(std::span<const std::int8_t> codes, float scale, std::span<float> states) {
    float has[dimensions] = {};
    for (std::size_t i = 0; i < codes.size(); ++i)
        states[i] = has[i % dimensions] += static_cast<float>(codes[i]) * scale;
}

/// About sqrt(K) groups of actors, each with an aggregator, its first rank. The learner is the aggregator of none.
struct levels {
    colls::communicator group, top;  // this actor's group; the learner and the aggregators
    bool aggregates = false;
};

levels make_levels(colls::communicator& comm) {
    const int actors = comm.size() - 1, rank = comm.rank();
    const int size = static_cast<int>(std::ceil(std::sqrt(actors)));
    const int color = rank == 0 ? 0 : 1 + (rank - 1) / size;
    levels l;
    l.group = comm.split(color, rank);
    l.aggregates = rank > 0 && l.group.rank() == 0;
    l.top = comm.split(rank == 0 || l.aggregates ? 0 : 1, rank);
    return l;
}

// example-begin two_levels
/// Every actor sends its trajectory to its aggregator, and each aggregator sends what it has in one message.
received gather_in_two_levels(levels& l, bool learner, std::span<const float> own) {
    received at_aggregator;
    if (!learner) {
        std::vector<std::size_t> counts(static_cast<std::size_t>(l.group.size()));
        const std::size_t count = own.size();
        colls::all_gather(l.group, std::span(&count, 1), counts);
        if (l.aggregates)
            for (const std::size_t c : counts) at_aggregator.states.resize(at_aggregator.states.size() + c);
        colls::gather_v(l.group, own, at_aggregator.states, counts, 0);
    }
    return learner || l.aggregates ? gather_flat(l.top, at_aggregator.states) : received{};
}
// example-end

/// The same with one byte a number on the way to the learner, which has them as floats again in `states`.
received gather_compressed(levels& l, bool learner, std::span<const float> own, std::size_t steps) {
    std::vector<std::int8_t> codes;
    if (!learner) {
        std::vector<float> states(l.aggregates ? static_cast<std::size_t>(l.group.size()) * own.size() : 0);
        colls::gather(l.group, own, states, 0);
        for (std::size_t at = 0; at < states.size(); at += own.size()) {
            const compressed c = compress(std::span(states).subspan(at, own.size()));
            codes.insert(codes.end(), c.codes.begin(), c.codes.end());
        }
    }
    if (!learner && !l.aggregates) return {};
    std::vector<std::size_t> counts(learner ? static_cast<std::size_t>(l.top.size()) : 0);
    const std::size_t count = codes.size();
    colls::gather(l.top, std::span(&count, 1), counts, 0);
    received r;
    std::vector<std::int8_t> all;
    if (learner)
        for (const std::size_t c : counts) {
            all.resize(all.size() + c);
            r.messages += c > 0;
            r.bytes += c;
        }
    colls::gather_v(l.top, codes, all, counts, 0);
    r.states.resize(all.size());
    const std::size_t one = steps * dimensions;
    for (std::size_t at = 0; at < all.size(); at += one)
        decompress(std::span(all).subspan(at, one), compress({}).scale, std::span(r.states).subspan(at, one));
    return r;
}

/// One size of the sweep, as the learner sees it.
struct sweep_row {
    received flat, two_levels, compressed;
    double concatenation = 0, largest_error = 0;
    bool right = false;
};

/// Seconds to join the trajectories of all actors, which lie in buffers of their own, into one.
double time_of_concatenation(std::span<const float> all, std::size_t actors) {
    const std::size_t one = all.size() / actors;
    std::vector<std::vector<float>> parts;
    for (std::size_t a = 0; a < actors; ++a)
        parts.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(a * one),
            all.begin() + static_cast<std::ptrdiff_t>((a + 1) * one));
    std::vector<double> times;
    std::vector<float> joined(all.size());
    for (int turn = 0; turn < 9; ++turn) {
        const auto begin = std::chrono::steady_clock::now();
        for (std::size_t a = 0; a < actors; ++a)
            std::memcpy(joined.data() + a * one, parts[a].data(), one * sizeof(float));
        times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::ranges::nth_element(times, times.begin() + 4);
    return joined.back() == all.back() ? times[4] : 0;
}

sweep_row gather_from(int actors, std::size_t steps) {
    sweep_row row;
    colls::threads::run(actors + 1, [&](colls::communicator& comm) {
        const bool learner = comm.rank() == 0;
        const episode own = learner ? episode{} : play(comm.rank() - 1, steps);
        const received flat = gather_flat(comm, own.states);
        levels l = make_levels(comm);
        const received two = gather_in_two_levels(l, learner, own.states);
        const received packed = gather_compressed(l, learner, own.states, steps);
        if (!learner) return;
        std::vector<float> expected;
        for (int a = 0; a < actors; ++a) {
            const episode e = play(a, steps);
            expected.insert(expected.end(), e.states.begin(), e.states.end());
        }
        row.right = flat.states == expected && two.states == expected && packed.states.size() == expected.size();
        for (std::size_t i = 0; i < packed.states.size() && row.right; ++i)
            row.largest_error =
                std::max(row.largest_error, static_cast<double>(std::abs(packed.states[i] - expected[i])));
        row.concatenation = time_of_concatenation(flat.states, static_cast<std::size_t>(actors));
        row.flat = flat, row.two_levels = two, row.compressed = packed;
    });
    return row;
}

}  // namespace

int main(int argc, char** argv) {
    example::program program("Returns and trajectories gathered at a learner, flat, in two levels, and compressed.");
    std::size_t steps = 1000;
    bool no_times = false;
    program.options.add("--steps", steps, "of an episode", example::positive);
    program.options.add("--no-times", no_times, "leave out the column of times, which differ from run to run");
    program.default_ranks(6);
    return program.run(argc, argv, [&](colls::communicator& comm, example::output& out) {
        // Every rank is an actor; rank 0 keeps every actor's own return, and its trajectory.
        const int n = comm.size();
        const episode own = play(comm.rank(), steps);
        std::vector<double> returns(comm.rank() == 0 ? static_cast<std::size_t>(n) : 0);
        std::vector<float> trajectories(comm.rank() == 0 ? static_cast<std::size_t>(n) * steps * dimensions : 0);
        colls::gather(comm, std::span(&own.value, 1), returns, 0);
        colls::gather(comm, own.states, trajectories, 0);
        bool right = true;
        example::table table({"actor", "return", "first state", "last state"});
        if (comm.rank() == 0)
            for (int a = 0; a < n; ++a) {
                const episode e = play(a, steps);
                const auto got = std::span(trajectories)
                                     .subspan(static_cast<std::size_t>(a) * steps * dimensions, steps * dimensions);
                right &= returns[static_cast<std::size_t>(a)] == e.value && std::ranges::equal(got, e.states);
                table.add(a, fmt::format("{:.3f}", returns[static_cast<std::size_t>(a)]),
                    fmt::format("{:.4f}", got.front()), fmt::format("{:.4f}", got.back()));
            }
        out.print("{} actors, {} steps each:\n", n, steps);
        out.print(table);
        out.check("each return and trajectory is the actor's own", right);

        // The sweep, with one thread for each actor and one for the learner, which rank 0 starts.
        bool linear = true, messages = true, bytes = true, equal = true;
        double error = 0;
        if (comm.rank() == 0) {
            std::vector<std::string> headings{"actors K", "flat: messages", "bytes", "two levels: messages", "bytes",
                "compressed: messages", "bytes"};
            if (!no_times) headings.push_back("concatenation");
            example::table sweep(headings);
            const example::axis over{.label = "actors", .logarithmic = true};
            example::plots charts({{"Messages that the learner receives", over, {.label = "messages"}},
                {"Bytes that the learner receives", over,
                    {.label = "bytes", .logarithmic = true, .in = example::unit::bytes}}});
            charts[0].says("Aggregators leave the learner the square root of the messages.");
            charts[1].says("The bytes stay the same until the aggregators compress: then they are a quarter.");
            for (int k = 2; k <= (out.quick() ? 16 : 64); k *= 2) {
                const sweep_row r = gather_from(k, steps);
                const auto actors = static_cast<std::size_t>(k), one = steps * dimensions * sizeof(float);
                const auto group = static_cast<std::size_t>(std::ceil(std::sqrt(k)));
                equal &= r.right;
                linear &= r.flat.bytes == actors * one && r.flat.messages == actors;
                messages &= r.two_levels.messages == (actors + group - 1) / group &&
                            r.compressed.messages == r.two_levels.messages;
                bytes &= r.two_levels.bytes == r.flat.bytes && 4 * r.compressed.bytes == r.flat.bytes;
                error = std::max(error, r.largest_error);
                sweep.add(k, r.flat.messages, r.flat.bytes, r.two_levels.messages, r.two_levels.bytes,
                    r.compressed.messages, r.compressed.bytes,
                    no_times ? std::string() : fmt::format("{:.1f} us", r.concatenation * 1e6));
                charts[0].add("flat", k, static_cast<double>(r.flat.messages));
                charts[0].add("two levels", k, static_cast<double>(r.two_levels.messages));
                charts[1].add("flat", k, static_cast<double>(r.flat.bytes));
                charts[1].add("two levels", k, static_cast<double>(r.two_levels.bytes));
                charts[1].add("two levels, compressed", k, static_cast<double>(r.compressed.bytes));
                if (k == 64) {
                    charts[0].mark(k, static_cast<double>(r.flat.messages), fmt::format("{}", r.flat.messages));
                    charts[0].mark(
                        k, static_cast<double>(r.two_levels.messages), fmt::format("{}", r.two_levels.messages));
                    charts[1].mark(k, static_cast<double>(r.compressed.bytes),
                        example::shown(static_cast<double>(r.compressed.bytes), example::unit::bytes));
                }
            }
            out.print(sweep);
            out.draw(charts);
        }
        out.check("flat: K messages, and bytes linear in K", linear);
        out.check("two levels: about sqrt(K) messages", messages);
        out.check("two levels: the same bytes; compressed: a quarter of them", bytes);
        out.check("every trajectory arrives as it was sent", equal);
        out.check("compressed: within half a step of the scale", error <= 0.5 / 126 / 2 * 1.01);
    });
}
