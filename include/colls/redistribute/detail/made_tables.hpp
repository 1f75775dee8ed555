// The tables of redistributions that this process has made.
// IWYU pragma: private, include <colls/redistribute.hpp>
#pragma once

#include <colls/config.hpp>
#include <colls/detail/support/list.hpp>
#include <colls/detail/support/process_lock.hpp>
#include <colls/redistribute/detail/transfer_table.hpp>

namespace colls::inline v1::detail {

COLLS_INLINE const transfer_table* transfer_table_of(const layout& from, const layout& to) {
    const process_lock lock;
    // Never destroyed: threads may outlive main, and plans refer to the tables.
    static list<const transfer_table*>& made = *new list<const transfer_table*>;
    for (const transfer_table* t : made)
        if (t->from == from && t->to == to) return t;
    made.push_back(&(new transfer_builder(from, to))->table());
    return made.back();
}

}  // namespace colls::inline v1::detail
