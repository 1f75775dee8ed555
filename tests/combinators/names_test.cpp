// How texts name schedules: as the user wrote them, whatever type was derived from that. And how they give sizes.
#include "catch.hpp"

#include "support/fault.hpp"
#include "support/says.hpp"

#include <colls/detail/choose/explanation.hpp>
#include <colls/schedules/hierarchical.hpp>

#include <string>
#include <vector>

using namespace support;
using colls::detail::written_name;

namespace {

struct my_ring {
    using reduce_scatter = colls::ring::reduce_scatter;
};
struct same_ring {
    using reduce_scatter = colls::ring::reduce_scatter;
};
template <class F>
struct renamed : F {};
/// A schedule for groups of four, from which no other can be derived.
struct four_only : colls::direct::all_to_all {
    static constexpr bool supports(int n) { return n == 4; }
};
/// All ranks but the last leave the group of `call` after a short time, so that the error of the last one says where it
/// waits.
template <class F>
std::string error_of_last(int n, F call) {
    std::string text;
    try {
        colls::threads::run(n, [&](auto& comm) {
            colls::barrier(comm);
            if (comm.rank() != n - 1) return;
            try {
                call(comm);
            } catch (const colls::error& failure) {
                text = failure.what();
            }
        });
    } catch (const colls::error&) {}
    return text;
}
template <class F>
std::string refusal_at(int n, F call) {
    std::string text;
    colls::threads::run(n, [&](auto& comm) {
        try {
            call(comm);
        } catch (const colls::error& failure) {
            if (comm.rank() == 0 && failure.code() == colls::errc::unsupported) text = failure.what();
        }
    });
    return text;
}

}  // namespace

namespace mine {
struct tree : colls::tree<> {};
}  // namespace mine

TEST_CASE("names: a schedule's name is its type as the user writes it", "[names]") {
    using namespace colls;
    const auto& known = colls::detail::known_names();
    CHECK(std::vector<std::string_view>(known.begin(), known.end()) ==
          std::vector<std::string_view>{"direct", "ring", "circulant", "halving_doubling", "recursive_doubling",
              "distance_doubling", "one_shot", "fan_in", "tree", "tree<4>", "double_tree", "bruck", "swing", "bine",
              "pat", "pipelined_broadcast"});
    CHECK(written_name<tree<>>() == "tree");
    CHECK(written_name<tree<4>>() == "tree<4>");
    CHECK(written_name<tree<21>>() == "tree<21>");
    CHECK(written_name<circulant<linear>>() == "circulant<linear>");
    CHECK(written_name<recursive_multiplying<3>>() == "recursive_multiplying<3>");
    CHECK(written_name<ring::reduce_scatter>() == "ring::reduce_scatter");
    CHECK(written_name<reversed<ring>>() == "reversed<ring>");
    CHECK(written_name<reversed<ring::reduce_scatter>>() == "reversed<ring::reduce_scatter>");
    CHECK(written_name<folded<halving_doubling>>() == "folded<halving_doubling>");
    CHECK(written_name<folded<halving_doubling::reduce_scatter>>() == "folded<halving_doubling::reduce_scatter>");
    CHECK(written_name<hierarchical<direct, ring>>() == "hierarchical<direct, ring>");
    CHECK(written_name<hierarchical<hierarchical<tree<>, folded<recursive_doubling>>, tree<4>>>() ==
          "hierarchical<hierarchical<tree, folded<recursive_doubling>>, tree<4>>");
    CHECK(written_name<striped<ring, circulant<>>>() == "striped<ring, circulant>");

    struct local {};
    const auto within = [](auto) {
        struct deep {};
        return written_name<compose<renamed<ring>, renamed<deep>>>();
    };
    CHECK(written_name<my_ring>() == "my_ring");
    CHECK(written_name<renamed<my_ring>>() == "renamed<my_ring>");
    CHECK(written_name<compose<my_ring, ring>>() == "compose<my_ring, ring>");
    CHECK(written_name<hierarchical<my_ring, mine::tree>>() == "hierarchical<my_ring, mine::tree>");
    CHECK(written_name<local>() == "local");
    CHECK(written_name<renamed<local>>() == "renamed<local>");
    CHECK(written_name<mine::tree>() == "mine::tree");  // not the library's
    CHECK(within(0) == "compose<renamed<ring>, renamed<deep>>");
}

