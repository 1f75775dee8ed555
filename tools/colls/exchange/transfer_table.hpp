// A schedule that is a list: the steps of all ranks, written down.
#pragma once

#include <colls/any_schedule.hpp>

#include <string>
#include <vector>

namespace exchange {

/// The steps of a schedule for one group size, and what it says of itself.
struct transfer_table {
    std::string name;
    colls::collective implements = colls::collective::all_reduce;
    int ranks = 0, rounds = 0, ports = 1, blocks = 0, scratch = 0, root = 0;
    std::vector<colls::step> steps;  ///< [round][rank][port]
    /// all_to_all: of each rank the source of what each slot holds at the end. Empty: as blocks are numbered.
    std::vector<std::vector<int>> outputs;

    const colls::step& at(int rank, int round, int port) const { return steps[index(rank, round, port)]; }
    colls::step& at(int rank, int round, int port) { return steps[index(rank, round, port)]; }

private:
    std::size_t index(int rank, int round, int port) const {
        return static_cast<std::size_t>((round * ranks + rank) * ports + port);
    }
};

/// The schedule that a table is. It refers to the table, which must stay where it is, and is proven before it runs.
/// Throws std::runtime_error for a collective that no plan implements.
colls::any_schedule schedule_of(const transfer_table& table);

}  // namespace exchange
