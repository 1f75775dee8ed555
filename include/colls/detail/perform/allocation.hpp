// Memory from communicator::allocate.
// IWYU pragma: private, include <colls/communicator.hpp>
#pragma once

#include <colls/detail/group/in_call.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/perform/interface.hpp>

#include <atomic>
#include <new>

namespace colls::inline v1::detail {

/// It keeps alive the backend, of which the memory is part.
struct allocation final : held_by_program {
    allocation(rank_context& self, std::size_t n)
        : from(self.backend), at(from->take_for_program(n)), bytes(n), born(self.born) {}
    void end() override {
        if (born != forks.load(std::memory_order_relaxed)) return;
        from->give(at, bytes);
        delete this;
    }
    const shared_backend from;
    std::byte* const at;
    const std::size_t bytes;
    const unsigned born;  ///< as rank_context::born
};
inline held_by_program* allocate(rank_context& self, std::size_t count, std::size_t element, std::byte*& at) {
    constexpr std::size_t most = std::size_t{1} << 56;  // no process has more addresses
    if (count > most / element) throw std::bad_array_new_length();
    auto* const a = new allocation(self, count * element);
    at = a->at;
    return a;
}
inline std::byte* take_kept(rank_context& self, std::size_t& bytes) {
    if (self.is_foreign()) refuse_progress(self);
    const progress_lock mine(self, progress_lock::quiet{});
    const memory_piece piece = self.scratch.take(*self.backend, bytes);
    if (piece.at != nullptr && !piece.populated) self.backend->populate(piece.at, piece.bytes);
    bytes = piece.bytes;
    return piece.at;
}
inline void give_kept(rank_context& self, std::byte* at, std::size_t bytes) {
    if (at == nullptr || self.is_foreign()) return;
    const progress_lock mine(self, progress_lock::quiet{});
    constexpr std::size_t most = 8;  // where many plans end, their memory goes back to the group
    if (self.scratch.pieces.size() < most)
        self.scratch.pieces.push_back({at, bytes, true});
    else
        self.backend->give(at, bytes);
}

}  // namespace colls::inline v1::detail
