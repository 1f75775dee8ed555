// A test that links this accepts COLLS_TRANSPORT=ofi.
#include <colls/transports/ofi.hpp>