TEST_CASE("names: each compiler's spelling of a type is written alike", "[names]") {
    const auto written = [](const std::string& spelled) {
        std::string out(spelled.size(), '\0');
        out.resize(colls::detail::name_shortener(spelled, out.data()).run());
        return out;
    };
    const auto nested = [](int depth, const std::string& of, const std::string& innermost, const std::string& end) {
        std::string text;
        for (int i = 0; i < depth; ++i) text += of;
        text += innermost;
        for (int i = 0; i < depth; ++i) text += end;
        return text;
    };
    struct renamed {
        const char *gcc, *clang, *written;
    };
    for (const renamed& r : {renamed{"tree<2>", "tree<>", "tree"}, renamed{"tree<21>", "tree<21>", "tree<21>"},
             renamed{"bruck<2>", "bruck<>", "bruck"}, renamed{"pat<1>", "pat<>", "pat"},
             renamed{"circulant<colls::v1::halving>", "circulant<>", "circulant"},
             renamed{"circulant<colls::v1::linear>", "circulant<colls::linear>", "circulant<linear>"},
             renamed{"recursive_multiplying<2>", "recursive_multiplying<>", "recursive_doubling"},
             renamed{"detail::folding<colls::v1::ring>", "detail::folding<colls::ring>", "folded<ring>"},
             renamed{"detail::folded_family<colls::v1::ring>", "detail::folded_family<colls::ring>", "folded<ring>"},
             renamed{"detail::reversal<colls::v1::ring>", "detail::reversal<colls::ring>", "reversed<ring>"},
             renamed{"reversed_family<colls::v1::ring>", "reversed_family<colls::ring>", "reversed<ring>"}}) {
        const std::string gcc = "colls::v1::" + std::string(r.gcc), clang = "colls::" + std::string(r.clang),
                          name = r.written, space = gcc.back() == '>' ? " >" : ">";
        CHECK(written(gcc) == name);
        CHECK(written(clang) == name);
        CHECK(written("my<" + gcc + space) == "my<" + name + ">");
        CHECK(written("colls::v1::compose<" + gcc + ", " + gcc + space) == "compose<" + name + ", " + name + ">");
        CHECK(written("colls::compose<" + clang + ", " + clang + ">::at") == "compose<" + name + ", " + name + ">::at");
        // Names of other namespaces: not the library's.
        for (const char* other : {"mine::", "mycolls::v1::", "mine::colls::"})
            CHECK(written(other + gcc).find(other) == 0);
        // However deep.
        for (const int depth : {1, 14, 15, 16, 17, 40}) {
            CHECK(written(nested(depth, "colls::v1::detail::folding<", gcc, " >") + ", " + gcc) ==
                  nested(depth, "folded<", name, ">") + ", " + name);
            CHECK(written(nested(depth, "colls::pair<colls::ring,colls::", r.clang, ", colls::ring>")) ==
                  nested(depth, "pair<ring,", name, ", ring>"));
        }
    }
    CHECK(written("{anonymous}::local") == "local");
    CHECK(written("(anonymous namespace)::local") == "local");
    for (const char* unnamed : {"{anonymous}", "(anonymous namespace)"})
        CHECK(written("mine::" + std::string(unnamed) + "::local") == "mine::local");
    CHECK(written("f(int, g(char))::local") == "local");
    CHECK(written("my<ring, f<colls::v1::tree<2> >(int)::local>") == "my<ring, local>");
    CHECK(written("my<f(colls::v1::ring) const::local>") == "my<local>");
    CHECK(written("main()::<lambda(auto:1)>::deep") == "deep");
    CHECK(written("my<void (*)(int)>") == "my<void (*)(int)>");
    CHECK(written("a < b > c") == "a < b> c");
    CHECK(written("f(") == "f(");
    CHECK(written(">colls::ring") == ">colls::ring");
    CHECK(written("") == "");
}

