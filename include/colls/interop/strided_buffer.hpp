// A tensor of other libraries as a buffer of dynamic calls: what interop::strided returns (mdspan.hpp, dlpack.hpp).
#pragma once

#include <colls/interop/detail/strided_layout.hpp>

#include <utility>

namespace colls::inline v1 {
namespace interop {

/// The elements of a tensor as an input of dynamic calls, in the order of their indices, of which the last runs
/// fastest, wherever they lie. So ranks may have the same tensor in different layouts. It holds its data_layout, which
/// takes memory for each run of elements where these lie in more than two dimensions, but none of the elements.
class strided_input {
public:
    /// For the library.
    strided_input(const void* data, dynamic::element_type type, detail::strided_layout&& l)
        : data_(data), type_(type), layout_(std::move(l)) {}

    /// How many elements.
    std::size_t size() const { return layout_.count; }
    /// Do they follow each other in memory? Otherwise a call packs them.
    bool in_row() const { return layout_.in_row; }
    /// Refers to this object, which must outlive the statement that makes the call.
    operator dynamic::const_buffer() const { return {data_, repetitions(), type_, layout()}; }

private:
    friend class strided_buffer;
    std::size_t repetitions() const { return layout_.in_row ? layout_.count : 1; }
    const dynamic::data_layout* layout() const { return layout_.in_row ? nullptr : &layout_.layout; }
    const void* data_;
    dynamic::element_type type_;
    detail::strided_layout layout_;
};
/// The same as an output too.
class strided_buffer : public strided_input {
public:
    /// For the library.
    strided_buffer(void* data, dynamic::element_type type, detail::strided_layout&& l)
        : strided_input(data, type, std::move(l)) {}
    /// Refers to this object, which must outlive the statement that makes the call.
    operator dynamic::buffer() const { return {const_cast<void*>(data_), repetitions(), type_, layout()}; }
    /// The same as an input.
    operator dynamic::const_buffer() const { return strided_input::operator dynamic::const_buffer(); }
};

}  // namespace interop
}  // namespace colls::inline v1
