// Another unit of the same program that includes the library.
#include <colls/colls.hpp>

static_assert(COLLS_VERSION_MAJOR == 0);

int used_by_nobody() { return colls::log2_ceil(5); }
