// Tensors as buffers of the library.
#pragma once

#include <colls/dynamic.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>

namespace colls_torch {

namespace dynamic = colls::dynamic;

/// How a call names the element type, for calls that move elements and for those that reduce them.
inline dynamic::element_type element_type_of(const at::Tensor& t) {
    switch (t.scalar_type()) {
        case at::kByte:
            return dynamic::type::uint8;
        case at::kChar:
            return dynamic::type::int8;
        case at::kShort:
            return dynamic::type::int16;
        case at::kInt:
            return dynamic::type::int32;
        case at::kLong:
            return dynamic::type::int64;
        case at::kUInt16:
            return dynamic::type::uint16;
        case at::kUInt32:
            return dynamic::type::uint32;
        case at::kUInt64:
            return dynamic::type::uint64;
        case at::kHalf:
            return dynamic::type::half;
        case at::kBFloat16:
            return dynamic::type::bfloat16;
        case at::kFloat:
            return dynamic::type::float32;
        case at::kDouble:
            return dynamic::type::float64;
        case at::kComplexFloat:
            return dynamic::type::complex_float32;
        case at::kComplexDouble:
            return dynamic::type::complex_float64;
        case at::kBool:
            return dynamic::type::boolean;
        default:
            return dynamic::element_type::bytes(t.element_size());  // such as 8-bit floats: moved, not reduced
    }
}

/// Does the memory have the elements as they are, one after the other? Not that of a conjugate view or a negative one.
inline bool is_plain(const at::Tensor& t) { return t.is_contiguous() && !t.is_conj() && !t.is_neg(); }
/// The tensor, or a copy that is plain.
inline at::Tensor plain(const at::Tensor& t) { return is_plain(t) ? t : t.contiguous().resolve_conj().resolve_neg(); }

/// A plain tensor.
inline dynamic::const_buffer input(const at::Tensor& t) {
    return {t.const_data_ptr(), static_cast<std::size_t>(t.numel()), element_type_of(t)};
}
inline dynamic::buffer output(const at::Tensor& t) {
    return {t.mutable_data_ptr(), static_cast<std::size_t>(t.numel()), element_type_of(t)};
}

/// As Python names the type.
inline std::string name_of(at::ScalarType t) { return "torch." + std::string(c10::getDtypeNames(t).first); }

/// What is reduced for a tensor: of complex halves their parts, since the library has no such type.
inline at::Tensor reducible(const at::Tensor& t, const c10d::ReduceOp& op) {
    if (t.scalar_type() != at::kComplexHalf) return t;
    TORCH_CHECK(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG, "colls: tensors of type ",
        name_of(t.scalar_type()), " have SUM and AVG alone: convert them to torch.complex64");
    return at::view_as_real(t);
}

/// COLLS_TORCH_EXACT=1: sums of float and double tensors, half and bfloat16, are colls::exact.
inline bool sums_exactly(at::ScalarType type) {
    static const bool asked = [] {
        const char* const set = std::getenv("COLLS_TORCH_EXACT");
        const std::string_view value = set != nullptr ? set : "";
        TORCH_CHECK(value.empty() || value == "0" || value == "1", "colls: COLLS_TORCH_EXACT is ", value,
            ", which is neither 0 nor 1");
        return value == "1";
    }();
    return asked && (type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16);
}

/// The operator. For tensors of bool a sum is a logical or, and a product a logical and.
inline dynamic::reduction reduction_of(const c10d::ReduceOp& op, const at::Tensor& t) {
    using c10d::ReduceOp;
    const at::ScalarType type = t.scalar_type();
    TORCH_CHECK(element_type_of(t).code() != dynamic::type::bytes, "colls: tensors of type ", name_of(type),
        " are moved, but not reduced: convert them");
    const auto takes = [&](bool it_does, const char* name) {
        TORCH_CHECK(it_does, "colls: ReduceOp.", name, " does not take tensors of type ", name_of(type));
    };
    const bool whole = c10::isIntegralType(type, true), complex = c10::isComplexType(type);
    switch (op.op_) {
        case ReduceOp::SUM:
            return sums_exactly(type) ? dynamic::op::exact : dynamic::op::sum;
        case ReduceOp::AVG:
            takes(type != at::kBool, "AVG");
            return dynamic::op::avg;
        case ReduceOp::PRODUCT:
            return dynamic::op::prod;
        case ReduceOp::MIN:
            takes(!complex, "MIN");
            return dynamic::op::min;
        case ReduceOp::MAX:
            takes(!complex, "MAX");
            return dynamic::op::max;
        case ReduceOp::BAND:
            takes(whole, "BAND");
            return dynamic::op::bit_and;
        case ReduceOp::BOR:
            takes(whole, "BOR");
            return dynamic::op::bit_or;
        case ReduceOp::BXOR:
            takes(whole, "BXOR");
            return dynamic::op::bit_xor;
        case ReduceOp::PREMUL_SUM: {
            takes(type != at::kBool && !complex, "PREMUL_SUM");
            const auto* const by = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
            TORCH_CHECK(by != nullptr, "colls: PREMUL_SUM has no factor");
            const double factor = by->tensor_factor.defined() ? by->tensor_factor.item<double>() : by->double_factor;
            if (c10::isIntegralType(t.scalar_type(), false) && factor == static_cast<double>(std::int64_t(factor)))
                return dynamic::reduction::premul_sum(static_cast<std::int64_t>(factor));
            return dynamic::reduction::premul_sum(factor);
        }
        default:
            TORCH_CHECK(false, "colls: there is no such ReduceOp");
    }
}

/// A plain tensor that stands for another one during a call. In place, that may be an expanded one: of its elements
/// that share a place the last one counts, as with gloo.
class plain_output {
public:
    explicit plain_output(const at::Tensor& t, bool with_contents = false)
        : plain_output(t, with_contents, with_contents) {}
    plain_output(const at::Tensor& t, bool with_contents, bool in_place)
        : target_(t),
          own_(is_plain(t)     ? t
               : with_contents ? plain(t)
                               : at::empty(t.sizes(), t.options())),
          in_place_(in_place) {}
    const at::Tensor& tensor() const { return own_; }
    /// Copies the result to where it belongs.
    void deliver() const {
        if (own_.is_same(target_)) return;
        at::Tensor to = target_, from = own_;
        for (std::int64_t d = 0; in_place_ && d < to.dim(); ++d) {
            if (to.stride(d) != 0 || to.size(d) < 2) continue;
            from = from.narrow(d, to.size(d) - 1, 1);
            to = to.narrow(d, 0, 1);
        }
        to.copy_(from);
    }

private:
    const at::Tensor target_, own_;
    const bool in_place_;
};

/// Several tensors of one type as one buffer: where they lie in a row already, that; else a copy.
class joined {
public:
    /// With the contents of the list, for an input.
    explicit joined(const std::vector<at::Tensor>& list, bool with_contents) : list_(list) {
        lies_in_row_ = true;
        for (const at::Tensor& t : list) {
            lies_in_row_ = lies_in_row_ && is_plain(t) &&
                           t.const_data_ptr() == static_cast<const char*>(list[0].const_data_ptr()) + bytes_;
            bytes_ += t.nbytes();
            count_ += t.numel();
        }
        if (lies_in_row_) return;
        copy_ = at::empty({count_}, list[0].options().memory_format(at::MemoryFormat::Contiguous));
        if (with_contents) each([](at::Tensor part, const at::Tensor& t) { part.copy_(t); });
    }
    dynamic::buffer buffer() const {
        return {(lies_in_row_ ? list_[0] : copy_).mutable_data_ptr(), static_cast<std::size_t>(count_),
            element_type_of(list_[0])};
    }
    std::vector<std::size_t> counts() const {
        std::vector<std::size_t> all;
        for (const at::Tensor& t : list_) all.push_back(static_cast<std::size_t>(t.numel()));
        return all;
    }
    /// Copies the results to where they belong.
    void deliver() const {
        if (!lies_in_row_) each([](const at::Tensor& part, const at::Tensor& t) { t.copy_(part); });
    }

private:
    template <class F>
    void each(F f) const {
        std::int64_t at = 0;
        for (const at::Tensor& t : list_) {
            f(copy_.narrow(0, at, t.numel()).view(t.sizes()), t);
            at += t.numel();
        }
    }
    const std::vector<at::Tensor>& list_;
    at::Tensor copy_;
    std::size_t bytes_ = 0;
    std::int64_t count_ = 0;
    bool lies_in_row_ = false;
};

}  // namespace colls_torch
