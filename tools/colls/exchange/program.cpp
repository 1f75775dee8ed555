#include "program.hpp"

#include <fmt/format.h>

namespace exchange {

using colls::collective;

bool program::given(int rank, int block) const {
    switch (implements) {
        case collective::broadcast:
        case collective::scatter:
            return rank == root;
        case collective::gather:
        case collective::all_gather:
            return block / (blocks / ranks) == rank;
        default:
            return true;
    }
}

bool program::wanted(int rank, int block) const {
    switch (implements) {
        case collective::reduce:
        case collective::gather:
            return rank == root;
        case collective::scatter:
        case collective::reduce_scatter:
            return block / (blocks / ranks) == rank;
        default:
            return true;
    }
}

std::string words(const event& e) {
    return fmt::format("gpu {}, thread block {}, step {} ({})", e.rank, e.block, e.step, e.type);
}

std::string words(const place& p) {
    const char* const names[] = {"i", "o", "s", "what is passed on at "};
    return fmt::format("{}[{}]", names[static_cast<int>(p.in)], p.index);
}

}  // namespace exchange
