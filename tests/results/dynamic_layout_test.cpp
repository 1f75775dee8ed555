// Calls of dynamic.hpp whose elements do not lie in a row: blocks with displacements, and layouts. What a call must
// leave in memory is computed by loops over ranks and elements; all memory is compared, so what lies in gaps must stay.
#include "catch.hpp"

#include "support/allocations.hpp"
#include "support/dynamic_forms.hpp"
#include "support/every_transport.hpp"
#include "support/guarded.hpp"
#include "support/random.hpp"
#include "support/says.hpp"

#include <colls/colls.hpp>
#include <colls/dynamic.hpp>
#include <colls/dynamic/detail/element_sequence.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>
#include <vector>

using namespace support;
namespace dynamic = colls::dynamic;
using dynamic::data_layout;
using dynamic::op;
using dynamic::type;

namespace {

using places = std::vector<std::size_t>;  // in bytes, of the elements of a sequence

/// Where `count` ints lie in a row, from int `first` on.
places row(std::size_t first, std::size_t count) {
    places at;
    for (std::size_t i = 0; i < count; ++i) at.push_back((first + i) * sizeof(int));
    return at;
}

/// Memory, what a call must make of it, and what the call is told of it.
class checked {
public:
    explicit checked(std::size_t bytes) : memory_(bytes, 4) {
        for (std::size_t i = 0; i < bytes; ++i) memory_.data()[i] = static_cast<std::byte>(i * 7 + 3);
        keep();
    }
    std::byte* data() { return memory_.data(); }
    void set(std::size_t at, int x) { std::memcpy(memory_.data() + at, &x, sizeof x); }
    int get(std::size_t at) const {
        int x;
        std::memcpy(&x, want_.data() + at, sizeof x);
        return x;
    }
    /// What stands there now must be there after the call, but for what `wants` says.
    void keep() { want_.assign(memory_.data(), memory_.data() + memory_.size()); }
    void wants(std::size_t at, int x) { std::memcpy(want_.data() + at, &x, sizeof x); }
    void check(const std::string& what) const {
        for (std::size_t i = 0; i < want_.size(); ++i)
            if (memory_.data()[i] != want_[i]) expect(false, what + ": byte " + std::to_string(i) + " is wrong");
        expect(memory_.broken().empty(), what + ": " + memory_.broken());
    }

private:
    guarded memory_;
    std::vector<std::byte> want_;
};

int datum(int from, int to, std::size_t i) { return from * 1'000'000 + to * 20'000 + static_cast<int>(i % 19'997); }
std::size_t size_of(int n) { return static_cast<std::size_t>(n); }

// Displacements

/// Blocks of ints: each rank's count, and where it begins.
struct blocks {
    std::vector<std::size_t> counts, at;
    std::size_t total = 0;  // elements of the buffer

    dynamic::count_list list() const { return {counts, at}; }
    std::size_t byte(int r, std::size_t i) const { return (at[size_of(r)] + i) * sizeof(int); }
    std::size_t count(int r) const { return counts[size_of(r)]; }
    template <class F>  // f(rank, i): each element
    void each(F f) const {
        for (int r = 0; r < static_cast<int>(counts.size()); ++r)
            for (std::size_t i = 0; i < count(r); ++i) f(r, i);
    }
};
/// From the last rank's block to the first one's, with gaps; those of odd ranks first where `odd_first`.
template <class F>
blocks apart(int n, F count, bool odd_first = false) {
    blocks b;
    b.at.resize(size_of(n));
    for (int r = 0; r < n; ++r) b.counts.push_back(count(r));
    b.total = 2;
    const auto place = [&](int r) {
        b.at[size_of(r)] = b.total;
        b.total += b.count(r) + 1 + size_of(r % 3);
    };
    for (int r = n - 1; r >= 0; --r)
        if (!odd_first || r % 2 == 1) place(r);
    for (int r = n - 1; r >= 0 && odd_first; --r)
        if (r % 2 == 0) place(r);
    return b;
}
/// All of them begin within the first elements, and so overlap.
template <class F>
blocks overlapping(int n, F count) {
    blocks b = apart(n, count);
    for (int r = 0; r < n; ++r) b.at[size_of(r)] = size_of(r % 2);
    return b;
}
dynamic::buffer ints(checked& m, std::size_t first, std::size_t count) {
    return {m.data() + first * sizeof(int), count, type::int32};
}

