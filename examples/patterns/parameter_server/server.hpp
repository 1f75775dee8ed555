// A parameter server (Li et al. 2014), sharded over the first ranks of a group; the other ranks are workers. Bounded
// staleness is that of Ho et al. 2013.
//
// A worker's clock is the number of its pushes. A pull at clock c waits until every worker has pushed c - s times, and
// a push at clock c is held back until every worker has pulled at c - s: what a worker sees of any other is at most s
// clocks behind its own, and at most s ahead. With s = 0 all see the same: synchronous training.
#pragma once

#include <colls/colls.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace example {

enum class request_kind : std::int32_t { status, join, joined, pull, push, leave };
struct request {
    request_kind kind;
    std::int32_t worker;  // 0 to workers - 1: its number as long as it lives, whatever its rank is
    std::int64_t clock;
};
/// Whether a worker takes part: it has left or died, it does, or it has not joined yet.
enum class presence : std::int32_t { gone, here, not_yet };
inline constexpr std::int64_t not_here = std::numeric_limits<std::int64_t>::max();

/// The server of one shard.
template <class T>
class parameter_server {
public:
    /// founders: whether each worker is there from the beginning. `rate`: what a gradient is multiplied by.
    parameter_server(std::span<const T> shard, const std::vector<bool>& founders, std::int64_t staleness, T rate)
        : shard_(shard.begin(), shard.end()),
          gradient_(shard.size()),
          workers_(founders.size()),
          staleness_(staleness),
          rate_(rate) {
        for (std::size_t w = 0; w < founders.size(); ++w) workers_[w].here = founders[w];
    }

    /// Serves until every worker has left. Throws colls::error (peer_failed) where a rank dies.
    void serve(colls::communicator& comm) {
        while (!std::ranges::all_of(workers_, &worker::left)) {
            request asked;
            const int rank = colls::recv_any(comm, std::span(&asked, 1));
            worker& w = workers_[static_cast<std::size_t>(asked.worker)];
            w.rank = rank;
            switch (asked.kind) {
                case request_kind::status:
                    colls::send(comm, status(not_here), rank);
                    break;
                case request_kind::join:  // no pull is answered until it has joined, so that clocks stand still
                    ++joining_;
                    colls::send(comm, std::span(&next_clock_, 1), rank);
                    break;
                case request_kind::joined:
                    --joining_;
                    w.enter(asked.clock);
                    break;
                case request_kind::pull:
                    w.wants = asked.clock;
                    break;
                case request_kind::push:
                    colls::recv(comm, gradient_, rank);
                    held_.push_back({asked, gradient_});
                    w.clock = asked.clock + 1;
                    break;
                case request_kind::leave:
                    w.here = false;
                    w.left = true;
                    break;
            }
            settle(comm);
        }
    }

    /// After a shrink: goes on with all workers at one clock. Pushes that were held back are lost.
    void restart(std::span<const presence> workers, std::int64_t clock) {
        held_.clear();
        joining_ = 0;
        for (std::size_t i = 0; i < workers_.size(); ++i) {
            worker& w = workers_[i];
            w.wants.reset();
            w.left = workers[i] == presence::gone;
            w.here = workers[i] == presence::here;
            if (w.here) w.enter(clock);
        }
    }

    /// One more than the highest clock at which a pull was answered.
    std::int64_t next_clock() const { return next_clock_; }
    const std::vector<T>& shard() const { return shard_; }
    /// The pushes in the order in which they were applied.
    const std::vector<request>& applied() const { return applied_; }

private:
    struct worker {
        bool here = false, left = false;
        int rank = colls::none;
        std::int64_t begin = 0, clock = 0, applied = 0, pulled = -1;
        std::optional<std::int64_t> wants;
        void enter(std::int64_t at) { here = true, begin = clock = applied = at, pulled = at - 1; }
    };
    struct held_push {
        request from;
        std::vector<T> gradient;
    };

    /// For a pull at `clock`: the clock up to which each worker's pushes are applied (`not_here` for one that begins
    /// later and has none yet), and at the end the number of all pushes applied.
    std::vector<std::int64_t> status(std::int64_t clock) const {
        std::vector<std::int64_t> clocks;
        for (const worker& w : workers_)
            clocks.push_back(w.here && (w.begin <= clock || w.applied > w.begin) ? w.applied : not_here);
        clocks.push_back(static_cast<std::int64_t>(applied_.size()));
        return clocks;
    }

    std::int64_t slowest(std::int64_t worker::* clock) const {
        std::int64_t least = not_here;
        for (const worker& w : workers_)
            if (w.here) least = std::min(least, w.*clock);
        return least;
    }

