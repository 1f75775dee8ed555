// Element type, operator and schedule come from the command line, as they would from another language; and a vector
// function, in the way of MPI, composes maps, in the order of ranks.
//
// Build: g++ -std=c++20 -O2 -pthread -Iinclude examples/run_time_types.cpp -o run_time_types
// Run:   ./run_time_types float64 sum ring
#include <colls/dynamic.hpp>
#include <colls/error.hpp>
#include <colls/transports/threads.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace dynamic = colls::dynamic;

namespace {

const std::map<std::string, dynamic::type> types = {{"int32", dynamic::type::int32}, {"uint8", dynamic::type::uint8},
    {"float32", dynamic::type::float32}, {"float64", dynamic::type::float64}};
const std::map<std::string, dynamic::op> operators = {{"sum", dynamic::op::sum}, {"prod", dynamic::op::prod},
    {"max", dynamic::op::max}, {"avg", dynamic::op::avg}, {"bit_or", dynamic::op::bit_or}};

template <class T>
void put(std::byte* to, double x) {
    const T converted = static_cast<T>(x);
    std::memcpy(to, &converted, sizeof converted);
}
template <class T>
double get(const std::byte* from) {
    T x;
    std::memcpy(&x, from, sizeof x);
    return static_cast<double>(x);
}
void put(dynamic::element_type t, std::byte* to, double x) {
    switch (t.code()) {
        case dynamic::type::int32:
            return put<std::int32_t>(to, x);
        case dynamic::type::uint8:
            return put<std::uint8_t>(to, x);
        case dynamic::type::float32:
            return put<float>(to, x);
        default:
            return put<double>(to, x);
    }
}
double get(dynamic::element_type t, const std::byte* from) {
    switch (t.code()) {
        case dynamic::type::int32:
            return get<std::int32_t>(from);
        case dynamic::type::uint8:
            return get<std::uint8_t>(from);
        case dynamic::type::float32:
            return get<float>(from);
        default:
            return get<double>(from);
    }
}

// example-begin calls
/// All-reduces 1000 elements of a type that the program learns when it runs, each of value rank + 1; returns the first
/// of them.
double reduced(colls::communicator& comm, dynamic::element_type type, dynamic::op op, const std::string& schedule) {
    std::vector<std::byte> x(1000 * type.size());
    for (std::size_t i = 0; i < 1000; ++i) put(type, x.data() + i * type.size(), comm.rank() + 1);
    dynamic::all_reduce(comm, {x.data(), 1000, type}, op, {.schedule = schedule});
    return get(type, x.data());
}

/// x -> a x + b.
struct map {
    int a, b;
};
/// Composes maps: inout[i] is applied after in[i].
void compose(const void* in, void* inout, std::size_t count, void*) {
    const map* const first = static_cast<const map*>(in);
    map* const second = static_cast<map*>(inout);
    for (std::size_t i = 0; i < count; ++i)
        second[i] = {first[i].a * second[i].a, second[i].a * first[i].b + second[i].b};
}
/// The maps x -> 2 x + rank of all ranks, composed in the order of ranks.
map composed(colls::communicator& comm) {
    const auto op = dynamic::reduction::function(&compose, nullptr, false, "compose");
    map own{2, comm.rank()};
    dynamic::all_reduce(comm, {&own, 1, dynamic::element_type::bytes(sizeof own)}, op);
    return own;
}
// example-end

}  // namespace

int main(int argc, char** argv) {
    const std::string type = argc > 1 ? argv[1] : "float64", op = argc > 2 ? argv[2] : "sum",
                      schedule = argc > 3 ? argv[3] : "";
    if (!types.contains(type) || !operators.contains(op)) {
        std::fprintf(stderr, "usage: run_time_types TYPE OPERATOR [SCHEDULE]\n");
        return 2;
    }
    try {
        colls::threads::run(4, [&](colls::communicator& comm) {
            const double x = reduced(comm, types.at(type), operators.at(op), schedule);
            const map all = composed(comm);
            if (all.a != 16 || all.b != 11) throw std::runtime_error("the maps are composed in another order");
            if (comm.rank() == 0)
                std::printf("%s of %s: %g\nthe maps, in the order of ranks: x -> %d x + %d\n", op.c_str(), type.c_str(),
                    x, all.a, all.b);
        });
    } catch (const colls::error& failure) {
        std::printf("%s\n", failure.what());
        return 1;
    }
}
