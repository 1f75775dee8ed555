// expect: colls: elements must be trivially copyable
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <span>

#include <string>
#ifdef RIGHT
using element = char;
#else
using element = std::string;
#endif
void call(colls::threads::communicator& comm, std::span<element> x) { colls::broadcast(comm, x, 0); }
