// expect: colls: gather_v, scatter_v and all_to_all_v go straight from rank to rank
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <span>

#include <vector>
void call(colls::threads::communicator& comm, std::span<int> x, const std::vector<int>& counts) {
#ifdef RIGHT
    colls::all_gather_v<colls::ring>(comm, x, x, counts);
#else
    colls::gather_v<colls::ring>(comm, x, x, counts, 0);
#endif
}
