// The volume of each collective: bytes that the busiest rank sends or receives, counted from the steps of schedules and
// compared with the formulas at every group size.
//
// ranks: 2 0 0
#include "../common/program.hpp"
#include "traffic.hpp"

#include <fmt/format.h>

#include <string>

namespace {

using colls::collective;

class volumes {
public:
    volumes(example::output& out, int largest) : out_(out), largest_(largest) {}

    /// Adds a row to the table, and a check that counts equal the formula for 2 to `largest` ranks.
    template <colls::collective C, class Family, class Formula>
    void add(Family family, const char* name, const char* buffer, const char* formula_text, Formula formula,
        long example::rank_traffic::* what) {
        const auto s = colls::schedule_of<C>(family);
        bool equal = true;
        int sizes = 0;
        for (int n = 2; n <= largest_; ++n) {
            if (!colls::supports(s, n)) continue;
            ++sizes;
            const example::traffic t = example::count_traffic(s, n);
            // Exact: blocks moved times n = formula times blocks times n, all of them integers.
            equal &= t.most(what) * n == formula(n) * t.blocks;
        }
        const int n = 8;
        const example::traffic t = example::count_traffic(s, n);
        table_.add(colls::name_of(C), name, buffer, what == &example::rank_traffic::sent ? "sends" : "receives",
            fmt::format("{:.4g} D", volume(C, t, what, n)), formula_text, fmt::format("{} sizes", sizes));
        right_ &= equal;
        if (!equal) out_.print("{} by {}: the counts differ from {}\n", colls::name_of(C), name, formula_text);
    }

    void finish() {
        out_.print(table_);
        out_.check(fmt::format("counts equal the formulas for 2 to {} ranks", largest_), right_);
    }

private:
    /// In units of D: where the buffer is the ranks' parts together, D is one part.
    static double volume(collective c, const example::traffic& t, long example::rank_traffic::* what, int n) {
        const double whole = static_cast<double>(t.most(what)) / t.blocks;
        return c == collective::all_gather || c == collective::gather ? whole * n : whole;
    }

    example::output& out_;
    int largest_;
    bool right_ = true;
    example::table table_{{"collective", "schedule", "D is", "the busiest rank", "N = 8", "formula", "equal at"}};
};

}  // namespace

int main(int argc, char** argv) {
    example::program program("Volumes a rank of every collective, counted from schedules and compared with formulas.");
    int largest = 64;
    program.options.add("--largest", largest, "largest group", example::between(8, 512));
    program.default_ranks(1);
    return program.run(argc, argv, [&](colls::communicator&, example::output& out) {
        constexpr auto sends = &example::rank_traffic::sent, receives = &example::rank_traffic::received;
        volumes v(out, out.quick() ? 16 : largest);

        // Formulas give n times the part of the whole buffer, so that they are integers.
        const auto whole = [](long n) { return n; };
        const auto all_but_one = [](long n) { return n - 1; };
        const auto one_part = [](long) { return 1L; };
        const auto twice = [](long n) { return 2 * (n - 1); };
        const char* one = "one rank's part";
        v.add<collective::broadcast>(colls::tree<>{}, "tree", "the buffer", "D", whole, receives);
        v.add<collective::broadcast>(colls::pipelined_broadcast{16}, "pipelined", "the buffer", "D", whole, receives);
        v.add<collective::broadcast>(
            colls::direct{}, "direct", "the buffer", "D (N-1)", [](long n) { return n * (n - 1); }, sends);
        v.add<collective::scatter>(colls::direct{}, "direct", "the buffer", "D / N", one_part, receives);
        v.add<collective::scatter>(colls::tree<>{}, "tree", "the buffer", "D (N-1)/N", all_but_one, sends);
        v.add<collective::gather>(colls::tree<>{}, "tree", one, "D (N-1)", all_but_one, receives);
        v.add<collective::gather>(colls::direct{}, "direct", one, "D (N-1)", all_but_one, receives);
        v.add<collective::all_gather>(colls::ring{}, "ring", one, "D (N-1)", all_but_one, receives);
        v.add<collective::all_gather>(colls::bruck<>{}, "bruck", one, "D (N-1)", all_but_one, receives);
        v.add<collective::reduce>(colls::ring{}, "ring", "the buffer", "D", whole, receives);
        v.add<collective::reduce_scatter>(colls::ring{}, "ring", "the buffer", "D (N-1)/N", all_but_one, sends);
        v.add<collective::reduce_scatter>(
            colls::circulant<>{}, "circulant", "the buffer", "D (N-1)/N", all_but_one, sends);
        v.add<collective::all_reduce>(colls::ring{}, "ring", "the buffer", "2 D (N-1)/N", twice, sends);
        v.add<collective::all_reduce>(colls::circulant<>{}, "circulant", "the buffer", "2 D (N-1)/N", twice, sends);
        v.add<collective::all_reduce>(
            colls::halving_doubling{}, "halving_doubling", "the buffer", "2 D (N-1)/N", twice, sends);
        v.add<collective::all_to_all>(colls::direct{}, "direct", "the buffer", "D (N-1)/N", all_but_one, sends);
        v.add<collective::inclusive_scan>(colls::ring{}, "ring", "the buffer", "D", whole, sends);
        v.add<collective::exclusive_scan>(
            colls::ring{}, "ring", "the buffer", "2 D (N > 2)", [](long n) { return n > 2 ? 2 * n : n; }, sends);
        v.add<collective::barrier>(
            colls::recursive_doubling{}, "recursive_doubling", "nothing", "0", [](long) { return 0L; }, sends);
        v.finish();

        example::plot chart("An all_reduce: what the busiest rank sends", {.label = "ranks", .logarithmic = true},
            {.label = "buffers sent by the busiest rank"});
        chart.says(
            "By a ring or circulant a rank sends less than two buffers, however many ranks there are; where whole "
            "buffers "
            "go through log2 N rounds, one more each time that the ranks double.");
        for (int n = 2; n <= largest; n *= 2) {
            const auto add = [&](const char* name, const auto& family) {
                const auto s = colls::schedule_of<collective::all_reduce>(family);
                const example::traffic t = example::count_traffic(s, n);
                chart.add(name, n, static_cast<double>(t.most(sends)) / t.blocks);
            };
            add("ring, circulant", colls::circulant<>{});
            add("recursive_doubling", colls::recursive_doubling{});
            add("tree", colls::tree<>{});
        }
        const int n = colls::log2_ceil(largest + 1) - 1;  // the largest group that is drawn has 2^n ranks
        chart.mark(1 << n, 2.0 * ((1 << n) - 1) / (1 << n), "less than 2 on any number of ranks");
        chart.mark(1 << n, n, fmt::format("{} on {} ranks", n, 1 << n));
        out.draw(chart);
    });
}