TEST_CASE("names: an error names the family that was given, not the schedule derived from it", "[names]") {
    std::vector<int> data(10'000);
    const auto by = [&]<class S>(const S& s) {
        return error_of_last(5, [&](auto& comm) { colls::all_reduce(comm, data, colls::sum, s); });
    };
    CHECK(lacks(by(colls::ring{}), {"in all_reduce (ring), round "}) == "");
    CHECK(lacks(by(colls::tree<4>{}), {"in all_reduce (tree<4>), round "}) == "");
    CHECK(lacks(by(my_ring{}), {"in all_reduce (my_ring), round "}) == "");
    CHECK(lacks(by(same_ring{}), {"in all_reduce (same_ring), round "}) == "");
    CHECK(lacks(by(colls::folded<colls::recursive_doubling>{}),
              {"in all_reduce (folded<recursive_doubling>), round "}) == "");
    CHECK(lacks(by(colls::hierarchical<colls::direct, colls::ring>{.node = 1}),
              {"in all_reduce (hierarchical<direct, ring>), round "}) == "");
}

TEST_CASE("names: families with the same schedule share an execution plan, and keep their names", "[names]") {
    colls::threads::run(2, [](auto& comm) {
        std::vector<int> data(10, 1);
        for (int turn = 0; turn < 3; ++turn) {
            colls::all_reduce<my_ring>(comm, data, colls::sum);
            colls::all_reduce<same_ring>(comm, data, colls::sum);
        }
        const auto& choices = comm.context().choices;
        if (std::distance(choices.begin(), choices.end()) != 2)
            throw std::runtime_error("a choice for each name, and no more");
        const auto &first = choices.begin()[0], &second = choices.begin()[1];
        if (first.plan != second.plan) throw std::runtime_error("one script");
        if (first.name != "my_ring" || second.name != "same_ring") throw std::runtime_error("names");
    });
}

TEST_CASE("names: automatic and the family that it chooses make the same call", "[names]") {
    const with_environment forced("COLLS_SCHEDULE", "ring");
    colls::threads::run(2, [](auto& comm) {
        std::vector<int> data(10'000, 1);
        if (comm.rank() == 0)
            colls::all_reduce(comm, data, colls::sum);
        else
            colls::all_reduce<colls::ring>(comm, data, colls::sum);
        if (data[9999] != 2) throw std::runtime_error("sum");
        for (const auto& choice : comm.context().choices)
            if (choice.name != "ring") throw std::runtime_error("name");
    });
}

TEST_CASE("names: the error about an unsupported group size suggests a schedule that supports it", "[names]") {
    std::vector<int> data(20), out(20);
    const auto all_reduce = [&]<class S>(const S& s) {
        return refusal_at(5, [&, s](auto& comm) {
            std::vector<int> own(20);
            colls::all_reduce(comm, own, colls::sum, s);
        });
    };
    CHECK(all_reduce(colls::halving_doubling{}) ==
          "colls: rank 0 in all_reduce: halving_doubling does not support 5 ranks: take folded<halving_doubling>, "
          "direct or automatic");
    CHECK(all_reduce(colls::recursive_doubling{}) ==
          "colls: rank 0 in all_reduce: recursive_doubling does not support 5 ranks: take folded<recursive_doubling>, "
          "direct or automatic");
    // The schedule that the text suggests works.
    CHECK(all_reduce(colls::folded<colls::halving_doubling>{}).empty());
    CHECK(all_reduce(colls::folded<colls::recursive_doubling>{}).empty());
    CHECK(refusal_at(6, [](auto& comm) {
        std::vector<int> in(6), all(36);
        colls::all_gather<colls::swing>(comm, in, all);
    }) == "colls: rank 0 in all_gather: swing does not support 6 ranks: take folded<swing>, direct or automatic");
    // 1 of 5 ranks folds no other 4; and an all_to_all does not fold.
    CHECK(refusal_at(5, [](auto& comm) {
        std::vector<int> in(5), all(5);
        colls::all_to_all<four_only>(comm, in, all);
    }) == "colls: rank 0 in all_to_all: four_only does not support 5 ranks: take direct or automatic");
    CHECK(all_reduce(colls::recursive_multiplying<7>{}) ==
          "colls: rank 0 in all_reduce: recursive_multiplying<7> does not support 5 ranks: take direct or automatic");
}

TEST_CASE("names: explain lists the names that COLLS_SCHEDULE takes", "[names]") {
    std::string text;
    colls::threads::run(4, [&](auto& comm) {
        if (comm.rank() == 0) text = colls::explain(comm, colls::collective::all_reduce, 100'000);
    });
    CHECK(
        lacks(text, {"  direct ", "  ring ", "  circulant ", "  recursive_doubling ", "  tree ", "  tree<4> "}) == "");
}

/// Rank 0 sends `count` blocks to rank 1.
struct handed_over {
    static constexpr colls::collective implements = colls::collective::broadcast;
    int count;
    int rounds(int) const { return 1; }
    int blocks(int) const { return count; }
    int home(int, int slot) const { return slot; }
    colls::step at(int rank, int, int) const {
        const colls::block_set all = colls::block_range(0, count);
        return rank == 0 ? colls::step{.send = {1, all}} : colls::step{.recv = {0, all}};
    }
};

TEST_CASE("names: a text lists four blocks of a round, and says when there are more", "[names]") {
    const auto text_of = [](int count) {
        const colls::any_schedule s(handed_over{count});
        colls::detail::error_text text;
        colls::detail::say_blocks(text, {.peer = 0, .round = 0, .blocks_of = &s, .rank = 1, .size = 2});
        return std::string(text.text());
    };
    CHECK(text_of(1) == ", block 0");
    CHECK(text_of(2) == ", blocks 0, 1");
    CHECK(text_of(4) == ", blocks 0, 1, 2, 3");
    CHECK(text_of(5) == ", blocks 0, 1, 2, 3, ...");
    CHECK(text_of(40) == ", blocks 0, 1, 2, 3, ...");
}

TEST_CASE("names: a text lists the blocks of a round, and none after the last round", "[names]") {
    const colls::any_schedule s(colls::schedule_of<colls::collective::all_gather>(colls::circulant<>{}));
    const auto text_in = [&](int round, int peer) {
        const colls::detail::wait_site at{.peer = peer,
            .round = round,
            .what = "all_gather",
            .blocks = &colls::detail::say_blocks,
            .blocks_of = &s,
            .rank = 0,
            .size = 5};
        colls::detail::error_text text;
        text << at;
        return std::string(text.text());
    };
    std::string blocks;
    for (int peer = 1; peer < 5; ++peer) blocks += text_in(0, peer);
    CHECK(blocks.find(", block") != blocks.npos);
    for (int peer = 1; peer < 5; ++peer) CHECK(text_in(s.rounds(5), peer).find(", block") == std::string::npos);
}

TEST_CASE("texts: sizes in GB have three digits or are whole, and what is too long is cut", "[names]") {
    using colls::detail::error_text;
    const auto gigabytes = [](double n) {
        error_text text;
        return std::string(put_gigabytes(text << "about ", n * (1 << 30)).text());
    };
    CHECK(gigabytes(0.1234) == "about 0.123 GB");
    CHECK(gigabytes(1.5) == "about 1.5 GB");
    CHECK(gigabytes(9.99) == "about 9.99 GB");
    CHECK(gigabytes(10) == "about 10 GB");
    CHECK(gigabytes(10.9) == "about 10 GB");
    CHECK(gigabytes(2161.5) == "about 2161 GB");
    const std::string name(72, 'n'), all(479, 'x');
    error_text brief, cut, full;
    CHECK(put_brief(brief, name).text() == name);
    CHECK(put_brief(cut, name + "n").text() == name + "...");
    CHECK((full << all << "more" << 7).text() == all);
}
