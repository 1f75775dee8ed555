// Operators and datatypes that calls need later, where the program frees them meanwhile.
#pragma once

#include "numbers.hpp"

#include <colls/mpi/detail/mpi_header.hpp>

#include <utility>
#include <vector>

namespace colls_mpi {

/// MPI has no second handle for an operator, and none for a datatype that the program's operators would see as the
/// same. So MPI_Op_free and MPI_Type_free leave to MPI what no call holds, and the last hold frees the rest. A handle
/// that the program does not free may be anything, as those of arguments that count on another rank only.
void hold(MPI_Op op);
void let_go(MPI_Op op);
void hold_type(MPI_Datatype type);  // the handles of some MPIs are all integers
void let_go_type(MPI_Datatype type);

/// A handle that stays valid.
template <class Handle, void (*Hold)(Handle), void (*LetGo)(Handle)>
class held {
public:
    held() = default;
    explicit held(Handle handle) : handle_(handle), holds_(true) { Hold(handle); }
    held(const held& other) : handle_(other.handle_), holds_(other.holds_) {
        if (holds_) Hold(handle_);
    }
    held(held&& other) noexcept : handle_(other.handle_), holds_(std::exchange(other.holds_, false)) {}
    held& operator=(held other) noexcept {
        std::swap(handle_, other.handle_);
        std::swap(holds_, other.holds_);
        return *this;
    }
    ~held() {
        if (holds_) LetGo(handle_);
    }
    operator Handle() const { return handle_; }  // as an argument of a call

private:
    Handle handle_{};
    bool holds_ = false;
};
using held_operator = held<MPI_Op, &hold, &let_go>;
using held_type = held<MPI_Datatype, &hold_type, &let_go_type>;

/// Likewise a datatype for each rank, in the program's array.
class held_types {
public:
    held_types(const MPI_Datatype types[], int count) : types_(types) {
        for (int i = 0; types != nullptr && i < count; ++i) all_.emplace_back(types[i]);
    }
    operator const MPI_Datatype*() const { return types_; }

private:
    const MPI_Datatype* types_;
    std::vector<held_type> all_;
};

/// The numbers in an array of the program, which it may free. (mpi4py does, after MPI_Allgatherv_init and
/// MPI_Reduce_scatter_init.)
template <class T>
class held_numbers {
public:
    held_numbers(const T numbers[], int count) {
        if (numbers != nullptr) all_.assign(numbers, numbers + count);
    }
    operator numbers() const { return all_.empty() ? nullptr : all_.data(); }

private:
    std::vector<T> all_;
};

/// How long the arrays of a call are that have an element for each rank, where colls may run it.
int ranks_of(MPI_Comm comm);

}  // namespace colls_mpi
