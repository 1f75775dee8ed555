// Actor-learner (Espeholt et al. 2018, IMPALA): rank 0 learns, the other ranks act. In each iteration the learner
// broadcasts its policy; the actors balance a pole with it, while the learner learns from the experience before; the
// trajectories, of uneven length, are gathered. Then what aggregators change: K actors send to about sqrt(K) of them,
// which send to the learner, compressed or not; counted for up to 64 actors, simulated for up to 1,000.
//
// ranks: 4 3 3
#include "../common/program.hpp"
#include "actor_learner/cart_pole.hpp"
#include "actor_learner/simulation.hpp"

#include <colls/transports/threads.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

namespace {

using namespace example;

/// What has arrived at this rank as root of gathers, from other ranks.
struct arrivals {
    long messages = 0, bytes = 0;
};

// example-begin collect
/// Concatenates the lists of all ranks, of any length, on rank 0.
template <class T>
std::vector<T> collect(colls::communicator& comm, const std::vector<T>& mine, arrivals& arrived) {
    const auto length = static_cast<std::int64_t>(mine.size());
    std::vector<std::int64_t> lengths(comm.rank() == 0 ? static_cast<std::size_t>(comm.size()) : 0);
    colls::gather(comm, std::span(&length, 1), lengths, 0);
    std::vector<T> all(static_cast<std::size_t>(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0})));
    colls::gather_v(comm, mine, all, lengths, 0);
    for (std::size_t r = 1; r < lengths.size(); ++r) {
        arrived.messages += lengths[r] > 0;
        arrived.bytes += lengths[r] * static_cast<long>(sizeof(T));
    }
    return all;
}
// example-end

// example-begin aggregators
/// Gathers experience at the learner: from every actor, or from one aggregator for each group of actors.
class experience_gather {
public:
    /// groups: of actors, of which the first of each aggregates; 0: the actors send to the learner itself.
    experience_gather(colls::communicator& comm, int groups, bool packed) : comm_(comm), packed_(packed) {
        if (groups == 0) return;
        const int actors = comm.size() - 1, actor = comm.rank() - 1;
        const int group = actor < 0 ? colls::none : static_cast<int>(static_cast<long>(actor) * groups / actors);
        group_ = comm.split(group, comm.rank());
        aggregators_.emplace(comm.split(actor < 0 || group_->rank() == 0 ? 0 : colls::none, comm.rank()));
    }

    /// The steps of all actors in the order of their ranks, on the learner.
    std::vector<step> operator()(std::vector<step> mine) {
        colls::communicator* to_learner = &comm_;
        if (group_) {
            if (group_->size() > 0) mine = collect(*group_, mine, ignored_);
            if (aggregators_->size() == 0) return {};
            to_learner = &*aggregators_;
        }
        if (packed_) return unpack(collect(*to_learner, pack(mine), arrived_));
        return collect(*to_learner, mine, arrived_);
    }

    const arrivals& at_learner() const { return arrived_; }

private:
    colls::communicator& comm_;
    std::optional<colls::communicator> group_, aggregators_;
    bool packed_;
    arrivals arrived_, ignored_;
};
// example-end

int groups_for(int actors) { return static_cast<int>(std::lround(std::sqrt(actors))); }

/// Result of a training run on the learner: the policy, and the mean length of an episode in each iteration.
struct learned {
    policy weights{};
    std::vector<double> lengths;
};

/// Episodes are numbered, and numbers decide their random choices: any number of actors brings the same experience.
template <class Progress>
learned train(colls::communicator& comm, experience_gather& gather, int iterations, int episodes, Progress progress) {
    const int actors = std::max(1, comm.size() - 1), actor = comm.size() == 1 ? 0 : comm.rank() - 1;
    learned result;
    std::vector<step> experience;
    for (int i = 0; i < iterations; ++i) {
        // example-begin iteration
        policy acting = result.weights;
        colls::broadcast(comm, acting, 0);
        std::vector<step> mine;
        if (actor >= 0) {
            const auto share = colls::block_of(static_cast<std::size_t>(episodes), actors, actor);
            for (std::size_t e = share.offset; e < share.offset + share.size; ++e)
                play(acting, static_cast<std::uint64_t>(i * episodes) + e, mine);
        }
        if (comm.rank() == 0) learn(result.weights, experience);  // while the actors act: one policy behind them
        experience = gather(std::move(mine));
        // example-end
        if (comm.rank() != 0) continue;
        result.lengths.push_back(static_cast<double>(experience.size()) / episodes);
        progress(i, result.lengths.back());
    }
    return result;
}

