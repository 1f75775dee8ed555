#include "buffers.hpp"

#include "failure.hpp"

#include <algorithm>

namespace colls_mpi {

namespace {

// MPI counts bytes in an int: it is given as many elements at a time as fit well.
std::size_t elements_at_a_time(const layout& l) {
    constexpr std::size_t most = std::size_t{1} << 30;
    if (l.size > most)
        throw mpi_failure(MPI_ERR_TYPE, "an element of more than 1 GiB that does not lie in a row cannot be packed");
    return most / l.size;
}
void check_position(int code, int position, std::size_t bytes, const char* call) {
    check(code, call);
    if (static_cast<std::size_t>(position) != bytes)
        throw mpi_failure(MPI_ERR_OTHER, "MPI packs data in another size than the datatype's: it is converted");
}

}  // namespace

void pack(const void* from, std::size_t count, MPI_Datatype type, const layout& l, std::byte* to) {
    if (count == 0 || l.size == 0) return;
    for (const std::size_t most = elements_at_a_time(l); count > 0;) {
        const std::size_t n = std::min(count, most), bytes = n * l.size;
        int position = 0;
        const int code =
            PMPI_Pack(from, static_cast<int>(n), type, to, static_cast<int>(bytes), &position, MPI_COMM_SELF);
        check_position(code, position, bytes, "MPI_Pack");
        from = displaced(from, static_cast<MPI_Aint>(n) * l.extent);
        to += bytes;
        count -= n;
    }
}
void unpack(const std::byte* from, void* to, std::size_t count, MPI_Datatype type, const layout& l) {
    if (count == 0 || l.size == 0) return;
    for (const std::size_t most = elements_at_a_time(l); count > 0;) {
        const std::size_t n = std::min(count, most), bytes = n * l.size;
        int position = 0;
        const int code =
            PMPI_Unpack(from, static_cast<int>(bytes), &position, to, static_cast<int>(n), type, MPI_COMM_SELF);
        check_position(code, position, bytes, "MPI_Unpack");
        to = displaced(to, static_cast<MPI_Aint>(n) * l.extent);
        from += bytes;
        count -= n;
    }
}

input::input(const void* data, std::size_t count, MPI_Datatype type, const layout& l) : bytes_(count * l.size) {
    if (l.in_row) {
        data_ = static_cast<const std::byte*>(data);
        return;
    }
    packed_ = scratch(bytes_);
    pack(data, count, type, l, packed_.data());
    data_ = packed_.data();
}

output::output(void* data, std::size_t count, MPI_Datatype type, const layout& l, bool with_contents)
    : target_(data), count_(count), bytes_(count * l.size), type_(type), layout_(l) {
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
