// Epilogues: what a call applies to each element of a rank's result as it is written.
#pragma once

namespace colls::inline v1::cuda {

/// Writes each element as it is: the default of every call. An epilogue of one's own is a functor
///
///     __device__ D operator()(A value, std::size_t index) const;
///
/// that is applied once to each element of the result: scale, bias and activation, cast. `value`: of the type in which
/// folds are computed, which is float for the small floats, else the element type of the input. `index`: of the element
/// in this rank's output. D: the element type of the output. It is passed to the kernel by value.
struct no_epilogue {};

}  // namespace colls::inline v1::cuda
