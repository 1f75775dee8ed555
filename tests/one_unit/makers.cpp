// Groups that several parts of a program make, each with what is behind its calls: NAME_run makes a group of threads,
// and hands each rank to a function of another part, whose calls go through what the group brings.
#include <colls/colls.hpp>
#include <colls/transports/threads.hpp>

#include <cstddef>
#include <span>

extern "C" {
int PART(_use)(colls::communicator& c);
int PART(_run)(int n, int (*use)(colls::communicator&));
}

// What it finds wrong.
int PART(_use)(colls::communicator& c) {
    double x[3] = {1.0 * c.rank(), 2, 3}, y[3] = {};
    const int n = c.size();
    colls::all_reduce(c, std::span<double>(x), colls::sum);
    int wrong = x[0] != n * (n - 1) / 2.0 || x[1] != 2.0 * n;
    auto started = colls::start::all_reduce<colls::ring>(c, x, y, colls::max);
    started.wait();
    wrong += y[2] != x[2];
    auto plan = colls::prepare::broadcast(c, y, n - 1);
    plan.run();
    colls::communicator part = c.split(c.rank() % 2, c.rank());
    auto memory = part.allocate<int>(1);
    memory[0] = 1;
    colls::all_reduce(part, memory, colls::sum);
    wrong += memory[0] != part.size();
    try {
        colls::broadcast(part, memory, 99);
        ++wrong;
    } catch (const colls::error& e) {
        wrong += e.code() != colls::errc::invalid_argument;
    }
    return wrong;
}
int PART(_run)(int n, int (*use)(colls::communicator&)) {
    int wrong = 0;
    colls::threads::run(n, [&](colls::communicator& c) {
        int own = use(c);
        colls::all_reduce(c, std::span<int>(&own, 1), colls::sum);
        if (c.rank() == 0) wrong = own;
    });
    return wrong;
}
