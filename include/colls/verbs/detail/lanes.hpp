// Several RDMA devices as one: a queue pair of each, the lanes, over which large messages are cut.
// IWYU pragma: private, include <colls/transports/verbs.hpp>
//
// All but the large messages go by the first lane. What this lane announces is kept until the parts of its message have
// arrived on the others, so that all is taken in the order in which it was sent. A request on another lane is always
// signalled. Two ranks use as many lanes as the one that has fewer.
#pragma once

#include <colls/net/detail/connection/piece_queue.hpp>
#include <colls/verbs/detail/protocol.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace colls::inline v1::detail::rdma {

class several_queues final : public queue {
public:
    struct lane {
        std::unique_ptr<queue> pair;
        const char* device;
        std::vector<write_request> chain{};
        std::uint64_t posted = 0, done = 0;  // requests
        fifo<std::uint64_t> numbers{};       // of those that are not done, among the requests of all lanes
        bool unsignalled = false;            // its last request
        std::uint64_t parts = 0;             // that have arrived, of messages that have not
        std::string why{};                   // it has failed

        void add(write_request r) {
            numbers.push(r.id);
            r.id = posted++;
            unsignalled = !r.signalled;
            chain.push_back(r);
        }
        const char* on_device(const char* what) { return (why = std::string(what) + ", on " + device).c_str(); }
    };
    /// `all`: two at least.
    explicit several_queues(std::vector<lane> all) : lanes_(std::move(all)) {}

    void stop() noexcept override {
        for (lane& l : lanes_) l.pair->stop();
    }
    queue_limits limits() const override {
        queue_limits all = lanes_.front().pair->limits();
        for (const lane& l : lanes_) {
            const queue_limits own = l.pair->limits();
            all.inlined = std::min(all.inlined, own.inlined);
            all.gathers = std::min(all.gathers, own.gathers);
            all.requests = std::min(all.requests, own.requests);
            all.bytes = std::min(all.bytes, own.bytes);
        }
        all.lanes = static_cast<std::uint32_t>(lanes_.size());
        return all;
    }
    queue_name name() const override {
        queue_name all{};
        for (std::size_t k = 0; k < lanes_.size(); ++k)
            std::copy_n(lanes_[k].pair->name().begin(), lane_name_bytes, all.begin() + k * lane_name_bytes);
        return all;
    }
    const char* connect(const queue_name& peer) override {
        for (std::size_t k = 0; k < lanes_.size(); ++k) {
            queue_name own{};
            std::copy_n(peer.begin() + k * lane_name_bytes, lane_name_bytes, own.begin());
            if (own == queue_name{}) {
                lanes_.resize(k);
                break;
            }
            if (const char* const wrong = lanes_[k].pair->connect(own)) return lanes_[k].on_device(wrong);
        }
        return nullptr;
    }
    const char* post(const write_request* chain, int count, const gather* gathers) override {
        lane& first = lanes_.front();
        for (const write_request* r = chain; r < chain + count; ++r) {
            write_request own = *r;
            own.signalled = r->signalled || r->lane > 0;
            // Who wants a signal is to know that all requests before are done, too: also those of the first lane.
            if (r->signalled && r->lane > 0 && first.unsignalled)
                first.add({r->id, r->to, r->remote, 0, 0, 0, false, true, false});
            lanes_[r->lane].add(own);
            posted_ = r->id + 1;
        }
        for (lane& l : lanes_) {
            const char* const wrong =
                l.chain.empty() ? nullptr : l.pair->post(l.chain.data(), static_cast<int>(l.chain.size()), gathers);
            l.chain.clear();
            if (wrong) return l.on_device(wrong);
        }
        return nullptr;
    }
    /// For the other lanes at the first call, for all that they will ever need; `poll` renews theirs.
    const char* receive(int count) override {
        for (lane& l : lanes_) {
            if (const char* const wrong = l.pair->receive(count)) return l.on_device(wrong);
            if (receives_) break;
        }
        receives_ = true;
        return nullptr;
    }
    int poll(completion* into, int most) override {
        int n = 0;
        std::uint64_t done = posted_;
        for (lane& l : lanes_) {
            completion all[32];
            for (int found = 32, rounds = 0; found == 32 && rounds < 8; ++rounds) {
                found = l.pair->poll(all, 32);
                for (int i = 0; i < found; ++i) {
                    completion& c = all[i];
                    if (c.what == completion::sent) {
                        for (; l.done <= c.id; ++l.done) l.numbers.pop();
                    } else if (c.what == completion::arrived && &l == &lanes_.front()) {
                        arrived_.push(c);
                    } else if (c.what == completion::arrived) {
                        ++l.parts;
                        if (const char* const wrong = l.pair->receive(1)) c = {completion::failed, false, 0, 0, wrong};
                    }
                    // What follows the first failure of a lane is a consequence of that.
                    if (c.what != completion::failed || !l.why.empty()) continue;
                    c.status = l.on_device(c.status);
                    into[n++] = c;
                }
            }
            if (!l.numbers.empty()) done = std::min(done, l.numbers.front());
        }
        if (done > done_) into[n++] = {completion::sent, false, (done_ = done) - 1, 0, ""};
        for (; n < most && !arrived_.empty() && whole(arrived_.front()); arrived_.pop()) into[n++] = arrived_.front();
        return n;
    }

private:
    /// Whether all parts of what it announces have arrived; then they are taken.
    bool whole(completion& c) {
        const std::uint32_t beside = (c.immediate & (acknowledgement_wanted - 1)) >> beside_shift;
        if (beside >= lanes_.size()) return true;  // which the receiver refuses
        for (std::uint32_t k = 1; k <= beside; ++k)
            if (lanes_[k].parts == 0) return false;
        for (std::uint32_t k = 1; k <= beside; ++k) --lanes_[k].parts;
        c.immediate -= beside << beside_shift;
        return true;
    }