template <class Form>
void check_displacements(colls::communicator& comm, std::size_t scale) {
    const int n = comm.size(), me = comm.rank(), root = n / 2;
    const std::string where = std::to_string(scale) + " elements: ";
    const auto length = [&](int r) { return scale * size_of((r + 2) % 3) + size_of(r % 2); };
    const std::size_t own = length(me);
    const blocks to = apart(n, length, me % 2 == 0);  // differs between ranks, but for the counts
    checked in(own * sizeof(int)), out(to.total * sizeof(int));
    const auto fill_in = [&](int tag) {
        for (std::size_t i = 0; i < own; ++i) in.set(i * sizeof(int), datum(me, tag, i));
        in.keep();
    };

    fill_in(1);
    to.each([&](int r, std::size_t i) { out.wants(to.byte(r, i), datum(r, 1, i)); });
    finish(Form::all_gather_v(comm, ints(in, 0, own), ints(out, 0, to.total), to.list(), dynamic::options{}));
    out.check(where + "all_gather_v"), in.check(where + "all_gather_v, input");

    fill_in(2);
    if (me == root) to.each([&](int r, std::size_t i) { out.wants(to.byte(r, i), datum(r, 2, i)); });
    finish(Form::gather_v(comm, ints(in, 0, own), ints(out, 0, to.total),
        me == root ? to.list() : dynamic::count_list{}, root, dynamic::options{}));
    out.check(where + "gather_v");

    // In place: the rank's own block of the output.
    for (std::size_t i = 0; i < own; ++i) out.set(to.byte(me, i), datum(me, 3, i));
    to.each([&](int r, std::size_t i) { out.wants(to.byte(r, i), datum(r, 3, i)); });
    finish(Form::all_gather_v(
        comm, ints(out, to.at[size_of(me)], own), ints(out, 0, to.total), to.list(), dynamic::options{}));
    out.check(where + "all_gather_v in place");

    for (const bool overlaps : {false, true}) {
        const blocks from = overlaps ? overlapping(n, length) : apart(n, length);
        checked all(from.total * sizeof(int));
        for (std::size_t i = 0; i < from.total; ++i) all.set(i * sizeof(int), datum(me, 4, i));
        all.keep();
        const auto text = [&](const char* call) { return where + call + (overlaps ? ", blocks overlap" : ""); };
        for (std::size_t i = 0; i < own; ++i) in.wants(i * sizeof(int), datum(root, 4, from.at[size_of(me)] + i));
        finish(Form::scatter_v(comm, ints(all, 0, from.total), ints(in, 0, own),
            me == root ? from.list() : dynamic::count_list{}, root, dynamic::options{}));
        in.check(text("scatter_v"));
        for (std::size_t i = 0; i < own; ++i) {
            int sum = 0;
            for (int r = 0; r < n; ++r) sum += datum(r, 4, from.at[size_of(me)] + i);
            in.wants(i * sizeof(int), sum);
        }
        finish(Form::reduce_scatter_v(
            comm, ints(all, 0, from.total), ints(in, 0, own), from.list(), op::sum, dynamic::options{}));
        in.check(text("reduce_scatter_v")), all.check(text("input"));
    }

    const auto between = [&](int a, int b) {
        return (a + b) % 4 == 3 ? 0 : scale / 2 + size_of(2 * std::min(a, b) + 3 * std::max(a, b));
    };
    const auto shared = [&](int r) { return between(me, r); };
    for (const bool overlaps : {false, true}) {
        const blocks sent = overlaps ? overlapping(n, shared) : apart(n, shared),
                     received = apart(n, shared, me % 2 == 1);
        checked from(sent.total * sizeof(int)), to_all(received.total * sizeof(int));
        const auto sent_by = [&](int r) {
            return overlaps ? overlapping(n, [&](int k) { return between(r, k); })
                            : apart(n, [&](int k) { return between(r, k); });
        };
        for (std::size_t i = 0; i < sent.total; ++i) from.set(i * sizeof(int), datum(me, 5, i));
        from.keep();
        received.each([&](int r, std::size_t i) {
            to_all.wants(received.byte(r, i), datum(r, 5, sent_by(r).at[size_of(me)] + i));
        });
        finish(Form::all_to_all_v(comm, ints(from, 0, sent.total), ints(to_all, 0, received.total), sent.list(),
            received.list(), dynamic::options{}));
        to_all.check(where + "all_to_all_v"), from.check(where + "all_to_all_v, input");
    }
    // In place, and into gaps of the input: one array with the blocks that are sent before those that are received.
    const blocks both = apart(n, shared);
    checked same(both.total * sizeof(int)), halves(2 * both.total * sizeof(int));
    both.each([&](int r, std::size_t i) {
        same.set(both.byte(r, i), datum(me, r, i)), halves.set(both.byte(r, i), datum(me, r, i));
    });
    same.keep(), halves.keep();
    blocks above = both;
    for (std::size_t& at : above.at) at += both.total;
    both.each([&](int r, std::size_t i) {
        same.wants(both.byte(r, i), datum(r, me, i)), halves.wants(above.byte(r, i), datum(r, me, i));
    });
    finish_once(Form::all_to_all_v(
        comm, ints(same, 0, both.total), ints(same, 0, both.total), both.list(), both.list(), dynamic::options{}));
    same.check(where + "all_to_all_v in place");
    // In place: what is sent lies in a row, and what is received in the order of ranks turned round.
    blocks in_row = both, turned = both;
    in_row.total = turned.total = 0;
    for (int r = 0; r < n; ++r) {
        in_row.at[size_of(r)] = std::exchange(in_row.total, in_row.total + both.count(r));
        turned.at[size_of(n - 1 - r)] = std::exchange(turned.total, turned.total + both.count(n - 1 - r));
    }
    checked mixed(in_row.total * sizeof(int));
    in_row.each([&](int r, std::size_t i) { mixed.set(in_row.byte(r, i), datum(me, r, i)); });
    mixed.keep();
    turned.each([&](int r, std::size_t i) { mixed.wants(turned.byte(r, i), datum(r, me, i)); });
    const dynamic::buffer all_of_it = ints(mixed, 0, in_row.total);
    finish_once(Form::all_to_all_v(comm, all_of_it, all_of_it, in_row.counts, turned.list(), dynamic::options{}));
    mixed.check(where + "all_to_all_v in place, the other way round");
    finish(Form::all_to_all_v(comm, ints(halves, 0, 2 * both.total), ints(halves, 0, 2 * both.total), both.list(),
        above.list(), dynamic::options{}));
    halves.check(where + "all_to_all_v within one array");
}

// Layouts

