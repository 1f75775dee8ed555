// The collectives that reduce.
#include "buffers.hpp"
#include "call.hpp"
#include "held.hpp"
#include "numbers.hpp"
#include "operators.hpp"

#include <colls/detail/support/sizes.hpp>
#include <colls/dynamic.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace {

using namespace colls_mpi;
namespace dynamic = colls::dynamic;

dynamic::const_buffer elements_of(const input& in, const folding& f) {
    return {in.data(), in.bytes() / f.element_bytes(), f.element()};
}
dynamic::buffer elements_of(const output& out, const folding& f) {
    return {out.data(), out.bytes() / f.element_bytes(), f.element()};
}

/// What the calls have in common.
class reduction {
public:
    reduction(MPI_Op op, MPI_Datatype type, MPI_Count count = 0) : fold_(op, type, count) {
        says_ = fold_.left_to_mpi() ? verdict::mpi : verdict::colls;
    }
    verdict says() const { return says_; }
    void keep_handles() { fold_.keep_handles(); }

protected:
    verdict says_;
    folding fold_;
};

/// Input and output as the calls have them: where the input is in place, that is the output's buffer.
class operands {
public:
    operands() = default;
    operands(const void* sent, void* received, std::size_t count, MPI_Datatype type, const folding& f)
        : out_(received, count, type, f.operand(), sent == MPI_IN_PLACE), in_place_(sent == MPI_IN_PLACE) {
        if (!in_place_) in_ = input(sent, count, type, f.operand());
    }
    dynamic::const_buffer source(const folding& f) const {
        return in_place_ ? dynamic::const_buffer(target(f)) : elements_of(in_, f);
    }
    dynamic::buffer target(const folding& f) const { return elements_of(out_, f); }
    void deliver() const { out_.deliver(); }

private:
    output out_;
    input in_;
    bool in_place_ = false;
};

class reduce_call : public reduction {
public:
    reduce_call(group& g, const void* sent, void* received, MPI_Count count, MPI_Datatype type, MPI_Op op, int root)
        : reduction(op, type, count), root_(root), is_root_(g.rank == root) {
        if (!is_rank(root, g) || (is_root_ ? count > 0 && is_refused_alias(sent, received) : sent == MPI_IN_PLACE))
            says_ = verdict::refused;
        if (says_ != verdict::colls) return;
        const auto n = static_cast<std::size_t>(count);
        if (is_root_)
            at_root_ = operands(sent, received, n, type, fold_);
        else
            in_ = input(sent, n, type, fold_.operand());
    }
    template <class Mode>
    auto make(colls::communicator& comm) {
        const dynamic::buffer out = is_root_ ? at_root_.target(fold_) : dynamic::buffer{nullptr, 0, fold_.element()};
        return Mode::reduce(comm, is_root_ ? at_root_.source(fold_) : elements_of(in_, fold_), out,
            fold_.template operation_by<Mode>(), root_);
    }
    void finish() {
        fold_.check();
        at_root_.deliver();
    }

private:
    const int root_;
    const bool is_root_;
    operands at_root_;
    input in_;
};