    std::vector<lane> lanes_;
    fifo<completion> arrived_;  // on the first lane
    std::uint64_t posted_ = 0, done_ = 0;
    bool receives_ = false;
};

/// Memory is registered with each device. At most `most_lanes`.
class several_devices final : public device {
public:
    explicit several_devices(std::vector<std::shared_ptr<device>> all) : all_(std::move(all)) {}
    const char* name() const override { return all_.front()->name(); }
    region add(std::byte* at, std::size_t bytes) override {
        return at_each([&](device& d) { return d.add(at, bytes); });
    }
    region add_gpu(std::byte* at, std::size_t bytes, int file, std::size_t offset) override {
        return at_each([&](device& d) { return d.add_gpu(at, bytes, file, offset); });
    }
    /// Registers a range by add(device) with each.
    template <class F>
    region at_each(F add) {
        region first = add(*all_.front());
        try {
            region* latest = &first;
            for (std::size_t k = 1; k < all_.size(); ++k) latest = latest->next = new region(add(*all_[k]));
        } catch (...) {
            drop(first);
            throw;
        }
        return first;
    }
    void drop(const region& r) noexcept override {
        region* next = r.next;
        all_.front()->drop(r);
        for (std::size_t k = 1; next; ++k) {
            const std::unique_ptr<region> own(next);
            all_[k]->drop(*own);
            next = own->next;
        }
    }
    std::unique_ptr<queue> open(const queue_limits& wanted) override {
        if (all_.size() == 1) return all_.front()->open(wanted);
        std::vector<several_queues::lane> lanes;
        for (const auto& d : all_) lanes.push_back({d->open(wanted), d->name()});
        return std::make_unique<several_queues>(std::move(lanes));
    }

private:
    const std::vector<std::shared_ptr<device>> all_;
};

}  // namespace colls::inline v1::detail::rdma