/// A layout with `count` repetitions, and the places of its elements as loops give them.
struct shape {
    data_layout layout = data_layout::contiguous(0);
    std::size_t count = 1, bytes = 0;
    places at;
};
constexpr int shapes = 6;
/// 12 k ints.
shape make_shape(int kind, std::size_t k) {
    shape s;
    const auto put = [&](std::size_t ints_before) { s.at.push_back(ints_before * 4); };
    switch (kind % shapes) {
        case 0:  // in a row, from the fourth int on
            s.layout = data_layout::indexed(std::vector<std::size_t>{3}, std::vector<std::size_t>{12 * k});
            s.at = row(3, 12 * k);
            break;
        case 1:  // blocks of two, each five apart
            s.layout = data_layout::vector(3, 2, 5);
            s.count = 2 * k;
            for (std::size_t rep = 0; rep < s.count; ++rep)
                for (std::size_t b = 0; b < 3; ++b)
                    for (std::size_t i = 0; i < 2; ++i) put(rep * 12 + b * 5 + i);
            break;
        case 2: {  // columns of a matrix of 6 rows
            const std::size_t columns = 2 * k + 1;
            s.layout = data_layout::vector(6, 1, columns).with_extent(1);
            s.count = 2 * k;
            for (std::size_t column = 0; column < s.count; ++column)
                for (std::size_t r = 0; r < 6; ++r) put(r * columns + column);
            break;
        }
        case 3:  // at offsets that fall
            s.layout = data_layout::indexed(std::vector<std::size_t>{7, 5, 4, 0}, std::vector<std::size_t>{2, 0, 1, 3})
                           .with_extent(10);
            s.count = 2 * k;
            for (std::size_t rep = 0; rep < s.count; ++rep)
                for (const std::size_t i : {7u, 8u, 4u, 0u, 1u, 2u}) put(rep * 10 + i);
            break;
        case 4:  // a part of a cube: planes of rows
            s.layout = data_layout::contiguous(2).repeated(2, 3).repeated(3, 10).with_extent(33);
            s.count = k;
            for (std::size_t rep = 0; rep < k; ++rep)
                for (std::size_t plane = 0; plane < 3; ++plane)
                    for (std::size_t r = 0; r < 2; ++r)
                        for (std::size_t i = 0; i < 2; ++i) put(rep * 33 + plane * 10 + r * 3 + i);
            break;
        default:  // at any byte
            s.layout = data_layout::vector(3, 8, 13, dynamic::unit::bytes).with_extent(39);
            s.count = 2 * k;
            for (std::size_t rep = 0; rep < s.count; ++rep)
                for (std::size_t b = 0; b < 3; ++b)
                    for (std::size_t i = 0; i < 2; ++i) s.at.push_back(rep * 39 + b * 13 + i * 4);
    }
    for (const std::size_t at : s.at) s.bytes = std::max(s.bytes, at + 12);  // with a gap behind the last one
    return s;
}
dynamic::buffer described(checked& m, const shape& s) { return {m.data(), s.count, type::int32, &s.layout}; }
/// The same elements in a row, as another rank may have them.
shape in_row(std::size_t k) {
    shape s;
    s.layout = data_layout::contiguous(12 * k);
    s.at = row(0, 12 * k);
    s.bytes = 48 * k;
    return s;
}

