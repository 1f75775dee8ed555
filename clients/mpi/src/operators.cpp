#include "operators.hpp"

#include "configuration.hpp"
#include "failure.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <unordered_map>

namespace colls_mpi {

namespace {

namespace dynamic = colls::dynamic;

/// A predefined operator.
struct known_operator {
    bool predefined = false;
    bool folds = false;  // MPI_REPLACE and MPI_NO_OP do not
    dynamic::op code = dynamic::op::sum;
};

known_operator known_operator_of(MPI_Op op) {
    static const std::unordered_map<MPI_Op, known_operator> known{
        {MPI_SUM, {true, true, dynamic::op::sum}},
        {MPI_PROD, {true, true, dynamic::op::prod}},
        {MPI_MIN, {true, true, dynamic::op::min}},
        {MPI_MAX, {true, true, dynamic::op::max}},
        {MPI_LAND, {true, true, dynamic::op::logical_and}},
        {MPI_LOR, {true, true, dynamic::op::logical_or}},
        {MPI_LXOR, {true, true, dynamic::op::logical_xor}},
        {MPI_BAND, {true, true, dynamic::op::bit_and}},
        {MPI_BOR, {true, true, dynamic::op::bit_or}},
        {MPI_BXOR, {true, true, dynamic::op::bit_xor}},
        {MPI_MINLOC, {true, true, dynamic::op::minloc}},
        {MPI_MAXLOC, {true, true, dynamic::op::maxloc}},
        {MPI_REPLACE, {true, false}},
        {MPI_NO_OP, {true, false}},
        {MPI_OP_NULL, {true, false}},
    };
    const auto found = known.find(op);
    return found == known.end() ? known_operator{} : found->second;
}

// As the standard has it: colls would also add booleans, which MPI refuses.
bool takes(dynamic::op op, category what) {
    switch (op) {
        case dynamic::op::sum:
        case dynamic::op::prod:
            return what == category::integer || what == category::real || what == category::complex;
        case dynamic::op::min:
        case dynamic::op::max:
            return what == category::integer || what == category::real;
        case dynamic::op::logical_and:
        case dynamic::op::logical_or:
        case dynamic::op::logical_xor:
            return what == category::integer || what == category::logical;
        case dynamic::op::bit_and:
        case dynamic::op::bit_or:
        case dynamic::op::bit_xor:
            return what == category::integer || what == category::bytes;
        default:
            return what == category::pair;
    }
}

/// Memory for the elements of a datatype as the program lays them out.
class laid_out {
public:
    laid_out(std::size_t count, const layout& l) {
        const MPI_Aint behind = static_cast<MPI_Aint>(count - 1) * l.extent;
        const MPI_Aint first = std::min<MPI_Aint>(behind, 0) + l.first, last = std::max<MPI_Aint>(behind, 0) + l.last;
        const auto bytes = static_cast<std::size_t>(last - first);
        memory_ = scratch(bytes + alignment);
        std::memset(memory_.data(), 0, bytes + alignment);  // an operator may read what lies between
        // The memory is aligned for every type, and so is the first element.
        const MPI_Aint pad = (first % alignment + alignment) % alignment;
        start_ = displaced(memory_.data(), pad - first);
    }
    void* start() const { return start_; }

private:
    static constexpr MPI_Aint alignment = 16;
    scratch memory_;
    void* start_;
};

}  // namespace

folding::folding(MPI_Op op, MPI_Datatype type, MPI_Count count) : op_(op), type_(type) {
    const known_operator known = known_operator_of(op);
    operand_ = layout_of(type);
    predefined_ = known.predefined;
    if (known.predefined) {
        const known_type t = known_type_of(type);
        if (!known.folds || !takes(known.code, t.what)) return;
        if (t.has_code) {
            way_ = way::colls;
            operation_ = known.code;
            element_ = t.code;
            may_be_exact_ = configured().exact && known.code == dynamic::op::sum &&
                            (t.code == dynamic::type::float32 || t.code == dynamic::type::float64);
            // Pairs are passed as the structs that they are, with what lies between their members.
            operand_ = {element_.size(), operand_.extent, 0, operand_.extent, true};
            return;
        }
    }
    if (operand_.size == 0) return;  // the same on all ranks, as the signature is
    way_ = way::function;
    int commutes = 0;
    PMPI_Op_commutative(op, &commutes);
    operation_ = dynamic::reduction::function(&folding::fold, this, commutes != 0, "MPI_Op");
    if (!predefined_ && !configured().cut_operands && count > 0) at_once_ = static_cast<std::size_t>(count);
    element_ = dynamic::element_type::bytes(element_bytes());
}

void folding::keep_handles() {
    if (predefined_) return;
    held_operator_ = held_operator(op_);
    held_type_ = held_type(type_);
}

void folding::check() const { colls_mpi::check(error_, "MPI_Reduce_local"); }

void folding::fold(const void* in, void* inout, std::size_t count, void* context) {
    auto& f = *static_cast<folding*>(context);
    if (f.error_ != MPI_SUCCESS || count == 0) return;
    count *= f.at_once_;
    if (f.operand_.in_row) return f.fold_in_row(in, inout, count);
    try {
        f.fold_packed(in, inout, count);
    } catch (const mpi_failure& e) {
        f.error_ = e.code();
    } catch (const std::exception&) {
        f.error_ = MPI_ERR_NO_MEM;
    }
}

void folding::fold_in_row(const void* in, void* inout, std::size_t count) {
    // As much at a time as an int counts, where the operator does not expect all that a call with MPI_Count has.
    const std::size_t most = std::max(at_once_, std::size_t{1} << 30);
    for (std::size_t at = 0; at < count && error_ == MPI_SUCCESS; at += most) {
        const MPI_Aint skip = static_cast<MPI_Aint>(at) * operand_.extent;
        error_ = reduce_local(displaced(in, skip), displaced(inout, skip), std::min(count - at, most));
    }
}
int folding::reduce_local(const void* in, void* inout, std::size_t count) const {
#if MPI_VERSION >= 4
    if (count > static_cast<std::size_t>(std::numeric_limits<int>::max()))
        return PMPI_Reduce_local_c(in, inout, static_cast<MPI_Count>(count), type_, op_);
#endif
    return PMPI_Reduce_local(in, inout, static_cast<int>(count), type_, op_);
}

// The operator gets elements as the program lays them out.
void folding::fold_packed(const void* in, void* inout, std::size_t count) {
    const std::size_t most = at_once_ > 1 ? at_once_ : std::clamp<std::size_t>(65536 / operand_.size, 1, count);
    const laid_out left(most, operand_), right(most, operand_);
    const auto* from = static_cast<const std::byte*>(in);
    for (auto* to = static_cast<std::byte*>(inout); count > 0;) {
        const std::size_t n = std::min(count, most);
        unpack(from, left.start(), n, type_, operand_);
        unpack(to, right.start(), n, type_, operand_);
        colls_mpi::check(reduce_local(left.start(), right.start(), n), "MPI_Reduce_local");
        pack(right.start(), n, type_, operand_, to);
        from += n * operand_.size;
        to += n * operand_.size;
        count -= n;
    }
}

}  // namespace colls_mpi
