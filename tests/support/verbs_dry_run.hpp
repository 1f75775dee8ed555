// Simulated RDMA devices for tests: queue pairs between the ranks of one process. Requests are logged and carried out,
// with the checks that hardware makes: keys, posted receives, room in the queues.
#pragma once

#include <colls/detail/group/backoff.hpp>
#include <colls/detail/support/error_text.hpp>
#include <colls/error.hpp>
#include <colls/verbs/detail/interface.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace colls::inline v1::testing {

/// A network of simulated devices, cards of ranks, and the log of their requests. Held by a shared_ptr. Any thread may
/// call it; `fault` and `most_registered` are set before the first request.
class dry_network : public std::enable_shared_from_this<dry_network> {
public:
    struct entry {
        int from, to;
        std::uint64_t doorbell;  ///< number of the chain in which the request was posted
        colls::detail::rdma::write_request what;
        std::uint64_t bytes;
        std::uint64_t posted, landed = 0;  ///< times, counted in such events; `landed` 0: it has not
        std::array<std::byte, 64> head{};  ///< its first bytes, when they landed
        int card = 0;
    };
    /// `lazy`: requests are carried out a few at a time, at random, when one of the two ranks polls; else when they are
    /// posted. `inlined`, `gathers`, `bytes`: the most inline bytes, pieces and bytes of a request.
    explicit dry_network(
        bool lazy = false, std::uint32_t inlined = 256, std::uint32_t gathers = 16, std::uint64_t bytes = 1 << 30)
        : lazy_(lazy), inlined_(inlined), gathers_(gathers), bytes_(bytes) {}

    /// A device of that rank on this network, which it keeps alive. Its keys are of use with the same card alone.
    std::shared_ptr<colls::detail::rdma::device> device(int rank, int card = 0);

    /// All requests since the last `clear_log`, in the order in which they were posted.
    std::vector<entry> log() const {
        const std::lock_guard lock(mutex_);
        return log_;
    }
    void clear_log() {
        const std::lock_guard lock(mutex_);
        log_.clear();
        // Requests that are still to be carried out have no entry any more.
        ++logs_;
    }
    /// Called before each request is carried out. Returns the status with which it fails, or null.
    std::function<const char*(const entry&)> fault;
    /// A card whose requests are not carried out, until the queue pair is polled when it is another one.
    std::atomic<int> stuck = none;
    /// Queue pairs that have been opened, in all.
    std::uint64_t opened() const {
        const std::lock_guard lock(mutex_);
        return opened_;
    }
    /// Those of them that are open still.
    std::size_t open_now() const {
        const std::lock_guard lock(mutex_);
        return pairs_.size();
    }
    /// Those of them that were stopped before they were destroyed.
    std::uint64_t stopped() const {
        const std::lock_guard lock(mutex_);
        return stopped_;
    }
    /// Keys of ranges that are registered, two a range.
    std::size_t regions() const {
        const std::lock_guard lock(mutex_);
        return regions_.size();
    }
    /// How many bytes can be registered in all: more are refused, as by a limit on locked memory.
    std::size_t most_registered = ~std::size_t{0};

private:
    using write_request = colls::detail::rdma::write_request;
    using completion = colls::detail::rdma::completion;
    class port;
    class pair;
    struct owned {
        colls::detail::rdma::region where;
        int rank, card;
    };
    struct posted {
        write_request what;
        std::size_t entry;  // its index in the log
        std::uint64_t log;
        std::vector<colls::detail::rdma::gather> gathers;
        std::vector<std::byte> inlined;
    };

    static constexpr const char* out_of_reach = "transport retry counter exceeded";

    inline bool reaches(const pair& of, std::uint32_t key, const std::byte* at, std::size_t bytes) const;
    void carry_out(pair& from, std::size_t most);
    void fail(pair& p, const char* status, bool secondary);

    mutable std::mutex mutex_;
    const bool lazy_;
    const std::uint32_t inlined_, gathers_;
    const std::uint64_t bytes_;
    std::vector<entry> log_;
    std::uint64_t logs_ = 0, doorbells_ = 0, time_ = 0, opened_ = 0, stopped_ = 0, random_ = 88172645463325252ull;
    std::uint32_t keys_ = 100;
    std::size_t registered_ = 0;
    std::map<std::uint32_t, owned> regions_;
    std::map<std::uint64_t, pair*> pairs_;
};

