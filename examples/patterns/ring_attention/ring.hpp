// Ring attention (Liu et al. 2023).
#pragma once

#include "shards.hpp"

#include <colls/collectives.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace example {

/// Ring attention on one rank, forward and backward.
class ring {
public:
    /// `compute`: false moves the blocks alone. `overlap`: false moves each block after the computation with the one
    /// before.
    ring(colls::communicator& comm, const attention_shape& shape, Eigen::Index sequence, bool zigzag,
        bool compute = true, bool overlap = true)
        : comm_(comm), shape_(shape), compute_(compute), overlap_(overlap) {
        for (int r = 0; r < comm.size(); ++r) shards_.push_back(shard_of(sequence, comm.size(), r, zigzag));
    }

    result run(const tokens& own) {
        attention here(shape_, own.q, shard_of_step(0));
        result r;
        // example-begin forward
        go_round(own.kv, r, [&](int step, const matrix& kv, auto advance) {
            if (compute_) here.forward(kv, shard_of_step(step), advance);
        });
        here.finish();
        // example-end

        here.begin_backward(own.gradient);
        matrix arriving, leaving;  // the gradient of a block of keys and values: follows it, and is home after n steps
        colls::operation sent, received;
        // example-begin backward
        go_round(own.kv, r, [&](int step, const matrix& kv, auto advance) {
            matrix dkv = matrix::Zero(kv.rows(), kv.cols());
            if (compute_) here.backward(kv, shard_of_step(step), dkv, advance);
            if (step > 0) {
                wait(r, received, sent);
                dkv += arriving;  // of the ranks where the block was before
            }
            leaving = std::move(dkv);
            arriving.resize(kv.rows(), tokens_of(shard_of_step(step + 1)));
            sent = send(leaving, r);
            received = colls::start::recv(comm_, numbers(arriving), left());
        });
        wait(r, received, sent);
        // example-end
        r.held =
            static_cast<double>(largest_held_ + arriving.size() + leaving.size() + own.kv.size());  // the last: dkv
        r.output = here.output, r.dq = here.dq, r.dkv = arriving, r.work = here.work;
        return r;
    }

private:
    int left() const { return (comm_.rank() + comm_.size() - 1) % comm_.size(); }
    /// The shard whose keys and values are here in a step.
    const std::vector<piece>& shard_of_step(int step) const {
        const int n = comm_.size();
        return shards_[static_cast<std::size_t>((comm_.rank() - step % n + n) % n)];
    }
    colls::operation send(matrix& m, result& r) {
        r.sent += comm_.size() == 1 ? 0 : static_cast<double>(m.size()) * sizeof(double);
        colls::operation sent = colls::start::send(comm_, numbers(m), (comm_.rank() + 1) % comm_.size());
        sent.test();  // offers it to the receiver
        return sent;
    }
    void wait(result& r, colls::operation& a, colls::operation& b) {
        const auto begin = stopwatch::now();
        colls::wait_all(a, b);
        r.waited += seconds_since(begin);
    }

    /// Calls visit(step, block, advance) with the keys and values of each rank in turn, beginning with the own ones,
    /// while the next ones are on their way from the left. advance() lets them move.
    template <class Visit>
    void go_round(const matrix& own, result& r, Visit visit) {
        matrix current = own, next;
        // example-begin round
        for (int step = 0; step < comm_.size(); ++step) {
            colls::operation sent, received;
            const bool more = step + 1 < comm_.size();
            const auto pass_on = [&] {
                next.resize(own.rows(), tokens_of(shard_of_step(step + 1)));
                received = colls::start::recv(comm_, numbers(next), left());
                sent = send(current, r);
            };
            if (more && overlap_) pass_on();
            visit(step, std::as_const(current), [&] { received.test(); });
            if (more && !overlap_) pass_on();
            wait(r, received, sent);
            if (more) std::swap(current, next);
            largest_held_ = std::max(largest_held_, current.size() + next.size());
        }
        // example-end
    }

    colls::communicator& comm_;
    attention_shape shape_;
    bool compute_, overlap_;
    std::vector<std::vector<piece>> shards_;
    Eigen::Index largest_held_ = 0;
};

}  // namespace example
