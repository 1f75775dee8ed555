// Datatypes of MPI: how their elements lie in memory, and which of colls' element types they are.
#pragma once

#include <colls/dynamic/codes.hpp>
#include <colls/mpi/detail/mpi_header.hpp>

#include <cstddef>
#include <functional>
#include <utility>

namespace colls_mpi {

/// How the elements of a datatype lie in memory.
struct layout {
    std::size_t size = 0;  ///< bytes of data in an element
    MPI_Aint extent = 0;   ///< from one element to the next
    MPI_Aint first = 0;    ///< of the first byte of data, from the element's address
    MPI_Aint last = 0;     ///< behind the last byte of data
    bool in_row = false;   ///< elements are their data in the order of the signature, without gaps
};
layout layout_of(MPI_Datatype type);

/// Called with the displacement in bytes, the number and the type of a row of elements.
using part_function = std::function<void(MPI_Aint, std::size_t, MPI_Datatype)>;
/// The rows of elements that one element of a derived datatype is made of, in the order of its signature. False: it is
/// predefined, or made in a way that is not taken apart (a distributed array).
bool for_each_part(MPI_Datatype type, const part_function& f);

/// False: it is a derived datatype, which the program may free.
bool is_predefined(MPI_Datatype type);

/// A datatype that describes the same data as another one for as long as it lives, also where the program frees that.
/// No copy of it, which would call the callbacks of its attributes.
class kept_type {
public:
    kept_type() = default;
    explicit kept_type(MPI_Datatype type);
    kept_type(kept_type&& other) noexcept : type_(std::exchange(other.type_, MPI_DATATYPE_NULL)) {}
    kept_type& operator=(kept_type&& other) noexcept {
        std::swap(type_, other.type_);
        return *this;
    }
    ~kept_type() {
        if (type_ != MPI_DATATYPE_NULL) PMPI_Type_free(&type_);
    }
    MPI_Datatype get() const { return type_; }

private:
    MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// What MPI's operators take a type for.
enum class category : unsigned char { none, integer, real, complex, logical, bytes, pair };

/// A predefined datatype, to MPI's operators.
struct known_type {
    category what = category::none;  ///< none: no operator takes it, or it is not predefined
    bool has_code = false;           ///< colls has the type
    colls::dynamic::type code = colls::dynamic::type::bytes;
};
known_type known_type_of(MPI_Datatype type);

}  // namespace colls_mpi
