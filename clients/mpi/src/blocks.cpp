#include "blocks.hpp"

#include <colls/detail/support/sizes.hpp>

#include <numeric>

namespace colls_mpi {

block_list::block_list(
    const void* base, MPI_Count count, MPI_Count stride, MPI_Datatype type, const block_order& order) {
    const layout l = layout_of(type);
    fill(order, [&](int i) {
        return block{
            displaced(base, i * static_cast<MPI_Aint>(stride) * l.extent), static_cast<std::size_t>(count), type, l};
    });
}
block_list::block_list(const void* base, const numbers& counts, const numbers& displacements, MPI_Datatype type,
    const block_order& order) {
    const layout l = layout_of(type);
    fill(order, [&](int i) {
        return block{displaced(base, displacements[i] * l.extent), static_cast<std::size_t>(counts[i]), type, l};
    });
}
block_list::block_list(const void* base, const numbers& counts, const numbers& displacements,
    const MPI_Datatype types[], const block_order& order) {
    fill(order, [&](int i) {
        // The type of an empty block is looked at by no one.
        const layout l = counts[i] > 0 ? layout_of(types[i]) : layout{};
        return block{displaced(base, displacements[i]), static_cast<std::size_t>(counts[i]), types[i], l};
    });
}

template <class BlockAt>
void block_list::fill(const block_order& order, const BlockAt& block_at) {
    const int size = order.size();
    bytes_.reserve(static_cast<std::size_t>(size));
    for (int i = 0; i < size; ++i) {
        const block b = block_at(order[i]);
        const std::size_t bytes = colls::detail::capped_product(b.count, b.lies.size);
        if (bytes > 0) {
            if (total_ == 0) data_ = b.data;
            in_row_ = in_row_ && b.lies.in_row && b.data == data_ + total_;
        }
        bytes_.push_back(bytes);
        total_ = colls::detail::capped_sum(total_, bytes);
    }
    for (int i = 0; i < size && !in_row_; ++i) blocks_.push_back(block_at(order[i]));
}

std::size_t block_list::bytes_before(int i) const {
    return std::accumulate(bytes_.begin(), bytes_.begin() + i, std::size_t{0});
}
void block_list::pack_all(std::byte* to) const {
    for (const block& b : blocks_) {
        pack(b.data, b.count, b.type, b.lies, to);
        to += b.count * b.lies.size;
    }
}
void block_list::unpack_all(const std::byte* from) const {
    for (const block& b : blocks_) {
        unpack(from, b.data, b.count, b.type, b.lies);
        from += b.count * b.lies.size;
    }
}
void block_list::keep_types() {
    if (in_row_) return;
    MPI_Datatype latest = MPI_DATATYPE_NULL, kept = MPI_DATATYPE_NULL;  // often the same for all
    for (block& b : blocks_) {
        if (b.lies.size == 0) continue;
        if (b.type != latest) {
            latest = kept = b.type;
            if (!is_predefined(latest)) kept = kept_.emplace_back(latest).get();
        }
        b.type = kept;
    }
}

input_blocks::input_blocks(const block_list& from) : data_(from.data()) {
    if (from.in_row()) return;
    packed_ = scratch(from.total());
    data_ = packed_.data();
    from.pack_all(packed_.data());
}

output_blocks::output_blocks(const block_list& to) : to_(&to), data_(to.data()) {
    if (to.in_row()) return;
    packed_ = scratch(to.total());
    data_ = packed_.data();
}
void output_blocks::deliver() const {
    if (to_ != nullptr && !to_->in_row()) to_->unpack_all(data_);
}

}  // namespace colls_mpi
