// A test that links this accepts COLLS_TRANSPORT=verbs.
#include <colls/transports/verbs.hpp>
