#include "buffers.hpp"

#include "failure.hpp"

#include <colls/detail/support/sizes.hpp>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace colls_mpi {

namespace {

// MPI counts bytes in an int: it is given as many elements at a time as fit well.
constexpr std::size_t most_bytes = std::size_t{1} << 30;

void check_position(int code, int position, std::size_t bytes, const char* call) {
    check(code, call);
    if (static_cast<std::size_t>(position) != bytes)
        throw mpi_failure(MPI_ERR_OTHER, "MPI packs data in another size than the datatype's: it is converted");
}

/// MPICH refuses a null pointer, which MPI_BOTTOM is: elements at their absolute addresses are given as others, at the
/// address of their first byte.
class rebased {
public:
    rebased(const void* data, MPI_Datatype type, const layout& l) : data_(data), type_(type) {
        if (data != MPI_BOTTOM) return;
        const int one = 1;
        const MPI_Aint back = -l.first;
        MPI_Datatype moved = MPI_DATATYPE_NULL;
        check(PMPI_Type_create_hindexed(1, &one, &back, type, &moved), "MPI_Type_create_hindexed");
        const int code = PMPI_Type_create_resized(moved, 0, l.extent, &own_);
        PMPI_Type_free(&moved);
        check(code, "MPI_Type_create_resized");
        check(PMPI_Type_commit(&own_), "MPI_Type_commit");
        data_ = displaced(data, l.first);
        type_ = own_;
    }
    rebased(const rebased&) = delete;
    rebased& operator=(const rebased&) = delete;
    ~rebased() {
        if (own_ != MPI_DATATYPE_NULL) PMPI_Type_free(&own_);
    }
    const void* data() const { return data_; }
    MPI_Datatype type() const { return type_; }

private:
    const void* data_;
    MPI_Datatype type_, own_ = MPI_DATATYPE_NULL;
};

/// Calls move(data, count, type, layout, packed) for rows of elements of which MPI can pack one, and which are all of
/// `count` elements: those themselves, or what they are made of where they are larger.
template <class F>
void in_pieces(
    const std::byte* data, std::size_t count, MPI_Datatype type, const layout& l, std::byte*& packed, const F& move) {
    if (count == 0 || l.size == 0) return;
    if (l.in_row || l.size <= most_bytes) {
        move(data, count, type, l, packed);
        packed += count * l.size;
        return;
    }
    for (std::size_t i = 0; i < count; ++i, data = displaced(data, l.extent))
        if (!for_each_part(type, [&](MPI_Aint at, std::size_t parts, MPI_Datatype of) {
                in_pieces(displaced(data, at), parts, of, layout_of(of), packed, move);
            }))
            throw mpi_failure(MPI_ERR_TYPE, "an element of more than 1 GiB of a distributed array cannot be packed");
}

}  // namespace

bool mpi_refuses_aliases() {
#if defined(MPICH)
    return true;
#elif defined(OPEN_MPI)
    return false;
#else
    // The standard ABI does not say whose it is.
    static const bool refuses = [] {
        char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
        int length = 0;
        PMPI_Get_library_version(text, &length);
        return std::string_view(text).starts_with("MPICH");
    }();
    return refuses;
#endif
}

void pack(const void* from, std::size_t count, MPI_Datatype type, const layout& l, std::byte* to) {
    const auto move = [](const std::byte* data, std::size_t n, MPI_Datatype of, const layout& each, std::byte* packed) {
        if (each.in_row) {
            std::memcpy(packed, data, n * each.size);
            return;
        }
        const rebased row(data, of, each);
        const void* at = row.data();
        for (std::size_t left = n; left > 0;) {
            const std::size_t now = std::min(left, most_bytes / each.size), bytes = now * each.size;
            int position = 0;
            const int code = PMPI_Pack(
                at, static_cast<int>(now), row.type(), packed, static_cast<int>(bytes), &position, MPI_COMM_SELF);
            check_position(code, position, bytes, "MPI_Pack");
            at = displaced(at, static_cast<MPI_Aint>(now) * each.extent);
            packed += bytes;
            left -= now;
        }
    };
    in_pieces(static_cast<const std::byte*>(from), count, type, l, to, move);
}
void unpack(const std::byte* from, void* to, std::size_t count, MPI_Datatype type, const layout& l) {
    const auto move = [](const std::byte* data, std::size_t n, MPI_Datatype of, const layout& each, std::byte* packed) {
        auto* const to_data = const_cast<std::byte*>(data);
        if (each.in_row) {
            std::memcpy(to_data, packed, n * each.size);
            return;
        }
        const rebased row(to_data, of, each);
        auto* at = const_cast<void*>(row.data());
        for (std::size_t left = n; left > 0;) {
            const std::size_t now = std::min(left, most_bytes / each.size), bytes = now * each.size;
            int position = 0;
            const int code = PMPI_Unpack(
                packed, static_cast<int>(bytes), &position, at, static_cast<int>(now), row.type(), MPI_COMM_SELF);
            check_position(code, position, bytes, "MPI_Unpack");
            at = displaced(at, static_cast<MPI_Aint>(now) * each.extent);
            packed += bytes;
            left -= now;
        }
    };
    auto* packed = const_cast<std::byte*>(from);
    in_pieces(static_cast<const std::byte*>(to), count, type, l, packed, move);
}

input::input(const void* data, std::size_t count, MPI_Datatype type, const layout& l)
    : bytes_(colls::detail::capped_product(count, l.size)) {
    if (l.in_row) {
        data_ = static_cast<const std::byte*>(data);
        return;
    }
    packed_ = scratch(bytes_);
    pack(data, count, type, l, packed_.data());
    data_ = packed_.data();
}

output::output(void* data, std::size_t count, MPI_Datatype type, const layout& l, bool with_contents)
    : target_(data), count_(count), bytes_(colls::detail::capped_product(count, l.size)), type_(type), layout_(l) {
    if (l.in_row) {
        data_ = static_cast<std::byte*>(data);
        return;
    }
    packed_ = scratch(bytes_);
    data_ = packed_.data();
    if (with_contents) pack(data, count, type, l, data_);
}
void output::keep_type() {
    if (data_ == nullptr || data_ == target_ || is_predefined(type_)) return;
    kept_ = kept_type(type_);
    type_ = kept_.get();
}
void output::deliver() const {
    if (data_ != nullptr && data_ != target_) unpack(data_, target_, count_, type_, layout_);
}

}  // namespace colls_mpi
