// The one unit that has the definitions.
#define COLLS_IMPLEMENTATION
#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>