/// A scan or an all_reduce.
class reduce_everywhere : public reduction {
public:
    reduce_everywhere(group&, const void* sent, void* received, MPI_Count count, MPI_Datatype type, MPI_Op op)
        : reduction(op, type, count) {
        if (received == MPI_IN_PLACE || (count > 0 && is_refused_alias(sent, received))) says_ = verdict::refused;
        if (says_ == verdict::colls) operands_ = operands(sent, received, static_cast<std::size_t>(count), type, fold_);
    }
    void finish() {
        fold_.check();
        operands_.deliver();
    }

protected:
    dynamic::const_buffer in() const { return operands_.source(fold_); }
    dynamic::buffer out() const { return operands_.target(fold_); }
    const dynamic::reduction& by() const { return fold_.operation(); }

private:
    operands operands_;
};
class all_reduce_call : public reduce_everywhere {
public:
    using reduce_everywhere::reduce_everywhere;
    template <class Mode>
    auto make(colls::communicator& comm) {
        return Mode::all_reduce(comm, in(), out(), fold_.template operation_by<Mode>());
    }
};
class inclusive_scan_call : public reduce_everywhere {
public:
    using reduce_everywhere::reduce_everywhere;
    template <class Mode>
    auto make(colls::communicator& comm) {
        return Mode::inclusive_scan(comm, in(), out(), by());
    }
};
class exclusive_scan_call : public reduce_everywhere {
public:
    exclusive_scan_call(group& g, const void* sent, void* received, MPI_Count count, MPI_Datatype type, MPI_Op op)
        : reduce_everywhere(g, sent, received, count, type, op), has_result_(g.rank > 0) {
        if (!has_result_ && received == nullptr && says_ == verdict::colls)
            unused_.resize(out().count * fold_.element_bytes());
    }
    template <class Mode>
    auto make(colls::communicator& comm) {
        dynamic::buffer to = out();
        if (!unused_.empty()) to.data = unused_.data();
        return Mode::exclusive_scan(comm, in(), to, by());
    }
    void finish() {
        if (has_result_)
            reduce_everywhere::finish();
        else
            fold_.check();
    }

private:
    const bool has_result_;
    std::vector<std::byte> unused_;  // the result of rank 0, which may have no buffer for it
};

class reduce_scatter_call : public reduction {
public:
    /// `counts`: of each rank, or one for all.
    reduce_scatter_call(
        group& g, const void* sent, void* received, const numbers& counts, bool equal, MPI_Datatype type, MPI_Op op)
        : reduction(op, type), equal_(equal) {
        if (!are_counts(counts, equal ? 1 : g.size)) {
            says_ = verdict::refused;
            return;
        }
        for (int r = 0; r < g.size; ++r) counts_.push_back(static_cast<std::size_t>(counts[equal ? 0 : r]));
        all_ = std::accumulate(counts_.begin(), counts_.end(), std::size_t{0}, &colls::detail::capped_sum);
        if (all_ > 0 && is_refused_alias(sent, received)) says_ = verdict::refused;
        if (says_ != verdict::colls) return;
        in_ = input(sent == MPI_IN_PLACE ? received : sent, all_, type, fold_.operand());
        // In place, MPI has the result at the beginning of the input, and colls where the rank's block is.
        from_ = in_.data();
        if (sent == MPI_IN_PLACE && from_ == received && all_ > 0) {
            copy_ = scratch(in_.bytes());
            std::memcpy(copy_.data(), from_, in_.bytes());
            from_ = copy_.data();
        }
        out_ = output(received, counts_[static_cast<std::size_t>(g.rank)], type, fold_.operand());
    }
    template <class Mode>
    auto make(colls::communicator& comm) {
        const dynamic::const_buffer source{from_, all_, fold_.element()};
        const dynamic::reduction& by = fold_.template operation_by<Mode>();
        if (equal_) return Mode::reduce_scatter(comm, source, elements_of(out_, fold_), by);
        return Mode::reduce_scatter_v(comm, source, elements_of(out_, fold_), counts_, by);
    }
    void finish() {
        fold_.check();
        out_.deliver();
    }

private:
    const bool equal_;
    std::vector<std::size_t> counts_;
    std::size_t all_ = 0;
    input in_;
    scratch copy_;
    const std::byte* from_ = nullptr;
    output out_;
};

class reduce_scatter_block_call : public reduce_scatter_call {
public:
    reduce_scatter_block_call(group& g, const void* sent, void* received, MPI_Count count, MPI_Datatype type, MPI_Op op)
        : reduce_scatter_call(g, sent, received, &count, true, type, op) {}
};

}  // namespace

#define COLLS_MPI_FUNCTIONS "reductions_functions.hpp"
#include "both_counts.hpp"