/// Rows for K = 2 to `most` actors: what reaches the learner, counted in a run of K + 1 ranks and from the schedule.
bool count_arrivals(int most, table& rows, plots& charts) {
    bool right = true;
    for (int actors = 2; actors <= most; actors *= 2) {
        const int groups = groups_for(actors);
        // Actor a's trajectory; lengths differ.
        const auto trajectory = [](int a) {
            std::vector<step> steps;
            play({}, static_cast<std::uint64_t>(a), steps);
            return steps;
        };
        std::vector<step> all;
        for (int a = 0; a < actors; ++a) std::ranges::copy(trajectory(a), std::back_inserter(all));
        arrivals flat, grouped, packed;
        bool same = false;
        colls::threads::run(actors + 1, [&](colls::communicator& comm) {
            const auto mine = comm.rank() == 0 ? std::vector<step>{} : trajectory(comm.rank() - 1);
            experience_gather one(comm, 0, false), two(comm, groups, false), small(comm, groups, true);
            const auto a = one(mine), b = two(mine), c = small(mine);
            if (comm.rank() != 0) return;
            same = a == all && b == all && c == unpack(pack(all));
            flat = one.at_learner(), grouped = two.at_learner(), packed = small.at_learner();
        });
        using gather = colls::schedule_for<colls::direct, colls::collective::gather>;
        const long scheduled = colls::cost_of<gather>(actors + 1).critical_messages;
        const long scheduled_grouped = colls::cost_of<gather>(groups + 1).critical_messages;
        right = right && same && flat.messages == scheduled && grouped.messages == scheduled_grouped &&
                packed.messages == scheduled_grouped && grouped.bytes == flat.bytes && packed.bytes * 4 == flat.bytes;
        rows.add(actors, groups, scheduled, flat.messages, scheduled_grouped, grouped.messages, flat.bytes,
            grouped.bytes, packed.bytes);
        charts[0].add("flat", actors, static_cast<double>(flat.messages));
        charts[0].add("aggregators", actors, static_cast<double>(grouped.messages));
        charts[1].add("flat", actors, static_cast<double>(flat.bytes));
        charts[1].add("aggregators", actors, static_cast<double>(grouped.bytes));
        charts[1].add("aggregators, packed", actors, static_cast<double>(packed.bytes));
        if (2 * actors <= most) continue;
        charts[0].mark(actors, static_cast<double>(flat.messages), fmt::format("{}", flat.messages));
        charts[0].mark(actors, static_cast<double>(grouped.messages), fmt::format("{}", grouped.messages));
        charts[1].mark(
            actors, static_cast<double>(packed.bytes), shown(static_cast<double>(packed.bytes), unit::bytes));
    }
    return right;
}

}  // namespace

int main(int argc, char** argv) {
    program program("Learns to balance a pole by actors and a learner, and shows what aggregators change.");
    int iterations = 120, episodes = 16;
    std::string throughput_plot;
    simulated_cluster cluster;
    program.options.add("--iterations", iterations, "policies broadcast", example::between(4, 100'000));
    program.options.add("--episodes", episodes, "of an iteration, by all actors", example::between(1, 10'000));
    program.options.add("--plot-throughput", throughput_plot, "SVG file for the simulated throughput");
    cluster.add_options(program.options);
    return program.run(argc, argv, [&](colls::communicator& comm, output& out) {
        if (out.quick()) iterations = 40;
        const int actors = comm.size() - 1, groups = groups_for(actors);
        out.print("{} actors, {} episodes an iteration\n", std::max(1, actors), episodes);

        // Training, by three ways to gather. The same experience, so the same policy to the bit as of one rank.
        const auto print = [&](int i, double length) {
            if ((i + 1) % 10 == 0) out.print("iteration {:>3}: an episode lasts {:.0f} steps\n", i + 1, length);
        };
        const auto silent = [](int, double) {};
        experience_gather flat(comm, 0, false);
        const learned result = train(comm, flat, iterations, episodes, print);
        bool same = true, same_packed = true;
        if (actors > 0) {
            experience_gather grouped(comm, groups, false), packed(comm, groups, true);
            const learned other = train(comm, grouped, iterations, episodes, silent);
            const learned small = train(comm, packed, iterations, episodes, silent);
            learned alone, alone_packed;
            if (comm.rank() == 0)
                colls::threads::run(1, [&](colls::communicator& one) {
                    experience_gather own(one, 0, false), own_packed(one, 0, true);
                    alone = train(one, own, iterations, episodes, silent);
                    alone_packed = train(one, own_packed, iterations, episodes, silent);
                });
            same = result.weights == alone.weights && result.lengths == alone.lengths && other.weights == alone.weights;
            same_packed = small.weights == alone_packed.weights && small.lengths == alone_packed.lengths;
        }
        out.check("the policy of one rank, to the bit, with and without aggregators", same);
        out.check("the same with packed experience", same_packed);
        out.check("the policy improves: episodes last 3 times as long as at first",
            comm.rank() != 0 ||
                std::accumulate(result.lengths.end() - 4, result.lengths.end(), 0.0) / 4 > 3 * result.lengths.front());

        table rows({"actors K", "aggregators", "flat: messages by schedule", "in the run", "grouped: by schedule",
            "in the run", "flat: bytes", "grouped: bytes", "grouped, packed: bytes"});
        plots charts({{"Messages that reach the learner", {"actors", true}, {"messages"}},
            {"Bytes that reach the learner", {"actors", true}, {"bytes", true, unit::bytes}}});
        charts[0].says("Aggregators leave the learner the square root of the messages.");
        charts[1].says("The bytes stay the same until the aggregators pack them: then they are a quarter.");
        const bool counted = comm.rank() != 0 || count_arrivals(64, rows, charts);
        out.print("\nData messages and bytes that reach the learner (lengths go before, 8 bytes from each sender):\n");
        out.print(rows);
        out.check("aggregators: the same experience, sqrt(K) messages, the same bytes; packed: a quarter", counted);
        out.draw(charts);

        // The learner's link as the bound, simulated.
        bool as_modelled = true;
        if (comm.rank() == 0) {
            plot curves("A thousand actors, simulated", {"actors"}, {"trajectories a second at the learner"});
            as_modelled = simulate_all(cluster, out.quick() ? 0.5 : 4.0, out, curves);
            if (!throughput_plot.empty()) curves.write(throughput_plot);
        }
        out.check("simulation: the rates that the links allow", as_modelled);
    });
}
