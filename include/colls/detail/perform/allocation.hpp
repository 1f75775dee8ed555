// Memory from communicator::allocate.
// IWYU pragma: private, include <colls/communicator.hpp>
#pragma once

#include <colls/detail/execute/operation_state.hpp>
#include <colls/detail/group/progress_lock.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/perform/interface.hpp>

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
COLLS_INLINE allocation* allocate(rank_context& self, std::size_t count, std::size_t element, std::byte*& at) {
    constexpr std::size_t most = std::size_t{1} << 56;  // no process has more addresses
    if (count > most / element) throw std::bad_array_new_length();
    const std::size_t bytes = count * element;
    auto a = std::make_unique<allocation>(allocation{self.backend, nullptr, bytes, self.born});
    at = a->at = self.backend->take_for_program(bytes);
    return a.release();
}
COLLS_INLINE void deallocate(allocation* a) {
    if (a->born != forks.load(std::memory_order_relaxed)) return;
    a->from->give(a->at, a->bytes);
    delete a;
}
COLLS_INLINE std::byte* take_kept(rank_context& self, std::size_t& bytes) {
    if (self.is_foreign()) refuse_progress(self);
    const progress_lock mine(self, progress_lock::quiet{});
    const memory_piece piece = self.scratch.take(*self.backend, bytes);
    if (piece.at != nullptr && !piece.populated) self.backend->populate(piece.at, piece.bytes);
    bytes = piece.bytes;
    return piece.at;
}
COLLS_INLINE void give_kept(rank_context& self, std::byte* at, std::size_t bytes) {
    if (at == nullptr || self.is_foreign()) return;
    const progress_lock mine(self, progress_lock::quiet{});
    constexpr std::size_t most = 8;  // where many plans end, their memory goes back to the group
    if (self.scratch.pieces.size() < most)
        self.scratch.pieces.push_back({at, bytes, true});
    else
        self.backend->give(at, bytes);
}

}  // namespace colls::inline v1::detail
