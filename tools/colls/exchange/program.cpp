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

std::string words(const program& plan, const place& p) {
    const char* const names[] = {"i", "o", "s", "what is passed on at "};
    const int parts = p.in == memory::scratch ? plan.scratch_parts : plan.parts;
    const std::string chunk = fmt::format("{}[{}]", names[static_cast<int>(p.in)], p.index / parts);
    return parts == 1 ? chunk : fmt::format("{} (part {} of {})", chunk, p.index % parts + 1, parts);
}

}  // namespace exchange
