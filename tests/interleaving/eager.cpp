// Compiled with instrumentation: see scheduler.hpp.
#include "eager.hpp"

#include "ranks.hpp"

#include <colls/detail/execute/eager.hpp>

namespace interleaving {
namespace {

using colls::collective;
using word = std::uint64_t;

constexpr collective collectives[] = {collective::barrier, collective::all_reduce, collective::all_gather,
    collective::reduce_scatter, collective::all_to_all, collective::inclusive_scan, collective::exclusive_scan,
    collective::broadcast, collective::scatter, collective::reduce, collective::gather};
static_assert(std::size(collectives) == eager_kinds);

static_assert(eager_slots == 4, "interleaving_test has its calls from the number of slots");

class eager_program final : public group_program {
public:
    eager_program(int n, const std::vector<eager_call>& calls) : group_program(n), calls_(calls) {}
    void run(int rank) override {
        rank_context& self = context(rank);
        try {
            for (std::size_t k = 0; k < calls_.size(); ++k) make(self, k);
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
                case eager_kind::scatter:
                    if (i < block(me).count) want(i, input(k, made.root, block(me).first + i));
                    break;
                case eager_kind::all_gather:
                case eager_kind::gather:
                    if (made.kind == eager_kind::gather && rank != made.root) break;
                    for (std::size_t r = 0; r < n; ++r)
                        if (i < block(r).count) want(block(r).first + i, input(k, static_cast<int>(r), i));
                    break;
                case eager_kind::all_to_all:
                    for (std::size_t r = 0; r < n; ++r)
                        if (i < block(r).count && i < block(me).count)
                            want(block(r).first + i, input(k, static_cast<int>(r), block(me).first + i));
                    break;
            }
    }

    const std::vector<eager_call>& calls_;
};

}  // namespace

outcome explore_eager(int ranks, const std::vector<eager_call>& calls, int delays) {
    eager_program p(ranks, calls);
    return explore(p, delays);
}

}  // namespace interleaving
