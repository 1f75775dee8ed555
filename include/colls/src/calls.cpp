// What is behind the calls, and groups of threads, compiled once for programs whose units define COLLS_SEPARATE (CMake:
// colls::separate).
#undef COLLS_SEPARATE
#define COLLS_SEPARATE_SOURCE
#include <colls/colls.hpp>
#include <colls/redistribute.hpp>
#include <colls/transports/threads.hpp>

namespace colls::inline v1::detail {
template candidates candidates_for<collective::broadcast>();
template candidates candidates_for<collective::scatter>();
template candidates candidates_for<collective::gather>();
template candidates candidates_for<collective::all_gather>();
template candidates candidates_for<collective::reduce>();
template candidates candidates_for<collective::reduce_scatter>();
template candidates candidates_for<collective::all_reduce>();
template candidates candidates_for<collective::all_to_all>();
template candidates candidates_for<collective::barrier>();
template candidates candidates_for<collective::inclusive_scan>();
template candidates candidates_for<collective::exclusive_scan>();
template std::string explanation<0>(const rank_context&, collective, std::size_t, bool);
template std::string_view choice<0>(const rank_context&, collective, std::size_t, bool);
}  // namespace colls::inline v1::detail