class dry_network::pair final : public colls::detail::rdma::queue {
public:
    pair(std::shared_ptr<dry_network> net, int rank, int card, const colls::detail::rdma::queue_limits& wanted)
        : net_(std::move(net)), rank_(rank), card_(card), limits_(wanted) {
        limits_.inlined = std::min(limits_.inlined, net_->inlined_);
        limits_.gathers = std::min(limits_.gathers, net_->gathers_);
        limits_.bytes = std::min(limits_.bytes, net_->bytes_);
        const std::lock_guard lock(net_->mutex_);
        id_ = ++net_->opened_;
        net_->pairs_[id_] = this;
    }
    ~pair() override {
        const std::lock_guard lock(net_->mutex_);
        net_->pairs_.erase(id_);
    }
    void stop() noexcept override {
        const std::lock_guard lock(net_->mutex_);
        net_->pairs_.erase(id_);
        ++net_->stopped_;
    }
    colls::detail::rdma::queue_limits limits() const override { return limits_; }
    colls::detail::rdma::queue_name name() const override {
        colls::detail::rdma::queue_name n{};
        std::memcpy(n.data(), &id_, sizeof id_);
        return n;
    }
    const char* connect(const colls::detail::rdma::queue_name& peer) override {
        const std::lock_guard lock(net_->mutex_);
        std::memcpy(&peer_, peer.data(), sizeof peer_);
        return peer_ > 0 && peer_ <= net_->opened_ ? nullptr : "no such queue pair";
    }
    const char* receive(int count) override {
        const std::lock_guard lock(net_->mutex_);
        receives_ += static_cast<std::uint32_t>(count);
        return receives_ <= limits_.receives ? nullptr : "the receive queue is full";
    }
    const char* post(const write_request* chain, int count, const colls::detail::rdma::gather* gathers) override;
    int poll(completion* into, int most) override {
        const std::lock_guard lock(net_->mutex_);
        if (net_->lazy_) {
            const auto few = [this] {
                return (net_->random_ ^= net_->random_ << 13, net_->random_ ^= net_->random_ >> 7,
                           net_->random_ ^= net_->random_ << 17) %
                       4;
            };
            net_->carry_out(*this, few());
            if (const auto other = net_->pairs_.find(peer_); other != net_->pairs_.end())
                net_->carry_out(*other->second, few());
        }
        if (!net_->lazy_) net_->carry_out(*this, pending_.size());
        int n = 0;
        for (; n < most && !completions_.empty(); ++n) {
            into[n] = completions_.front();
            completions_.pop_front();
        }
        return n;
    }

private:
    friend class dry_network;
    const std::shared_ptr<dry_network> net_;
    const int rank_, card_;
    colls::detail::rdma::queue_limits limits_;
    std::uint64_t id_ = 0, peer_ = 0;
    std::uint64_t posted_ = 0, known_done_ = 0;
    std::uint32_t receives_ = 0;
    bool broken_ = false;
    std::deque<posted> pending_;
    std::deque<completion> completions_;
};

class dry_network::port final : public colls::detail::rdma::device {
public:
    port(std::shared_ptr<dry_network> net, int rank, int card)
        : net_(std::move(net)), rank_(rank), card_(card), name_("card" + std::to_string(card)) {}
    const char* name() const override { return name_.c_str(); }
    colls::detail::rdma::region add(std::byte* at, std::size_t bytes) override {
        const std::lock_guard lock(net_->mutex_);
        if (net_->registered_ + bytes > net_->most_registered)
            throw error(errc::unsupported,
                (colls::detail::error_text() << "colls: rank " << rank_ << ": cannot register " << bytes << " bytes")
                    .text(),
                rank_);
        net_->registered_ += bytes;
        const std::uint32_t key = net_->keys_ += 2;  // peers use another one
        const colls::detail::rdma::region r{at, bytes, key, key + 1, this, false};
        net_->regions_[key] = net_->regions_[key + 1] = {r, rank_, card_};
        return r;
    }
    void drop(const colls::detail::rdma::region& r) noexcept override {
        const std::lock_guard lock(net_->mutex_);
        net_->registered_ -= r.bytes;
        net_->regions_.erase(r.local);
        net_->regions_.erase(r.remote);
    }
    std::unique_ptr<colls::detail::rdma::queue> open(const colls::detail::rdma::queue_limits& wanted) override {
        return std::make_unique<pair>(net_, rank_, card_, wanted);
    }

private:
    const std::shared_ptr<dry_network> net_;
    const int rank_, card_;
    const std::string name_;
};

inline bool dry_network::reaches(const pair& of, std::uint32_t key, const std::byte* at, std::size_t bytes) const {
    const auto i = regions_.find(key);
    return i != regions_.end() && i->second.rank == of.rank_ && i->second.card == of.card_ &&
           i->second.where.holds(at, bytes);
}

