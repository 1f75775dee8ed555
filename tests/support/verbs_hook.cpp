// Linked with a test, this lets COLLS_TRANSPORT be verbs.
#include <colls/transports/verbs.hpp>