    // example-begin settle
    /// Applies the pushes and answers the pulls that may be, until there is none.
    void settle(colls::communicator& comm) {
        for (bool moved = true; moved;) {
            moved = false;
            const std::int64_t pulled = slowest(&worker::pulled), pushed = slowest(&worker::clock);
            std::erase_if(held_, [&](const held_push& push) {
                if (push.from.clock - staleness_ > pulled) return false;
                apply(push);
                return true;
            });
            for (worker& w : workers_) {
                if (!w.wants || joining_ > 0 || *w.wants - staleness_ > pushed) continue;
                colls::send(comm, status(*w.wants), w.rank);
                colls::send(comm, shard_, w.rank);
                w.pulled = *std::exchange(w.wants, std::nullopt);
                next_clock_ = std::max(next_clock_, w.pulled + 1);
                moved = true;
            }
        }
    }
    // example-end

    void apply(const held_push& push) {
        for (std::size_t i = 0; i < shard_.size(); ++i) shard_[i] -= rate_ * push.gradient[i];
        workers_[static_cast<std::size_t>(push.from.worker)].applied = push.from.clock + 1;
        applied_.push_back(push.from);
    }

    std::vector<T> shard_, gradient_;
    std::vector<worker> workers_;
    std::vector<held_push> held_;
    std::vector<request> applied_;
    std::int64_t staleness_, next_clock_ = 0;
    int joining_ = 0;
    T rate_;
};

/// A worker's side: speaks to all servers, which are ranks 0 to servers - 1, at once.
template <class T>
class parameter_client {
public:
    parameter_client(int worker, int workers, int servers)
        : worker_(worker), status_(static_cast<std::size_t>(servers)) {
        for (auto& s : status_) s.resize(static_cast<std::size_t>(workers) + 1);
    }

    /// Fills the parameters with those of clock `clock`, and status() with what they contain.
    void pull(colls::communicator& comm, std::int64_t clock, std::span<T> parameters) {
        std::vector<colls::operation> all;
        const request asked{request_kind::pull, worker_, clock};
        for (int k = 0; k < servers(); ++k) {
            all.push_back(colls::start::recv(comm, status_[static_cast<std::size_t>(k)], k));
            const std::span<T> shard = shard_of(parameters, k);
            all.push_back(colls::start::recv(comm, shard, k));
            all.push_back(colls::start::send(comm, std::span(&asked, 1), k));
        }
        colls::wait_all(all);
    }

    /// Hands the gradient at clock `clock` to the servers.
    void push(colls::communicator& comm, std::int64_t clock, std::span<const T> gradient) {
        std::vector<colls::operation> all;
        const request asked{request_kind::push, worker_, clock};
        for (int k = 0; k < servers(); ++k) {
            all.push_back(colls::start::send(comm, std::span(&asked, 1), k));
            const std::span<const T> shard = shard_of(gradient, k);
            all.push_back(colls::start::send(comm, shard, k));
        }
        colls::wait_all(all);
    }

    /// Joins the training while it runs. Returns the clock at which this worker begins: the same at every server, and
    /// no worker has pulled at it.
    std::int64_t join(colls::communicator& comm) {
        std::int64_t clock = 0;
        for (int k = 0; k < servers(); ++k) {
            std::int64_t at;
            ask(comm, {request_kind::join, worker_, 0}, k);
            colls::recv(comm, std::span(&at, 1), k);
            clock = std::max(clock, at);
        }
        for (int k = 0; k < servers(); ++k) ask(comm, {request_kind::joined, worker_, clock}, k);
        return clock;
    }
    void leave(colls::communicator& comm) {
        for (int k = 0; k < servers(); ++k) ask(comm, {request_kind::leave, worker_, 0}, k);
    }

    /// Pushes of all workers that server 0 has applied by now.
    std::int64_t progress(colls::communicator& comm) {
        ask(comm, {request_kind::status, worker_, 0}, 0);
        colls::recv(comm, status_[0], 0);
        return status_[0].back();
    }

    /// For each server, the clock of each worker up to which its parameters contain that worker's pushes (`not_here`
    /// for a worker that is not there), then the number of all pushes in them.
    const std::vector<std::vector<std::int64_t>>& status() const { return status_; }

private:
    int servers() const { return static_cast<int>(status_.size()); }
    template <class U>
    std::span<U> shard_of(std::span<U> all, int server) const {
        const auto block = colls::block_of(all.size(), servers(), server);
        return all.subspan(block.offset, block.size);
    }
    void ask(colls::communicator& comm, const request& what, int server) {
        colls::send(comm, std::span(&what, 1), server);
    }

    int worker_;
    std::vector<std::vector<std::int64_t>> status_;
};

}  // namespace example
