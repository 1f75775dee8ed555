// A test that links this encrypts its TCP connections where COLLS_TLS is set.
#include <colls/tls.hpp>
