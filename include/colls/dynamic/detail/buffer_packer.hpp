// From a buffer as its caller describes it to memory in which the call's elements lie in a row.
// IWYU pragma: private, include <colls/dynamic.hpp>
#pragma once

#include <colls/communicator.hpp>
#include <colls/detail/perform/interface.hpp>
#include <colls/dynamic/count_list.hpp>
#include <colls/dynamic/data_layout.hpp>
#include <colls/dynamic/detail/packed_buffers.hpp>
#include <colls/schedule.hpp>

#include <optional>
#include <string_view>

namespace colls::inline v1::detail {

/// One buffer as its caller describes it, and then as the call is to take it.
struct buffer_placement {
    const char* name;
    std::byte* data;
    std::size_t count;
    const dynamic::data_layout* layout;
    const dynamic::count_list* blocks;
};

/// Packs the buffers of one call, or refuses it.
class buffer_packer {
public:
    /// Packs the buffers of a collective.
    buffer_packer(communicator& comm, collective what) : buffer_packer(comm, v1::name_of(what)) {
        is_collective_ = true;
    }
    /// Packs those of a message.
    buffer_packer(communicator& comm, std::string_view name)
        : handle_(comm.handle()), rank_(comm.rank()), ranks_(comm.size()), name_(name) {}
    /// The call is the variant with counts.
    void is_of_counts() { suffix_ = "_v"; }

    const rank_handle& handle() const { return handle_; }
    int rank() const { return rank_; }
    [[noreturn]] [[gnu::cold]] void refuse(const error_text& why) const {
        error_text text;
        text << "colls: rank " << rank_ << " in " << name_ << suffix_ << ": " << why.text();
        if (!is_collective_) throw error(errc::invalid_argument, text.text(), rank_);
        refuse_call(handle_, errc::invalid_argument, text.text());
    }

    /// Where the elements of the buffer do not lie in a row, makes memory in which they do, and lets the call take
    /// that. Throws invalid_argument where the layout or the displacements cannot be.
    void pack(buffer_placement& b, std::size_t element, bool is_written, std::optional<packed_buffer>& made) const {
        element_sequence lies = sequence_of(b, element, is_written);
        list<sequence_part> parts;
        std::size_t taken = lies.bytes();
        if (b.blocks)
            taken = take_blocks(b, element, lies.bytes() / element, is_written, parts);
        else if (taken > 0)
            parts.push_back({0, taken});
        b.count = taken / element;
        if (lies.is_in_row() && parts.size() <= 1) {
            if (!parts.empty()) b.data += lies.offset() + parts[0].first;
            return;
        }
        made.emplace(handle_, b.data, std::move(lies), std::move(parts), taken);
        b.data = made->data();
    }

private:
    element_sequence sequence_of(const buffer_placement& b, std::size_t element, bool is_written) const {
        element_sequence lies = b.layout ? element_sequence(*b.layout, b.count, element)
                                         : element_sequence(capped_product(b.count, element));
        if (lies.is_beyond_memory()) {
            error_text text;
            text << "the " << b.name << " of " << b.count;
            if (b.layout) text << " repetitions of a layout of extent " << b.layout->extent();
            refuse(text << " elements of " << element
                        << (is_negative(b.count)
                                   ? " bytes: the count is negative"
                                   : " bytes reaches beyond 2^63 bytes: a size, stride or offset has overflowed"));
        }
        if (lies.broken_block() > 0)
            refuse(error_text() << "the layout of the " << b.name << " has a block of " << lies.broken_block()
                                << " bytes, not a multiple of the " << element << " bytes of an element");
        if (b.data == nullptr && lies.bytes() > 0)
            refuse(error_text() << "the " << b.name << " of " << lies.bytes() / element << " elements is null");
        if (is_written && lies.overlaps_itself())
            refuse(error_text() << "the layout of the " << b.name << " has blocks that overlap (" << b.count
                                << " repetitions of extent " << b.layout->extent() << "): they must not overlap");
        return lies;
    }
    /// Checks blocks with displacements in a buffer that holds `held` elements, and enters those that are not empty, in
    /// bytes, as one where they follow each other. Returns their bytes.
    std::size_t take_blocks(const buffer_placement& b, std::size_t element, std::size_t held, bool is_written,
        list<sequence_part>& parts) const {
        const dynamic::count_list& blocks = *b.blocks;
        const char* const name = b.name;
        const auto n = static_cast<std::size_t>(ranks_);
        if (blocks.size() != n || blocks.displaced() != n)
            refuse(error_text() << blocks.size() << " counts and " << blocks.displaced() << " displacements of the "
                                << name << " are given, and should be " << n << " each, one for each rank");
        const std::size_t* const counts = blocks.data();
        const std::size_t* const at = blocks.displacements();
        const auto put = [&](error_text& text, std::size_t r) -> error_text& {
            return text << "elements " << at[r] << " to " << at[r] + counts[r] - 1;
        };
        std::size_t taken = 0;
        list<span_of_bytes> spans;
        for (std::size_t r = 0; r < n; ++r) {
            if (counts[r] == 0) continue;
            if (is_negative(counts[r]))
                refuse(error_text() << "the count of rank " << r << "'s block of the " << name << " is " << counts[r]
                                    << ": it is negative");
            if (is_negative(at[r]))
                refuse(error_text() << "the displacement of rank " << r << "'s block of the " << name << " is " << at[r]
                                    << ": it is negative, " << 0 - at[r] << " elements before the buffer's begin");
            if (at[r] > held || counts[r] > held - at[r]) {
                error_text text;
                text << "the block of rank " << r << " is ";
                refuse(put(text, r) << " of the " << name << ", which holds " << held);
            }
            const sequence_part part{at[r] * element, counts[r] * element};
            spans.push_back({part.first, part.first + part.bytes, r});
            taken = capped_sum(taken, part.bytes);
            if (taken > longest_memory)
                refuse(error_text() << "the blocks of the " << name << " are longer together than 2^63 bytes");
            if (!parts.empty() && parts.back().first + parts.back().bytes == part.first)
                parts.back().bytes += part.bytes;
            else
                parts.push_back(part);
        }
        if (!is_written) return taken;
        if (const std::size_t i = first_overlap(spans); i > 0) {
            const std::size_t a = spans[i - 1].of, c = spans[i].of;
            error_text text;
            text << "the blocks of ranks " << (a < c ? a : c) << " and " << (a < c ? c : a) << " overlap in the "
                 << name << ": ";
            put(text, a < c ? a : c) << ", and ";
            refuse(put(text, a < c ? c : a));
        }
        return taken;
    }

    const rank_handle handle_;
    const int rank_, ranks_;
    const std::string_view name_;
    const char* suffix_ = "";
    bool is_collective_ = false;
};

}  // namespace colls::inline v1::detail
