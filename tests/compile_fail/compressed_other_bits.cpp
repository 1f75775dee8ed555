// expect: colls: compressed_all_reduce: this schedule does not give all ranks the same bits
#include <colls/patterns/compressed.hpp>

#include <span>

// A right all_reduce in which every rank adds the others as they come round: each rounds in another order.
struct pass_around {
    static constexpr colls::collective implements = colls::collective::all_reduce;
    static constexpr int rounds(int n) { return n - 1; }
    static constexpr int blocks(int) { return 1; }
    static constexpr int ports(int) { return 2; }
    static constexpr int scratch(int) { return 1; }
    static constexpr colls::step at(int rank, int n, int round, int port) {
        return {.send = {(rank + 1) % n, colls::block(round == 0 ? 0 : 1)},
            .recv = {(rank + n - 1) % n, colls::block(port), port == 0 ? colls::action::reduce : colls::action::copy}};
    }
};

void call(colls::communicator& comm, std::span<float> x) {
    colls::compressed_all_reduce<>(x.size())(comm, x);
#ifdef RIGHT
    static_assert(colls::proven<pass_around, 4>);
    colls::compressed_all_reduce<colls::bfloat16, colls::ring>(x.size())(comm, x);
#else
    colls::compressed_all_reduce<colls::bfloat16, pass_around>(x.size())(comm, x);
#endif
}
