// What a rank does in a tensor-parallel group: tensor parallel (Shoeybi et al. 2019), and with the residual stream cut
// over the tokens too: sequence parallel (Korthikanti et al. 2022).
//
// A matrix of activations has one column a token.
#pragma once

#include "account.hpp"

#include <colls/colls.hpp>

#include <Eigen/Core>

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace example {

using matrix = Eigen::MatrixXd;

enum class parallelism {
    tensor,        // norms and residual stream are replicated
    sequence,      // they are cut over the tokens; backward gathers the inputs of the linear layers again
    sequence_kept  // likewise, but forward keeps these inputs whole
};

// example-begin operators
/// A rank's part in a tensor-parallel group: its heads, its hidden units and its tokens, and the operators before and
/// after each pair of linear layers.
class tensor_group {
public:
    tensor_group(colls::communicator& ranks, int all_heads, int all_hidden, int width, int tokens, parallelism how)
        : comm(ranks),
          heads(colls::block_of(static_cast<std::size_t>(all_heads), ranks.size(), ranks.rank())),
          hidden(colls::block_of(static_cast<std::size_t>(all_hidden), ranks.size(), ranks.rank())),
          how_(how),
          width_(static_cast<std::size_t>(width)),
          all_tokens_(static_cast<std::size_t>(tokens)) {}

    /// The tokens whose residual stream this rank has.
    colls::buffer_block tokens() const {
        if (how_ == parallelism::tensor) return {0, all_tokens_};
        return colls::block_of(all_tokens_, comm.size(), comm.rank());
    }
    /// Before a column-parallel layer (f): every token on every rank. Its gradient is the sum over the ranks.
    matrix enter(const matrix& x) { return how_ == parallelism::tensor ? x : all_gather(x); }
    matrix enter_backward(matrix gradient) {
        return how_ == parallelism::tensor ? all_reduce(std::move(gradient)) : reduce_scatter(gradient);
    }
    /// After a row-parallel layer (g): the sum over the ranks. Its gradient goes to every rank.
    matrix leave(matrix partial) {
        return how_ == parallelism::tensor ? all_reduce(std::move(partial)) : reduce_scatter(partial);
    }
    matrix leave_backward(const matrix& gradient) {
        return how_ == parallelism::tensor ? gradient : all_gather(gradient);
    }
    // example-end
    bool cuts_tokens() const { return how_ != parallelism::tensor; }
    bool keeps_inputs() const { return how_ == parallelism::sequence_kept; }

    colls::communicator& comm;
    colls::buffer_block heads, hidden;
    link calls;  // the bytes of the operators above

private:
    using family = colls::direct;
    std::vector<std::size_t> counts() const {
        std::vector<std::size_t> all;
        for (const colls::buffer_block block : colls::blocks_of(all_tokens_, comm.size()))
            all.push_back(block.size * width_);
        return all;
    }
    template <class Start>
    void run(std::size_t elements, Start start) {
        link::call call;
        calls.start(call, elements * sizeof(double), start);
        calls.wait(call);
    }
    static std::span<double> all(matrix& m) { return {m.data(), static_cast<std::size_t>(m.size())}; }
    static std::span<const double> all(const matrix& m) { return {m.data(), static_cast<std::size_t>(m.size())}; }

    matrix all_reduce(matrix m) {
        run(elements_sent<family, colls::collective::all_reduce>(all(m).size(), comm.size(), comm.rank()),
            [&] { return colls::start::all_reduce<family>(comm, all(m), colls::sum); });
        return m;
    }
    matrix all_gather(const matrix& own) {
        matrix whole(own.rows(), static_cast<Eigen::Index>(all_tokens_));
        run(elements_sent<family, colls::collective::all_gather>(counts(), comm.rank()),
            [&] { return colls::start::all_gather_v<family>(comm, all(own), all(whole), counts()); });
        return whole;
    }
    matrix reduce_scatter(const matrix& partial) {
        matrix own(partial.rows(), static_cast<Eigen::Index>(tokens().size));
        run(elements_sent<family, colls::collective::reduce_scatter>(counts(), comm.rank()),
            [&] { return colls::start::reduce_scatter_v<family>(comm, all(partial), all(own), counts(), colls::sum); });
        return own;
    }

    parallelism how_;
    std::size_t width_, all_tokens_;
};

}  // namespace example
