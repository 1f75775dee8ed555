// A ring that lacks a round in groups of 5 or more: the notes name the smallest such group.
// clang-format off
// expect: law_broken<.*law::in_range>.*schedule_for<[^>]*all_gather>.*group_of<5>.*in_round<0>.*at_rank<0>.*on_port<0>.*block<1>.*peer<4>
// clang-format on
// errors: 1
#include <colls/schedules/ring.hpp>
#include <colls/verify.hpp>

#ifdef RIGHT
static constexpr int forgotten = 0;
#else
static constexpr int forgotten = 1;
#endif

struct my_family {
    struct reduce_scatter {
        static constexpr colls::collective implements = colls::collective::reduce_scatter;
        static constexpr int rounds(int n) { return n < 5 ? n - 1 : n - 1 - forgotten; }
        static constexpr colls::step at(int rank, int n, int round) {
            return colls::ring::reduce_scatter::at(rank, n, round);
        }
    };
};
static_assert(colls::proven<my_family, 8>);