template <class Form>
void check_layouts(colls::communicator& comm, int kind, std::size_t k) {
    const int n = comm.size(), me = comm.rank(), root = n - 1;
    const std::size_t count = 12 * k;
    const std::string where = "layout " + std::to_string(kind) + ", " + std::to_string(count) + " elements: ";
    // Each rank has another one, the last one none.
    const shape in_shape = me == n - 1 && n > 1 ? in_row(k) : make_shape(kind + me, k),
                out_shape = make_shape(kind + 2 * me + 1, k);
    const dynamic::options how;
    checked in(in_shape.bytes), out(out_shape.bytes);
    const auto fill = [&](checked& m, const shape& s, int tag) {
        for (std::size_t i = 0; i < s.at.size(); ++i) m.set(s.at[i], datum(me, tag, i));
        m.keep();
    };
    const auto wants = [&](checked& m, const shape& s, auto value) {
        for (std::size_t i = 0; i < s.at.size(); ++i) m.wants(s.at[i], value(i));
    };
    const auto sum_of = [&](int first, int last, int tag) {
        return [=](std::size_t i) {
            int sum = 0;
            for (int r = first; r < last; ++r) sum += datum(r, tag, i);
            return sum;
        };
    };
    fill(in, in_shape, 1);
    wants(out, out_shape, sum_of(0, n, 1));
    finish(Form::all_reduce(comm, described(in, in_shape), described(out, out_shape), op::sum, how));
    out.check(where + "all_reduce"), in.check(where + "all_reduce, input");

    wants(out, out_shape, sum_of(0, me + 1, 1));
    finish(Form::inclusive_scan(comm, described(in, in_shape), described(out, out_shape), op::sum, how));
    out.check(where + "inclusive_scan");
    if (me > 0) wants(out, out_shape, sum_of(0, me, 1));  // rank 0's stays
    finish(Form::exclusive_scan(comm, described(in, in_shape), described(out, out_shape), op::sum, how));
    out.check(where + "exclusive_scan");
    if (me == root) wants(out, out_shape, sum_of(0, n, 1));
    finish(Form::reduce(comm, described(in, in_shape), described(out, out_shape), op::sum, root, how));
    out.check(where + "reduce");

    fill(in, in_shape, 2);
    if (me == root) in.keep();
    wants(in, in_shape, [&](std::size_t i) { return datum(root, 2, i); });
    finish(Form::broadcast(comm, described(in, in_shape), root, how));
    in.check(where + "broadcast");

    fill(in, in_shape, 3);
    wants(in, in_shape, sum_of(0, n, 3));
    finish_once(Form::all_reduce(comm, described(in, in_shape), op::sum, how));
    in.check(where + "all_reduce in place");
    // In place, from the elements in one order to the same in another one, which another object describes.
    const std::size_t rows = 2 + size_of(me % 2), columns = 12 / rows;
    const data_layout by_rows = data_layout::contiguous(rows),
                      by_columns = data_layout::vector(rows, 1, columns).with_extent(1);
    checked matrix(12 * sizeof(int));
    for (std::size_t i = 0; i < 12; ++i) matrix.set(i * sizeof(int), datum(me, 8, i));
    matrix.keep();
    for (std::size_t i = 0; i < 12; ++i)
        matrix.wants((i % rows * columns + i / rows) * sizeof(int), sum_of(0, n, 8)(i));
    finish_once(Form::all_reduce(comm, dynamic::const_buffer{matrix.data(), columns, type::int32, &by_rows},
        dynamic::buffer{matrix.data(), columns, type::int32, &by_columns}, op::sum, how));
    matrix.check(where + "all_reduce in place, transposed");
    fill(in, in_shape, 4);
    if (me > 0) wants(in, in_shape, sum_of(0, me, 4));
    finish_once(Form::exclusive_scan(comm, described(in, in_shape), described(in, in_shape), op::sum, how));
    in.check(where + "exclusive_scan in place");

    // Buffers of all ranks' blocks.
    const shape all_shape = make_shape(kind + me + 3, k * size_of(n));
    checked all(all_shape.bytes);
    fill(in, in_shape, 5);
    const auto block = [&](std::size_t i) { return static_cast<int>(i / count); };
    wants(all, all_shape, [&](std::size_t i) { return datum(block(i), 5, i % count); });
    finish(Form::all_gather(comm, described(in, in_shape), described(all, all_shape), how));
    all.check(where + "all_gather");
    fill(in, in_shape, 6);
    if (me == root) wants(all, all_shape, [&](std::size_t i) { return datum(block(i), 6, i % count); });
    finish(Form::gather(comm, described(in, in_shape),
        me == root ? described(all, all_shape) : dynamic::buffer{nullptr, 0, type::int32}, root, how));
    all.check(where + "gather");
    fill(all, all_shape, 7);
    const std::size_t before = size_of(me) * count;
    wants(out, out_shape, [&](std::size_t i) { return datum(root, 7, before + i); });
    finish(Form::scatter(comm, described(all, all_shape), described(out, out_shape), root, how));
    out.check(where + "scatter"), all.check(where + "scatter, input");
    wants(out, out_shape, [&](std::size_t i) { return sum_of(0, n, 7)(before + i); });
    finish(Form::reduce_scatter(comm, described(all, all_shape), described(out, out_shape), op::sum, how));
    out.check(where + "reduce_scatter");
    const shape to_shape = make_shape(kind + 1, k * size_of(n));
    checked to(to_shape.bytes);
    wants(to, to_shape, [&](std::size_t i) { return datum(block(i), 7, before + i % count); });
    finish(Form::all_to_all(comm, described(all, all_shape), described(to, to_shape), how));
    to.check(where + "all_to_all");
    wants(all, all_shape, [&](std::size_t i) { return datum(block(i), 7, before + i % count); });
    finish_once(Form::all_to_all(comm, described(all, all_shape), described(all, all_shape), how));
    all.check(where + "all_to_all in place");

    // Displacements are in the sequence of elements: blocks begin and end within the layout's blocks.
    const auto length = [&](int r) { return r % 3 == 1 ? 0 : count - 5 - size_of(r); };
    const blocks parts = [&] {
        blocks b;
        b.total = all_shape.at.size();
        for (int r = 0; r < n; ++r) b.counts.push_back(length(r)), b.at.push_back(size_of(n - 1 - r) * count + 3);
        return b;
    }();
    checked own(count * sizeof(int));
    for (std::size_t i = 0; i < length(me); ++i) own.set(i * sizeof(int), datum(me, 8, i));
    all.keep();
    parts.each([&](int r, std::size_t i) { all.wants(all_shape.at[parts.at[size_of(r)] + i], datum(r, 8, i)); });
    finish(Form::all_gather_v(comm, ints(own, 0, length(me)), described(all, all_shape), parts.list(), how));
    all.check(where + "all_gather_v");
}

/// In place, where one buffer is the rank's own block of the other: repetitions of the same layout.
template <class Form>
void check_own_blocks(colls::communicator& comm, int kind, std::size_t k) {
    const int n = comm.size(), me = comm.rank(), root = n - 1;
    const std::size_t count = 12 * k, before = size_of(me) * count;
    const shape one = make_shape(kind, k), s = make_shape(kind, k * size_of(n));
    const std::size_t unit = s.layout.counts_in() == dynamic::unit::bytes ? 1 : sizeof(int);
    checked all(s.bytes);
    const dynamic::buffer own{
        all.data() + size_of(me) * one.count * s.layout.extent() * unit, one.count, type::int32, &s.layout};
    const auto round = [&](int tag, const char* what, auto value, auto call) {
        for (std::size_t i = 0; i < s.at.size(); ++i) all.set(s.at[i], datum(me, tag, i));
        all.keep();
        for (std::size_t i = 0; i < s.at.size(); ++i) all.wants(s.at[i], value(i));
        call();
        all.check(what + (", layout " + std::to_string(kind)));
    };
    const auto is_own = [&](std::size_t i) { return i >= before && i < before + count; };
    const dynamic::options how;
    round(
        1, "all_gather in place", [&](std::size_t i) { return datum(static_cast<int>(i / count), 1, i); },
        [&] { finish_once(Form::all_gather(comm, own, described(all, s), how)); });
    round(
        2, "gather in place", [&](std::size_t i) { return datum(me == root ? static_cast<int>(i / count) : me, 2, i); },
        [&] { finish_once(Form::gather(comm, own, described(all, s), root, how)); });
    round(
        3, "scatter in place", [&](std::size_t i) { return datum(is_own(i) ? root : me, 3, i); },
        [&] { finish_once(Form::scatter(comm, described(all, s), own, root, how)); });
    round(
        4, "reduce_scatter in place",
        [&](std::size_t i) {
            int sum = 0;
            for (int r = 0; r < n; ++r) sum += datum(r, 4, i);
            return is_own(i) ? sum : datum(me, 4, i);
        },
        [&] { finish_once(Form::reduce_scatter(comm, described(all, s), own, op::sum, how)); });
}

