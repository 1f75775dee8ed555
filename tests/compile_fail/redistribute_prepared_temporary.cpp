// expect: colls: this buffer is a temporary
#include <colls/redistribute.hpp>

#include <vector>

colls::prepared_redistribution call(colls::communicator& comm, std::vector<float>& in, std::vector<float>& out) {
    const auto from = colls::layout::by_rows({4, 6}, {0, 2}), to = colls::layout::by_columns({4, 6}, {0, 3});
#ifdef RIGHT
    return colls::prepared_redistribution(comm, in, from, out, to);
#else
    return colls::prepared_redistribution(comm, std::vector<float>(in), from, out, to);
#endif
}
