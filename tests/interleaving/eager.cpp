// Compiled with instrumentation: see scheduler.hpp.
#include "eager.hpp"

#include "ranks.hpp"

#include <colls/detail/perform/perform_call.hpp>
#include <colls/schedules/direct.hpp>

namespace interleaving {
namespace {

using colls::collective;
using word = std::uint64_t;

constexpr collective collectives[] = {collective::barrier, collective::all_reduce, collective::all_gather,
    collective::reduce_scatter, collective::all_to_all, collective::inclusive_scan, collective::exclusive_scan,
    collective::broadcast, collective::reduce, collective::scatter, collective::gather, collective::all_to_all};
static_assert(std::size(collectives) == eager_kinds);

static_assert(eager_slots == 4, "interleaving_test has its calls from the number of slots");

class eager_program final : public group_program {
public:
    eager_program(int n, const std::vector<eager_call>& calls)
        : group_program(n),
          calls_(calls),
          words_(reinterpret_cast<word*>(own_memory(static_cast<std::size_t>(n) * 2 * most_unsized * sizeof(word)))) {}
    void run(int rank) override {
        rank_context& self = context(rank);
        try {
            for (std::size_t k = 0; k < calls_.size(); ++k)
                calls_[k].kind >= eager_kind::scatter_v ? make_unsized(self, k) : make(self, k);
        } catch (const colls::error& failure) {
            fail(failure.what());
        }
    }

private:
    static constexpr std::size_t few = 6, most = 12;  // words of a call: blocks of 2 or 3 ranks
    /// A word of a rank's input.
    static word input(std::size_t call, int rank, std::size_t i) {
        return (call + 1) << 40 | (static_cast<word>(rank) + 1) << 20 | (i + 1);
    }

