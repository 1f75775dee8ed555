// Packed copies of the buffers whose elements do not lie in a row, or of which a call takes blocks by displacements.
// IWYU pragma: private, include <colls/dynamic.hpp>
#pragma once

#include <colls/detail/dynamic/element_sequence.hpp>
#include <colls/detail/request/staged_buffers.hpp>
#include <colls/memory.hpp>

#include <optional>
#include <utility>

namespace colls::inline v1::detail {

/// A part of a sequence of elements, in bytes.
struct sequence_part {
    std::size_t first, bytes;
};

/// One buffer, and the memory in which parts of it lie in a row. All ranks reach that memory.
class packed_buffer {
public:
    packed_buffer(
        rank_context& e, std::byte* user, element_sequence&& lies, list<sequence_part>&& parts, std::size_t bytes)
        : user_(user), lies_(std::move(lies)), parts_(std::move(parts)), packed_(e, bytes) {}

    std::byte* data() { return packed_.data(); }
    void pack() { copy<true>(); }
    void unpack() { copy<false>(); }

private:
    template <bool packs>
    void copy() {
        std::byte* at = packed_.data();
        for (const sequence_part& part : parts_) {
            lies_.copy<packs>(user_, part.first, part.bytes, at);
            at += part.bytes;
        }
    }
    std::byte* user_;
    element_sequence lies_;
    list<sequence_part> parts_;
    memory<std::byte> packed_;
};

/// Those of a call.
struct packed_buffers final : staged_buffers {
    std::optional<packed_buffer> in, out;
    bool packs_output = false;    ///< the output has an input: it is in place, or the root's of a broadcast
    bool unpacks_output = false;  ///< this rank's output is written

    void pack() override {
        if (in) in->pack();
        if (out && packs_output) out->pack();
    }
    void unpack() override {
        if (out && unpacks_output) out->unpack();
    }
};

}  // namespace colls::inline v1::detail
