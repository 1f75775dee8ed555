// How colls folds for an operator and a datatype of MPI.
#pragma once

#include "buffers.hpp"
#include "held.hpp"
#include "types.hpp"

#include <colls/dynamic.hpp>

#include <cstddef>
#include <type_traits>

namespace colls_mpi {

/// An operator of MPI on elements of a datatype: colls' own one for predefined pairs, else a vector function that calls
/// MPI_Reduce_local. Calls to colls refer to it.
class folding {
public:
    /// `count`: elements of each operand, where every rank folds all of them at once; 0: colls may cut the operands. An
    /// operator of the program may expect just what the program has passed: it is called for all elements then.
    folding(MPI_Op op, MPI_Datatype type, MPI_Count count);
    folding(const folding&) = delete;
    folding& operator=(const folding&) = delete;

    /// MPI folds, on all ranks: it has no such pair, and reports that, or it is one that colls does not know.
    bool left_to_mpi() const { return way_ == way::mpi; }
    /// The program may free its operator and the datatype before the last fold and the delivery of the result.
    void keep_handles();
    const colls::dynamic::reduction& operation() const { return operation_; }
    /// The same for a call that is no scan and is made by Mode: with COLLS_MPI_EXACT=1 exact, where it blocks.
    template <class Mode>
    const colls::dynamic::reduction& operation_by() const {
        return std::is_void_v<typename Mode::result> && may_be_exact_ ? exact : operation_;
    }
    const colls::dynamic::element_type& element() const { return element_; }
    /// How an operand is passed: the layout that `input` and `output` get.
    const layout& operand() const { return operand_; }
    /// The bytes of what colls takes for an element.
    std::size_t element_bytes() const { return operand_.size * at_once_; }
    /// Throws what a call of MPI_Reduce_local has reported.
    void check() const;

private:
    enum class way : unsigned char { mpi, colls, function };

    static void fold(const void* in, void* inout, std::size_t count, void* context);
    void fold_in_row(const void* in, void* inout, std::size_t count);
    void fold_packed(const void* in, void* inout, std::size_t count);
    int reduce_local(const void* in, void* inout, std::size_t count) const;

    static constexpr colls::dynamic::reduction exact{colls::dynamic::op::exact};

    const MPI_Op op_;
    const MPI_Datatype type_;
    way way_ = way::mpi;
    bool may_be_exact_ = false;
    bool predefined_ = false;  // the operator is one of MPI's, which takes predefined datatypes alone
    held_operator held_operator_;
    held_type held_type_;
    layout operand_;
    std::size_t at_once_ = 1;  // elements of the datatype in one of colls
    colls::dynamic::reduction operation_ = colls::dynamic::op::sum;
    colls::dynamic::element_type element_ = colls::dynamic::type::bytes;
    int error_ = MPI_SUCCESS;
};

}  // namespace colls_mpi