    void make(rank_context& self, std::size_t k) {
        const eager_call& made = calls_[k];
        word in[most], out[most];
        const std::size_t count = made.kind == eager_kind::barrier ? 0 : made.is_long ? most : few;
        for (std::size_t i = 0; i < count; ++i) in[i] = input(k, self.rank, i), out[i] = 0;
        call c;
        c.what = collectives[static_cast<int>(made.kind)];
        c.root = made.root;
        c.count = count;
        c.element = sizeof(word);
        c.op = &op_table_for<word, colls::sum_t>;
        c.op_value = &colls::sum;
        c.type = c.op_type = &eager_name;
        c.in = reinterpret_cast<const std::byte*>(in);
        c.out = reinterpret_cast<std::byte*>(out);
        eager_executor(self, c).run();
        check(made, k, self.rank, count, out);
    }
    static constexpr std::size_t long_block = 260, most_unsized = 3 * long_block;
    static_assert(long_block * sizeof(word) > eager_unsized);
    /// Words that a rank sends to another.
    std::size_t length(std::size_t k, int from, int to) const {
        const eager_call& made = calls_[k];
        if (made.kind == eager_kind::scatter_v && from != made.root) return 0;
        if (made.kind == eager_kind::gather_v && to != made.root) return 0;
        const int odd = made.kind == eager_kind::scatter_v ? made.root : (made.root + 1) % ranks;
        return made.is_long && from == odd ? long_block : (k + static_cast<std::size_t>(from + 2 * to)) % 4;
    }
    void make_unsized(rank_context& self, std::size_t k) {
        using colls::schedule_of;
        static const any_schedule schedules[] = {any_schedule(schedule_of<collective::scatter>(colls::direct{})),
            any_schedule(schedule_of<collective::gather>(colls::direct{})),
            any_schedule(schedule_of<collective::all_to_all>(colls::direct{}))};
        const eager_call& made = calls_[k];
        const auto n = static_cast<std::size_t>(ranks);
        word* const in = words_ + static_cast<std::size_t>(self.rank) * 2 * most_unsized;
        word* const out = in + most_unsized;
        std::size_t sends[most_ranks + 1] = {}, receives[most_ranks + 1] = {};
        for (int r = 0; r < ranks; ++r) {
            const auto i = static_cast<std::size_t>(r);
            sends[i + 1] = sends[i] + length(k, self.rank, r);
            receives[i + 1] = receives[i] + length(k, r, self.rank);
        }
        for (std::size_t i = 0; i < sends[n]; ++i) in[i] = input(k, self.rank, i);
        for (std::size_t i = 0; i < receives[n]; ++i) out[i] = 0;
        call c;
        c.what = collectives[static_cast<int>(made.kind)];
        c.root = made.root;
        c.ragged = true;
        c.element = sizeof(word);
        c.type = &eager_name;
        c.in = reinterpret_cast<const std::byte*>(in);
        c.out = reinterpret_cast<std::byte*>(out);
        const bool root = self.rank == made.root, gathers = made.kind == eager_kind::gather_v;
        if (made.kind == eager_kind::all_to_all_v || (root && !gathers)) c.in_offsets = sends;
        if (made.kind == eager_kind::all_to_all_v || (root && gathers)) c.out_offsets = receives;
        c.count = made.kind != eager_kind::all_to_all_v && !root ? 0 : gathers ? receives[n] : sends[n];
        c.own_count = made.kind == eager_kind::all_to_all_v ? 0 : gathers ? sends[n] : receives[n];
        const any_schedule& s = schedules[static_cast<int>(made.kind) - static_cast<int>(eager_kind::scatter_v)];
        schedule_choice p;
        p.plan = execution_plan_for(s, ranks, reach::buffers);
        p.name = "of the test";
        p.eager_first = true;
        std::string_view name;
        run_unsized(self, c, p, nullptr, name);
        for (int r = 0; r < ranks; ++r) {
            std::size_t first = 0;
            for (int to = 0; to < self.rank; ++to) first += length(k, r, to);
            for (std::size_t i = 0; i < length(k, r, self.rank); ++i)
                if (out[receives[r] + i] != input(k, r, first + i))
                    fail("call " + std::to_string(k) + " gives a wrong word from rank " + std::to_string(r));
        }
    }
    void check(const eager_call& made, std::size_t k, int rank, std::size_t count, const word* out) const {
        const auto n = static_cast<std::size_t>(ranks), me = static_cast<std::size_t>(rank);
        const auto want = [&](std::size_t i, word value) {
            if (out[i] != value) fail("call " + std::to_string(k) + " gives a wrong word " + std::to_string(i));
        };
        const auto sum = [&](int last, std::size_t i) {
            word all = 0;
            for (int r = 0; r < last; ++r) all += input(k, r, i);
            return all;
        };
        const auto block = [&](std::size_t r) { return balanced(count, n, r); };
        for (std::size_t i = 0; i < count; ++i) switch (made.kind) {
                case eager_kind::barrier:
                    break;
                case eager_kind::all_reduce:
                    want(i, sum(ranks, i));
                    break;
                case eager_kind::reduce:
                    if (rank == made.root) want(i, sum(ranks, i));
                    break;
                case eager_kind::scan:
                    want(i, sum(rank + 1, i));
                    break;
                case eager_kind::exclusive_scan:
                    if (rank > 0) want(i, sum(rank, i));
                    break;
                case eager_kind::broadcast:
                    if (rank != made.root) want(i, input(k, made.root, i));
                    break;
                case eager_kind::reduce_scatter:
                    if (i < block(me).count) want(i, sum(ranks, block(me).first + i));
                    break;
                case eager_kind::all_gather:
                    for (std::size_t r = 0; r < n; ++r)
                        if (i < block(r).count) want(block(r).first + i, input(k, static_cast<int>(r), i));
                    break;
                case eager_kind::all_to_all:
                    for (std::size_t r = 0; r < n; ++r)
                        if (i < block(r).count && i < block(me).count)
                            want(block(r).first + i, input(k, static_cast<int>(r), block(me).first + i));
                    break;
                default:
                    break;
            }
    }

    const std::vector<eager_call>& calls_;
    word* const words_;  ///< an input and an output of each rank, for calls that may go on as operations
};

}  // namespace

outcome explore_eager(int ranks, const std::vector<eager_call>& calls, int delays) {
    eager_program p(ranks, calls);
    return explore(p, delays);
}

}  // namespace interleaving