void check_messages(colls::communicator& comm, int kind, std::size_t k) {
    const int n = comm.size(), me = comm.rank(), next = (me + 1) % n, before = (me + n - 1) % n;
    const shape from = make_shape(kind + me, k), to = make_shape(kind + me + 1, k);
    checked in(from.bytes), out(to.bytes);
    int tag = 0;
    const auto round = [&](const char* what, auto call) {
        ++tag;
        for (std::size_t i = 0; i < from.at.size(); ++i) in.set(from.at[i], datum(me, tag, i));
        in.keep();
        for (std::size_t i = 0; i < to.at.size(); ++i) out.wants(to.at[i], datum(before, tag, i));
        call(described(in, from), described(out, to));
        out.check(what), in.check(what);
    };
    using dynamic::buffer;
    round("exchange", [&](buffer a, buffer b) { dynamic::exchange(comm, a, next, b, before); });
    round("start::send, recv", [&](buffer a, buffer b) {
        colls::operation sends = dynamic::start::send(comm, a, next);
        dynamic::recv(comm, b, before);
        sends.wait();
    });
    round("send, start::recv", [&](buffer a, buffer b) {
        colls::operation receives = dynamic::start::recv(comm, b, before);
        dynamic::send(comm, a, next);
        while (!receives.test()) {}
    });
    round("recv_any", [&](buffer a, buffer b) {
        colls::operation sends = dynamic::start::send(comm, a, next);
        expect(dynamic::recv_any(comm, b) == before, "recv_any: the sender");
        sends.wait();
    });
}

/// A plan with layouts at each run, beside ranks that make the typed call on elements in a row.
void check_runs(colls::communicator& comm, std::size_t k) {
    const int n = comm.size();
    const shape s = make_shape(2, k);
    checked in(s.bytes), out(s.bytes);
    std::vector<int> row_in(s.at.size()), row_out(s.at.size());
    const bool typed = comm.rank() % 2 == 1;
    const dynamic::buffer from = typed ? dynamic::buffer{row_in.data(), row_in.size(), type::int32} : described(in, s),
                          to = typed ? dynamic::buffer{row_out.data(), row_out.size(), type::int32} : described(out, s);
    colls::plan plan = dynamic::prepare::all_reduce(comm, from, to, op::sum);
    const auto run = [&](int tag, auto call) {
        for (std::size_t i = 0; i < s.at.size(); ++i) {
            row_in[i] = datum(comm.rank(), tag, i);
            in.set(s.at[i], row_in[i]);
            int sum = 0;
            for (int r = 0; r < n; ++r) sum += datum(r, tag, i);
            out.wants(s.at[i], sum);
        }
        call();
        for (std::size_t i = 0; typed && i < s.at.size(); ++i) out.set(s.at[i], row_out[i]);
        out.check("run " + std::to_string(tag));
    };
    run(1, [&] { plan.run(); });
    run(2, [&] { plan.start().wait(); });
    run(3, [&] { plan.run(); });
    run(4, [&] {
        colls::operation done = plan.start();
        while (!done.test()) {}
    });
    run(5, [&] { const colls::operation waits_at_its_end = plan.start(); });
    if (typed)
        run(6, [&] { colls::all_reduce(comm, row_in, row_out, colls::sum); });
    else
        run(6, [&] { dynamic::all_reduce(comm, from, to, op::sum); });
    run(7, [&] {  // the operation outlives the plan, and the layout of its start
        colls::operation last;
        {
            const data_layout copy = s.layout;
            dynamic::buffer a = from, b = to;
            if (!typed) a.layout = b.layout = &copy;
            colls::plan other = dynamic::prepare::all_reduce(comm, a, b, op::sum);
            last = other.start();
        }
        last.wait();
    });
}

template <class F>
void refuses(F call, std::initializer_list<std::string> parts) {
    const std::string missing = lacks(refusal_of(call), parts);
    expect(missing.empty(), missing);
}

}  // namespace

