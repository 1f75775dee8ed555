// expect: colls: hierarchical<Intra, Inter>: Intra and Inter must be families or schedules
#include <colls/schedules/direct.hpp>
#include <colls/schedules/hierarchical.hpp>
#include <colls/schedules/ring.hpp>

#ifdef RIGHT
using inter = colls::ring;
#else
using inter = double;
#endif
constexpr colls::hierarchical<colls::direct, inter> levels{.node = 4};
