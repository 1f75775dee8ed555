// Memory from communicator::allocate.
// IWYU pragma: private, include <colls/memory.hpp>
#pragma once

#include <colls/detail/call/perform.hpp>
#include <colls/detail/group/rank_context.hpp>

#include <atomic>
#include <memory>
#include <new>

namespace colls::inline v1::detail {

struct allocation {
    shared_backend from;  ///< keeps alive what the memory is part of
    std::byte* at;
    std::size_t bytes;
    unsigned born;  ///< as rank_context::born
};
COLLS_INLINE allocation* allocate(rank_context& e, std::size_t count, std::size_t element, std::byte*& at) {
    constexpr std::size_t most = std::size_t{1} << 56;  // no process has more addresses
    if (count > most / element) throw std::bad_array_new_length();
    const std::size_t bytes = count * element;
    auto a = std::make_unique<allocation>(allocation{e.backend, nullptr, bytes, e.born});
    at = a->at = e.backend->take(bytes);
    return a.release();
}
COLLS_INLINE void deallocate(allocation* a) {
    if (a->born != forks.load(std::memory_order_relaxed)) return;
    a->from->give(a->at, a->bytes);
    delete a;
}

}  // namespace colls::inline v1::detail
