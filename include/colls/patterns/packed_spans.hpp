// class packed_spans: several spans as one contiguous range, for one call over all of them.
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/support/sizes.hpp>
#include <colls/error.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace colls::inline v1 {

/// Several spans, one after the other, as one contiguous range. Where each of them begins in memory where the one
/// before it ends, that range is their own memory, and pack and unpack do nothing; else it is a buffer from
/// communicator::allocate, to which pack copies them and from which unpack copies them back. The order of elements is
/// the same in both cases, so ranks may differ in it. Spans of no elements may lie anywhere.
template <class T>
class packed_spans {
public:
    /// @param comm   where the buffer is allocated, if one is needed; it may be destroyed before this object
    /// @param parts  the spans, whose memory must outlive this object
    ///
    /// Throws invalid_argument where they are longer together than any memory.
    packed_spans(communicator& comm, std::vector<std::span<T>> parts) : parts_(std::move(parts)) {
        std::size_t total = 0;
        offsets_.reserve(parts_.size());
        for (const std::span<T>& part : parts_) {
            offsets_.push_back(total);
            total = detail::capped_sum(total, part.size());
        }
        if (detail::capped_product(total, sizeof(T)) > detail::longest_memory)
            throw error(errc::invalid_argument,
                "colls: packed_spans: the spans are longer together than 2^63 bytes: a length has overflowed or is "
                "negative",
                comm.rank());
        T* begin = nullptr;
        T* end = nullptr;
        bool adjoin = true;
        for (const std::span<T>& part : parts_) {
            if (part.empty()) continue;
            if (begin == nullptr) begin = part.data();
            if (end != nullptr && end != part.data()) adjoin = false;
            end = part.data() + part.size();
        }
        if (!adjoin) begin = buffer_.emplace(comm.template allocate<T>(total)).data();
        whole_ = {begin, total};
    }

    /// All elements, in the order of the parts. Stays where it is when this object is moved.
    std::span<T> whole() const { return whole_; }
    /// Whether whole() is the parts' own memory.
    bool in_place() const { return !buffer_; }

    /// Copies part i to whole(); nothing where in_place().
    void pack(std::size_t i) {
        if (buffer_) std::ranges::copy(parts_[i], buffer_->data() + offsets_[i]);
    }
    /// Copies all parts to whole().
    void pack() {
        for (std::size_t i = 0; i < parts_.size(); ++i) pack(i);
    }
    /// Copies whole() back to the parts.
    void unpack() {
        if (!buffer_) return;
        for (std::size_t i = 0; i < parts_.size(); ++i)
            std::copy_n(buffer_->data() + offsets_[i], parts_[i].size(), parts_[i].data());
    }

private:
    std::vector<std::span<T>> parts_;
    std::vector<std::size_t> offsets_;  // of the parts in whole()
    std::optional<memory<T>> buffer_;
    std::span<T> whole_;
};

}  // namespace colls::inline v1