TEST_CASE("dynamic: blocks with displacements, in any order and with gaps", "[dynamic]") {
    for (const int n : {1, 2, 3, 5}) {
        if (!support::long_run && n == 2) continue;
        INFO(n << " ranks");
        CHECK_NOTHROW(run_over("threads", n, [](auto& comm) {
            for (const std::size_t scale : {std::size_t{0}, std::size_t{1}, std::size_t{5000}}) {
                check_displacements<blocking>(comm, scale);
                check_displacements<dynamic::start>(comm, scale);
                check_displacements<dynamic::prepare>(comm, scale);
            }
        }));
    }
    on_every_transport(3, [](auto& comm) {
        check_displacements<blocking>(comm, 7);
        check_displacements<dynamic::start>(comm, 30'000);
        check_displacements<dynamic::prepare>(comm, 3000);
    });
}

TEST_CASE("dynamic: buffers with layouts, each rank with others", "[dynamic]") {
    for (const int n : {1, 2, 3, 5}) {
        if (!support::long_run && n == 2) continue;
        INFO(n << " ranks");
        CHECK_NOTHROW(run_over("threads", n, [](auto& comm) {
            for (int kind = 0; kind < shapes; ++kind) {
                check_layouts<blocking>(comm, kind, 1);
                check_layouts<dynamic::start>(comm, kind, 40);
                check_layouts<dynamic::prepare>(comm, kind, 3);
                check_messages(comm, kind, 2);
            }
            for (const int kind : {1, 3, 5}) {  // whose repetitions follow each other
                check_own_blocks<blocking>(comm, kind, 1);
                check_own_blocks<dynamic::start>(comm, kind, 1500);
                check_own_blocks<dynamic::prepare>(comm, kind, 20);
            }
            check_layouts<blocking>(comm, 1, 2000);
        }));
    }
    on_every_transport(3, [](auto& comm) {
        check_layouts<blocking>(comm, 2, 2);
        check_layouts<dynamic::start>(comm, 3, 1500);
        check_layouts<dynamic::prepare>(comm, 5, 100);
        check_own_blocks<blocking>(comm, 1, 900);
        check_messages(comm, 4, 500);
    });
}

TEST_CASE("dynamic: a plan packs and unpacks in each run, beside ranks with elements in a row", "[dynamic]") {
    for (const int n : {1, 2, 5}) {
        INFO(n << " ranks");
        CHECK_NOTHROW(run_over("threads", n, [](auto& comm) { check_runs(comm, 2), check_runs(comm, 900); }));
    }
    on_every_transport(3, [](auto& comm) { check_runs(comm, 900); });
}

TEST_CASE("dynamic: layouts and displacements that cannot be are refused, and the group goes on", "[dynamic]") {
    for (const int n : {3, 5})
        CHECK_NOTHROW(run_over("threads", n, [n](auto& comm) {
            checked in(40 * sizeof(int)), out(40 * sizeof(int));
            const dynamic::buffer from = ints(in, 0, 40), to = ints(out, 0, 40);
            std::vector<std::size_t> counts(size_of(n), 4), at;
            for (int r = 0; r < n; ++r) at.push_back(size_of(n - r) * 5);
            at[2] = at[0] + 3;
            const dynamic::count_list overlap(counts, at);
            const std::string a = std::to_string(5 * n), b = std::to_string(5 * n + 3), c = std::to_string(5 * n + 6);
            const std::string said = "the blocks of ranks 0 and 2 overlap in the output: elements " + a + " to " + b +
                                     ", and elements " + b + " to " + c;
            const dynamic::buffer own = ints(in, 0, 4);
            refuses([&] { dynamic::all_gather_v(comm, own, to, overlap); },
                {"rank " + std::to_string(comm.rank()) + " in all_gather_v", said});
            refuses([&] { (void)dynamic::start::all_gather_v(comm, own, to, overlap); }, {said});
            refuses([&] { (void)dynamic::prepare::all_to_all_v(comm, from, to, overlap, overlap); }, {said});
            // Each rank refuses as often: of one that refuses more, the others hear as soon as it is slow.
            if (comm.rank() == 1)
                refuses([&] { dynamic::gather_v(comm, own, to, overlap, 1); }, {"in gather_v", said});
            else
                refuses([&] { dynamic::all_gather_v(comm, own, to, overlap); }, {"in all_gather_v", said});
            at[2] = at[0] - 1;  // the block of the higher rank begins first
            refuses([&] { dynamic::all_gather_v(comm, own, to, dynamic::count_list(counts, at)); },
                {"the blocks of ranks 0 and 2 overlap in the output: elements " + a + " to " + b + ", and elements " +
                    std::to_string(5 * n - 1) + " to " + std::to_string(5 * n + 2)});
            at[2] = 37;
            refuses([&] { dynamic::all_gather_v(comm, own, to, dynamic::count_list(counts, at)); },
                {"the block of rank 2 is elements 37 to 40 of the output, which holds 40"});
            at[2] = ~std::size_t{0} - 1;
            refuses([&] { dynamic::all_gather_v(comm, own, to, dynamic::count_list(counts, at)); },
                {"the displacement of rank 2's block of the output is -2: it is negative"});
            at.pop_back();
            refuses([&] { dynamic::all_gather_v(comm, own, to, dynamic::count_list(counts, at)); },
                {std::to_string(n) + " counts and " + std::to_string(n - 1) + " displacements of the output"});
            const std::vector<std::size_t> too_few(size_of(n - 1), 4);
            refuses([&] { dynamic::all_gather_v(comm, own, to, dynamic::count_list(too_few, counts)); },
                {std::to_string(n - 1) + " counts and " + std::to_string(n) + " displacements of the output"});

            const auto all_reduce_to = [&](const data_layout& l, std::size_t count) {
                dynamic::all_reduce(comm, ints(in, 0, l.size() * count), {out.data(), count, type::int32, &l}, op::sum);
            };
            refuses([&] { all_reduce_to(data_layout::vector(3, 3, 2), 1); }, {"the layout of the output", "overlap"});
            refuses([&] { all_reduce_to(data_layout::vector(3, 1, 2).with_extent(1), 3); }, {"overlap", "extent 1"});
            refuses([&] { all_reduce_to(data_layout::vector(2, 2, 4).with_extent(1), 2); }, {"overlap"});
            const data_layout broken = data_layout::vector(2, 6, 8, dynamic::unit::bytes);
            refuses([&] { dynamic::all_reduce(comm, {in.data(), 1, type::int32, &broken}, op::sum); },
                {"a block of 6 bytes", "4 bytes of an element"});
            const data_layout pairs = data_layout::vector(2, 2, 4);
            refuses(
                [&] { dynamic::broadcast(comm, {nullptr, 3, type::int32, &pairs}, 0); }, {"of 12 elements is null"});
            refuses([&] { dynamic::send(comm, {nullptr, 3, type::int32, &pairs}, 0); }, {"in send", "is null"});
            refuses([&] { dynamic::all_reduce(comm, {in.data(), 1, type::int32, &pairs}, to, op::sum); },
                {"in all_reduce", "40 elements", "4"});
            const dynamic::const_buffer negative{in.data(), 0 - std::size_t{2}, type::int32};
            refuses([&] { dynamic::all_reduce(comm, negative, {out.data(), 1, type::int32, &pairs}, op::sum); },
                {"the input of -2 elements of 4 bytes: the count is negative"});
            refuses([&] { dynamic::all_reduce(comm, {in.data(), negative.count, type::int32, &pairs}, to, op::sum); },
                {"the input of -2 repetitions of a layout of extent 6 elements of 4 bytes: the count is negative"});
            refuses([&] { data_layout::indexed(counts, at); }, {"offsets and", "lengths"});
            out.check("refused calls");

            // The group goes on, and an input may overlap itself.
            const data_layout twice =
                data_layout::indexed(std::vector<std::size_t>{0, 0, 1}, std::vector<std::size_t>{3, 2, 2});
            for (std::size_t i = 0; i < 3; ++i) in.set(i * sizeof(int), static_cast<int>(i) + 1);
            dynamic::all_reduce(comm, {in.data(), 1, type::int32, &twice}, ints(out, 0, 7), op::sum);
            std::size_t i = 0;
            for (const int x : {1, 2, 3, 1, 2, 2, 3}) out.wants(4 * i++, x * n);
            out.check("an input that overlaps itself");
        }));
}

TEST_CASE("dynamic: sizes, strides and offsets that have overflowed are refused", "[dynamic]") {
    constexpr std::size_t half_of_all = std::size_t{1} << 63, far = std::size_t{1} << 62, many = std::size_t{1} << 40;
    using sizes = std::vector<std::size_t>;
    const auto refused = [](auto make) { refuses(make, {"data_layout", "overflowed"}); };
    const auto below = [](std::size_t n) { return 0 - n; };
    const auto negative = [](std::string text, auto make) { refuses(make, {"data_layout of " + text}); };
    negative("a block of -4: the length is negative", [&] { data_layout::contiguous(below(4)); });
    negative(
        "2 times 4, -8 apart, of extent 4 each: the stride is negative", [&] { data_layout::vector(2, 4, below(8)); });
    negative("-2 times 4, 8 apart, of extent 4 each: the number of repetitions is negative",
        [&] { data_layout::vector(below(2), 4, 8); });
    negative("1 and extent -3: the extent is negative", [&] { data_layout::contiguous(1).with_extent(below(3)); });
    negative("a block of 4 at -8, 8 bytes before the buffer's begin: the offset is negative",
        [&] { data_layout::indexed(sizes{0, below(8)}, sizes{4, 4}, dynamic::unit::bytes); });
    negative("a block of 4 at -4, 4 elements before the buffer's begin: the offset is negative",
        [&] { data_layout::indexed(sizes{below(4)}, sizes{4}); });
    negative("a block of -4 at 8: the length is negative", [&] { data_layout::indexed(sizes{8}, sizes{below(4)}); });
    refused([&] { data_layout::vector(many, many, 2 * many); });
    refused([&] { data_layout::vector(2, 4, half_of_all - 4); });
    refused([&] { data_layout::vector(5, 4, far); });
    refused([&] { data_layout::vector(2, 1, 1).repeated(many, far); });
    refused([&] { data_layout::vector(many, many, 0).repeated(many, 0); });
    // The blocks reach farther than the extent says.
    refused([&] { data_layout::vector(2, 1, far).with_extent(1).repeated(3, far); });
    refused([&] { data_layout::contiguous(16).with_extent(1).repeated(2, half_of_all - 8); });
    refused([&] { data_layout::indexed(sizes{0, 1}, sizes{half_of_all - 1, half_of_all - 2}); });
    const data_layout longest = data_layout::vector(2, 4, half_of_all - 5);
    CHECK(longest.extent() == half_of_all - 1);
    data_layout copy = data_layout::contiguous(1);
    copy = longest;
    CHECK((copy.extent() == longest.extent() && copy.size() == 8));
    // Nothing, however often, takes no time.
    const data_layout nothing = data_layout::vector(far, 0, 0).repeated(2, 5);
    CHECK(nothing.size() == 0);
    CHECK(nothing.extent() == 5);

    CHECK_NOTHROW(run_over("threads", 2, [&](auto& comm) {
        checked x(40 * sizeof(int));
        const auto refused_call = [&](std::size_t count, const data_layout* l) {
            const char* const why = count == 0 - std::size_t{1} ? "count is negative" : "2^63 bytes";
            refuses([&] { dynamic::broadcast(comm, {x.data(), count, type::int32, l}, 0); },
                {"in broadcast", "4 bytes", why});
            refuses([&] { dynamic::send(comm, {x.data(), count, type::int32, l}, comm.rank() == 0 ? 1 : 0); },
                {"in send", why});
        };
        refused_call(1, &longest);
        const data_layout wide = data_layout::vector(2, 4, far), one = data_layout::contiguous(1);
        refused_call(1, &wide);
        refused_call(half_of_all >> 1, &one);
        const data_layout apart = one.with_extent(many), same = one.with_extent(0);
        refused_call(many, &apart);
        refused_call(far, &same);
        refused_call(far, nullptr);
        refused_call(0 - std::size_t{1}, nullptr);
        // In inputs blocks may overlap: they are longer together than the buffer.
        const sizes counts(2, far), at(2, 0);
        refuses(
            [&] {
                dynamic::scatter_v(
                    comm, {x.data(), far, type::bytes}, {x.data(), 1, type::bytes}, {counts, at}, comm.rank());
            },
            {"in scatter_v", "longer together than 2^63 bytes"});
        const sizes few(2, 3), before{0, below(6)}, negative_counts{3, below(3)};
        const dynamic::const_buffer from{x.data(), 10, type::int32};
        const dynamic::buffer to{x.data() + 80, 3, type::int32};
        const auto scattered = [&](const sizes& lengths, const sizes& places, std::string text) {
            refuses(
                [&] { dynamic::scatter_v(comm, from, to, {lengths, places}, comm.rank()); }, {"in scatter_v", text});
        };
        scattered(few, before,
            "the displacement of rank 1's block of the input is -6: it is negative, 6 elements before the buffer's "
            "begin");
        scattered(negative_counts, few, "the count of rank 1's block of the input is -3: it is negative");
        x.check("refused calls");
    }));
}

TEST_CASE("dynamic: ranks that wait for one whose layout is refused are told why", "[dynamic]") {
    std::atomic<int> told{0};
    CHECK_NOTHROW(run_over("threads", 3, [&](auto& comm) {
        std::vector<int> x(12), all(36);
        const data_layout broken = data_layout::vector(2, 6, 8, dynamic::unit::bytes);
        if (comm.rank() == 1) {
            refuses([&] { dynamic::all_reduce(comm, {x.data(), 1, type::int32, &broken}, op::sum); },
                {"a block of 6 bytes", "4 bytes of an element"});
            for (const double until = colls::detail::seconds_now() + 20;
                told < 2 && colls::detail::seconds_now() < until;)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return;
        }
        refuses([&] { dynamic::all_reduce(comm, {x.data(), 12, type::int32}, op::sum); },
            {"refused", "a block of 6 bytes"});
        ++told;
    }));
    CHECK(told == 2);
}

TEST_CASE("element_sequence: copies any part, and finds overlaps, as a list of all bytes does", "[dynamic]") {
    using colls::detail::element_sequence;
    std::mt19937 random(7);
    const auto below = [&](unsigned n) { return static_cast<std::size_t>(random() % n); };
    int overlap = 0, apart_ = 0;
    for (int trial = 0; trial < 3000; ++trial) {
        data_layout l = data_layout::contiguous(0);
        std::vector<std::size_t> at;  // of one repetition
        if (below(2) == 0) {
            const std::size_t rows = below(4), length = below(4), stride = length + below(5), times = 1 + below(3),
                              apart_by = below(2) == 0 ? rows * stride + below(3) : below(8);
            l = data_layout::vector(rows, length, stride).repeated(times, apart_by);
            for (std::size_t t = 0; t < times; ++t)
                for (std::size_t r = 0; r < rows; ++r)
                    for (std::size_t i = 0; i < length; ++i) at.push_back(t * apart_by + r * stride + i);
        } else {
            std::vector<std::size_t> offsets, lengths;
            for (std::size_t i = 0; i < below(5); ++i) {
                offsets.push_back(below(12)), lengths.push_back(below(4));
                for (std::size_t k = 0; k < lengths.back(); ++k) at.push_back(offsets.back() + k);
            }
            l = data_layout::indexed(offsets, lengths);
        }
        if (below(2) == 0) l = l.with_extent(below(3) == 0 ? below(4) : l.extent() + below(4));
        const std::size_t count = below(5), element = 1 + 3 * below(2);
        std::vector<std::size_t> bytes;
        for (std::size_t rep = 0; rep < count; ++rep)
            for (const std::size_t i : at)
                for (std::size_t b = 0; b < element; ++b) bytes.push_back((rep * l.extent() + i) * element + b);
        const element_sequence s(l, count, element);
        std::map<std::size_t, int> used;
        bool want = false;
        for (const std::size_t b : bytes) want = ++used[b] > 1 || want;
        INFO("trial " << trial);
        REQUIRE(s.bytes() == bytes.size());
        REQUIRE(s.overlaps_itself() == want);
        (want ? overlap : apart_) += 1;
        if (s.is_in_row())
            for (std::size_t i = 0; i < bytes.size(); ++i) REQUIRE(bytes[i] == s.offset() + i);
        const std::size_t first = bytes.empty() ? 0 : below(static_cast<unsigned>(bytes.size()) + 1),
                          part = bytes.empty() ? 0 : below(static_cast<unsigned>(bytes.size() - first) + 1);
        std::vector<std::byte> memory(2000), packed(part + 2, std::byte{1}), wanted(part + 2, std::byte{1});
        for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 31 + i / 256);
        std::vector<std::byte> scattered(memory);
        for (std::size_t i = 0; i < part; ++i) wanted[i + 1] = memory[bytes[first + i]];
        s.copy<true>(memory.data(), first, part, packed.data() + 1);
        REQUIRE(packed == wanted);
        for (std::size_t i = 0; i < part; ++i) {
            packed[i + 1] = static_cast<std::byte>(below(256));
            scattered[bytes[first + i]] = packed[i + 1];
        }
        s.copy<false>(memory.data(), first, part, packed.data() + 1);
        REQUIRE((want || memory == scattered));
    }
    CHECK(overlap > 300);
    CHECK(apart_ > 300);
}

TEST_CASE("element_sequence: repetitions that lie apart are judged without a list of them all", "[dynamic]") {
    using colls::detail::element_sequence;
    constexpr std::size_t many = std::size_t{1} << 20;
    struct row {
        const char* how;
        data_layout of_one;
        bool overlaps;
    };
    // Three rows of 2 elements, 7 apart: 16 elements from the first to behind the last.
    const data_layout rows = data_layout::vector(3, 2, 7);
    for (const row& r : {row{"one directly after the other", rows.with_extent(16), false},
             row{"with gaps between them", rows.with_extent(20), false},
             row{"in each row, next to one another", data_layout::vector(3, 2, 2 * many).with_extent(2), false}}) {
        INFO(r.how);
        const element_sequence s(r.of_one, many, 4);
        const int before = support::allocations;
        support::counting = true;
        const bool overlaps = s.overlaps_itself();
        support::counting = false;
        CHECK(overlaps == r.overlaps);
        CHECK(support::allocations - before <= 3);  // the lists of the blocks and of their rows
    }
    CHECK(element_sequence(rows.with_extent(15), 1000, 4).overlaps_itself());
}
