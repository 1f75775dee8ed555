// Packed copies of the buffers whose elements do not lie in a row, or of which a call takes blocks by displacements.
// IWYU pragma: private, include <colls/dynamic.hpp>
#pragma once

#include <colls/detail/perform/interface.hpp>
#include <colls/detail/request/request.hpp>
#include <colls/dynamic/detail/element_sequence.hpp>

#include <optional>
#include <utility>

namespace colls::inline v1::detail {

/// A part of a sequence of elements, in bytes.
struct sequence_part {
    std::size_t first, bytes;
};

/// One buffer, and the memory in which parts of it lie in a row. All ranks reach that memory. The rank context must
/// outlive it.
class packed_buffer {
public:
    packed_buffer(const rank_handle& rank, std::byte* user, element_sequence&& lies, list<sequence_part>&& parts,
        std::size_t bytes)
        : rank_(rank), user_(user), lies_(std::move(lies)), parts_(std::move(parts)), kept_(bytes) {
        packed_ = rank.by->take_kept(*rank.self, kept_);
    }
    packed_buffer(const packed_buffer&) = delete;
    packed_buffer& operator=(const packed_buffer&) = delete;
    ~packed_buffer() { rank_.by->give_kept(*rank_.self, packed_, kept_); }

    std::byte* data() { return packed_; }
    void pack() { copy<true>(); }
    void unpack() { copy<false>(); }

private:
    template <bool packs>
    void copy() {
        std::byte* at = packed_;
        for (const sequence_part& part : parts_) {
            lies_.copy<packs>(user_, part.first, part.bytes, at);
            at += part.bytes;
        }
    }
    const rank_handle rank_;
    std::byte* user_;
    element_sequence lies_;
    list<sequence_part> parts_;
    std::size_t kept_;
    std::byte* packed_ = nullptr;
};

/// Those of a call.
struct packed_buffers final : packed_arguments {
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
