// Compiled with instrumentation: see scheduler.hpp.
#include "operation.hpp"

#include "ranks.hpp"

#include <colls/schedules/direct.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/schedules/tree.hpp>

#include <span>

namespace interleaving {
namespace {

using word = std::uint64_t;
using kind = operation_kind_of_test;

// docs/model.md compares these with the sizes of tests/model/operation.pml, and the tests are written for them.
static_assert(window == 32 && store_policy::staged_chunks == 3);

class operation_program final : public group_program {
public:
    operation_program(int n, const std::vector<started_call>& calls, std::size_t in_flight, bool backwards)
        : group_program(n),
          calls_(calls),
          in_flight_(in_flight),
          backwards_(backwards),
          words_(reinterpret_cast<word*>(
              own_memory(calls.size() * static_cast<std::size_t>(n) * 2 * per_call * sizeof(word)))) {}
    void run(int rank) override {
        // A wait advances the other operations after its last spin: it has none.
        context(rank).waits = wait_policy(true, false);
        try {
            rank_context& self = context(rank);
            std::vector<started> open;
            for (std::size_t k = 0; k < calls_.size(); ++k) {
                if (open.size() == in_flight_) complete(self, open);
                open.push_back({k, start(self, k)});
            }
            while (!open.empty()) complete(self, open);
        } catch (const colls::error& failure) {
            fail(failure.what());
        }
    }

private:
    static constexpr std::size_t per_call = 16;  // words: two lines
    struct started {
        std::size_t call;
        operation_state* o;
    };
    std::size_t count() const { return static_cast<std::size_t>(2 * ranks); }
    static word input(std::size_t call, int rank, std::size_t i) {
        return (call + 1) << 40 | (static_cast<word>(rank) + 1) << 20 | (i + 1);
    }
    std::span<word> buffer(std::size_t call, int rank, bool out) const {
        const std::size_t place = call * static_cast<std::size_t>(ranks) + static_cast<std::size_t>(rank);
        return {words_ + (2 * place + out) * per_call, count()};
    }

    static const any_schedule& schedule(kind k) {
        using colls::schedule_of;
        using c = colls::collective;
        static const any_schedule all[] = {any_schedule(schedule_of<c::all_reduce>(colls::direct{})),
            any_schedule(schedule_of<c::all_reduce>(colls::ring{})),
            any_schedule(schedule_of<c::broadcast>(colls::direct{})),
            any_schedule(schedule_of<c::broadcast>(colls::tree<2>{})),
            any_schedule(schedule_of<c::all_gather>(colls::ring{})),
            any_schedule(schedule_of<c::all_to_all>(colls::direct{}))};
        static_assert(std::size(all) == operation_kinds);
        return all[static_cast<int>(k)];
    }
    operation_state* start(rank_context& self, std::size_t k) {
        const started_call& made = calls_[k];
        const std::span<word> in = buffer(k, self.rank, false), out = buffer(k, self.rank, true);
        for (std::size_t i = 0; i < count(); ++i) {
            in[i] = input(k, self.rank, i);
            out[i] = is_broadcast(made.kind) && self.rank == made.root ? input(k, self.rank, i) : 0;
        }
        const any_schedule& s = schedule(made.kind);
        call c;
        c.what = s.implements;
        c.root = made.root;
        c.count = count();
        c.own_count = 2;
        c.element = sizeof(word);
        c.op = &op_table_for<word, colls::sum_t>;
        c.op_value = &colls::sum;
        c.type = c.op_type = &eager_name;
        c.in = reinterpret_cast<const std::byte*>(is_broadcast(made.kind) ? out.data() : in.data());
        c.out = reinterpret_cast<std::byte*>(out.data());
        schedule_choice p;
        p.plan = execution_plan_for(s, ranks, reach::buffers);
        p.name = "of the test";
        p.chunk_bytes = 4096;
        return begin_call(self, c, p, {}, nullptr);
    }
    static bool is_broadcast(kind k) { return k == kind::direct_broadcast || k == kind::tree_broadcast; }

    /// Completes a call, and looks at its result. Then the buffers are this rank's again.
    void complete(rank_context& self, std::vector<started>& open) {
        const auto at = backwards_ ? open.end() - 1 : open.begin();
        const auto [k, o] = *at;
        const int rank = self.rank;
        open.erase(at);
        wait_until_done(self, *o);
        release_operation(self, *o);
        const started_call& made = calls_[k];
        const std::span<word> in = buffer(k, rank, false), out = buffer(k, rank, true);
        for (std::size_t i = 0; i < count(); ++i) {
            word want = 0;
            const int block = static_cast<int>(i / 2);
            if (is_broadcast(made.kind))
                want = input(k, made.root, i);
            else if (made.kind == kind::ring_all_gather)
                want = input(k, block, i % 2);
            else if (made.kind == kind::direct_all_to_all)
                want = input(k, block, 2 * static_cast<std::size_t>(rank) + i % 2);
            else
                for (int r = 0; r < ranks; ++r) want += input(k, r, i);
            if (out[i] != want) fail("call " + std::to_string(k) + " gives a wrong word " + std::to_string(i));
            in[i] = out[i] = ~word{0};
        }
    }

    const std::vector<started_call>& calls_;
    const std::size_t in_flight_;
    const bool backwards_;
    word* const words_;
};

}  // namespace

outcome explore_operations(
    int ranks, const std::vector<started_call>& calls, std::size_t in_flight, bool backwards, int delays) {
    operation_program p(ranks, calls, in_flight, backwards);
    return explore(p, delays);
}

}  // namespace interleaving