inline const char* dry_network::pair::post(
    const write_request* chain, int count, const colls::detail::rdma::gather* gathers) {
    const std::lock_guard lock(net_->mutex_);
    if (broken_) return "the queue pair is in the error state";
    ++net_->doorbells_;
    const auto other = net_->pairs_.find(peer_);
    const int to = other == net_->pairs_.end() ? none : other->second->rank_;
    for (int i = 0; i < count; ++i) {
        const write_request& r = chain[i];
        posted p{r, net_->log_.size(), net_->logs_, {gathers + r.first, gathers + r.first + r.count}, {}};
        std::uint64_t bytes = 0;
        for (const auto& g : p.gathers) bytes += g.bytes;
        if (r.id != posted_++) return "requests are not numbered one after the other";
        if (posted_ - known_done_ > limits_.requests) return "the send queue is full";
        if (r.count > limits_.gathers || bytes > limits_.bytes) return "a request has too many pieces, or bytes";
        if (r.inlined && bytes > limits_.inlined) return "a request has too many inlined bytes";
        if (r.inlined)
            for (const auto& g : p.gathers) p.inlined.insert(p.inlined.end(), g.at, g.at + g.bytes);
        net_->log_.push_back({rank_, to, net_->doorbells_, r, bytes, ++net_->time_});
        net_->log_.back().card = card_;
        pending_.push_back(std::move(p));
    }
    if (!net_->lazy_) net_->carry_out(*this, pending_.size());
    return nullptr;
}

inline void dry_network::fail(pair& p, const char* status, bool secondary) {
    if (p.broken_) return;
    p.broken_ = true;
    p.pending_.clear();
    p.completions_.push_back({completion::failed, secondary, 0, 0, status});
}

inline void dry_network::carry_out(pair& from, std::size_t most) {
    for (; most > 0 && !from.pending_.empty() && !from.broken_ && from.card_ != stuck; --most) {
        const posted p = std::move(from.pending_.front());
        from.pending_.pop_front();
        const write_request& r = p.what;
        entry* const noted = p.log == logs_ ? &log_[p.entry] : nullptr;
        const auto at = pairs_.find(from.peer_);
        if (at == pairs_.end() || at->second->peer_ != from.id_) return fail(from, out_of_reach, true);
        pair& to = *at->second;
        if (to.broken_) return fail(from, out_of_reach, true);
        if (noted && fault)
            if (const char* status = fault(*noted)) return fail(from, status, false);
        // Counters are read and written word by word, since both ranks may access theirs meanwhile. Acquire: a word may
        // be newer than its request, and what its rank read before must stay before the peer's next write.
        const bool counters =
            !r.announces && r.count == 1 && p.gathers[0].bytes <= 64 && p.gathers[0].bytes % 8 == 0 && r.to % 8 == 0;
        std::vector<std::byte> data = p.inlined;
        if (!r.inlined)
            for (const auto& g : p.gathers) {
                if (!reaches(from, g.local, g.at, g.bytes)) return fail(from, "local protection error", false);
                if (!counters) {
                    data.insert(data.end(), g.at, g.at + g.bytes);
                    continue;
                }
                for (std::size_t i = 0; i < g.bytes; i += 8) {
                    const std::uint64_t word =
                        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(g.at) + i))
                            .load(std::memory_order_acquire);
                    const auto* const bytes = reinterpret_cast<const std::byte*>(&word);
                    data.insert(data.end(), bytes, bytes + 8);
                }
            }
        auto* const goal = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(r.to));
        // A request of no bytes needs no key.
        if (!data.empty() && (!reaches(to, r.remote, goal, data.size()) || r.remote % 2 == 0)) {
            fail(to, "Work Request Flushed Error", true);
            return fail(from, "remote access error", false);
        }
        if (r.announces && to.receives_ == 0) return fail(from, "RNR retry counter exceeded", false);
        if (counters) {
            for (std::size_t i = 0; i < data.size(); i += 8) {
                std::uint64_t word;
                std::memcpy(&word, data.data() + i, 8);
                std::atomic_ref(*reinterpret_cast<std::uint64_t*>(goal + i)).store(word, std::memory_order_release);
            }
        } else if (!data.empty()) {
            std::memcpy(goal, data.data(), data.size());
        }
        if (noted) {
            noted->landed = ++time_;
            std::copy_n(data.begin(), std::min(data.size(), noted->head.size()), noted->head.begin());
        }
        if (r.announces) {
            --to.receives_;
            to.completions_.push_back({completion::arrived, false, 0, r.immediate, ""});
        }
        if (r.signalled) {
            from.completions_.push_back({completion::sent, false, r.id, 0, ""});
            from.known_done_ = r.id + 1;
        }
    }
}

inline std::shared_ptr<colls::detail::rdma::device> dry_network::device(int rank, int card) {
    return std::make_shared<port>(shared_from_this(), rank, card);
}

}  // namespace colls::inline v1::testing
