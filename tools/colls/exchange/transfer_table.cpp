#include "transfer_table.hpp"

#include <stdexcept>

namespace exchange {

namespace {

using colls::collective;

template <collective C>
struct listed {
    static constexpr collective implements = C;
    const transfer_table* table;

    bool supports(int n) const { return n == table->ranks; }
    int rounds(int) const { return table->rounds; }
    int ports(int) const { return table->ports; }
    int blocks(int) const { return table->blocks; }
    int scratch(int) const { return table->scratch; }
    int root(int) const { return table->root; }
    int output(int rank, int n, int slot) const {
        const auto r = static_cast<std::size_t>(rank);
        if (r >= table->outputs.size() || table->outputs[r].empty()) return slot / (table->blocks / n);
        return table->outputs[r][static_cast<std::size_t>(slot)];
    }
    colls::step at(int rank, int, int round, int port) const { return table->at(rank, round, port); }
};

template <collective C>
colls::any_schedule listed_as(const transfer_table& table) {
    return colls::any_schedule(listed<C>{&table}, colls::detail::table_of<listed<C>>, table.name);
}

}  // namespace

colls::any_schedule schedule_of(const transfer_table& table) {
    switch (table.implements) {
        case collective::broadcast:
            return listed_as<collective::broadcast>(table);
        case collective::scatter:
            return listed_as<collective::scatter>(table);
        case collective::gather:
            return listed_as<collective::gather>(table);
        case collective::all_gather:
            return listed_as<collective::all_gather>(table);
        case collective::reduce:
            return listed_as<collective::reduce>(table);
        case collective::reduce_scatter:
            return listed_as<collective::reduce_scatter>(table);
        case collective::all_reduce:
            return listed_as<collective::all_reduce>(table);
        case collective::all_to_all:
            return listed_as<collective::all_to_all>(table);
        default:
            throw std::runtime_error(std::string("there are no plans for ") + colls::name_of(table.implements));
    }
}

}  // namespace exchange
