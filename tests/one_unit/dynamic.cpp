// A unit that includes the declarations of dynamic.hpp, and needs each of its templates.
#include <colls/dynamic.hpp>

void unit(colls::communicator& comm, colls::dynamic::buffer b) {
    using namespace colls::dynamic;
    blocking::all_reduce(comm, b, op::sum);
    start::all_reduce(comm, b, op::sum).wait();
    prepare::all_reduce(comm, b, op::sum).run();
    send(comm, b, 1);
    recv(comm, b, 1);
    start::send(comm, b, 1).wait();
    start::recv(comm, b, 1).wait();
}
