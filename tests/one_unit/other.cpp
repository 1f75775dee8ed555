// A unit of declarations: calls, one of them by a schedule and an operator of its own.
#include <colls/colls.hpp>

#include <vector>

double sum_of_maxima(colls::communicator& comm, int x) {
    std::vector<double> all(10, x);
    const auto larger = colls::commutative([](double a, double b) { return a > b ? a : b; });
    colls::start::all_reduce<colls::ring>(comm, all, larger).wait();
    double sum = 0;
    for (const double one : all) sum += one;
    return sum;
}
