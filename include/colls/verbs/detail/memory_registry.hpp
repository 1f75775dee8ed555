// Which memory a device may reach: ranges that have been registered with it, and a pool of registered memory.
// IWYU pragma: private, include <colls/transports/verbs.hpp>
#pragma once

#include <colls/verbs/detail/interface.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace colls::inline v1::detail::rdma {

/// The registered memory of one device. Any thread may call it.
class memory_registry {
public:
    explicit memory_registry(std::shared_ptr<rdma::device> d) : device_(std::move(d)) {}
    memory_registry(const memory_registry&) = delete;
    memory_registry& operator=(const memory_registry&) = delete;
    ~memory_registry() {
        for (const region& r : regions_) device_->drop(r);
        for (std::byte* p : slabs_) std::free(p);
        for (const auto* all : {&idle_, &busy_})
            for (const region& r : *all) std::free(r.at);
    }
    rdma::device& device() { return *device_; }

    /// Registers a range, with the device and here. Throws colls::error, std::bad_alloc.
    region add(std::byte* at, std::size_t bytes) {
        const region r = device_->add(at, bytes);
        insert(r);
        return r;
    }
    /// Enters a range that is registered with the device already.
    void insert(const region& r) {
        const std::lock_guard lock(mutex_);
        regions_.insert(std::upper_bound(regions_.begin(), regions_.end(), r, before), r);
        longest_ = std::max(longest_, r.bytes);
        if (r.foreign) foreign_.store(true, std::memory_order_relaxed);
    }
    /// Can this processor read and write the byte there?
    bool native(const std::byte* p) { return !foreign_.load(std::memory_order_relaxed) || !find(p, 1).foreign; }
    /// Ends a registration, here and with the device.
    void drop(const region& r) noexcept {
        {
            const std::lock_guard lock(mutex_);
            const auto is = [&](const region& x) { return x.at == r.at && x.handle == r.handle && x.local == r.local; };
            if (const auto i = std::find_if(regions_.begin(), regions_.end(), is); i != regions_.end())
                regions_.erase(i);
        }
        device_->drop(r);
    }
    /// A registered range that holds all of these bytes; one of no bytes where there is none.
    region find(const std::byte* p, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        auto i = std::upper_bound(
            regions_.begin(), regions_.end(), region{const_cast<std::byte*>(p), 0, 0, 0, nullptr, false}, before);
        while (i != regions_.begin()) {
            --i;
            if (i->holds(p, bytes)) return *i;
            if (static_cast<std::size_t>(p - i->at) >= longest_) break;  // none that begins before can reach so far
        }
        return {};
    }

    /// Returns registered memory, aligned to 128 bytes and not initialised: up to 256 KB cut from slabs, above that a
    /// range of its own. Throws std::bad_alloc, colls::error.
    std::byte* take(std::size_t bytes) {
        bytes = std::max<std::size_t>(bytes, 1);
        if (bytes > most_cut) {
            const std::size_t whole = (bytes + page - 1) / page * page;
            if (whole < bytes) throw std::bad_alloc();
            const std::lock_guard lock(pool_);
            for (auto i = idle_.begin(); i != idle_.end(); ++i)
                if (i->bytes >= whole && i->bytes / 2 <= whole) {
                    std::byte* const at = i->at;
                    busy_.push_back(*i);
                    idle_bytes_ -= i->bytes;
                    idle_.erase(i);
                    return at;
                }
            busy_.push_back(fresh(whole));
            return busy_.back().at;
        }
        const std::lock_guard lock(pool_);
        auto& free = free_[class_of(bytes)];
        if (free.empty()) {
            const std::size_t piece = std::size_t{1} << class_of(bytes), slab = std::max(piece, slab_bytes);
            const region r = fresh(slab);
            slabs_.push_back(r.at);
            for (std::size_t at = slab; at >= piece; at -= piece) free.push_back(r.at + at - piece);
        }
        std::byte* const at = free.back();
        free.pop_back();
        return at;
    }
    /// Takes memory back that `take` has returned for this many bytes.
    void give(std::byte* at, std::size_t bytes) noexcept {
        bytes = std::max<std::size_t>(bytes, 1);
        const std::lock_guard lock(pool_);
        if (bytes <= most_cut) {
            free_[class_of(bytes)].push_back(at);
            return;
        }
        const auto i = std::find_if(busy_.begin(), busy_.end(), [&](const region& r) { return r.at == at; });
        if (i == busy_.end()) return;
        const region r = *i;
        busy_.erase(i);
        if (idle_bytes_ + r.bytes <= most_idle) {
            idle_.push_back(r);
            idle_bytes_ += r.bytes;
            return;
        }
        drop(r);
        std::free(at);
    }

private:
    static constexpr std::size_t page = 4096, most_cut = std::size_t{256} << 10, slab_bytes = most_cut,
                                 most_idle = std::size_t{64} << 20;
    static bool before(const region& a, const region& b) {
        return reinterpret_cast<std::uintptr_t>(a.at) < reinterpret_cast<std::uintptr_t>(b.at);
    }
    static std::size_t class_of(std::size_t bytes) {
        return std::max<std::size_t>(static_cast<std::size_t>(std::bit_width(bytes - 1)), 8);
    }
    region fresh(std::size_t bytes) {
        void* const p = std::aligned_alloc(page, bytes);
        if (p == nullptr) throw std::bad_alloc();
        try {
            return add(static_cast<std::byte*>(p), bytes);
        } catch (...) {
            std::free(p);
            throw;
        }
    }

    const std::shared_ptr<rdma::device> device_;
    std::mutex mutex_, pool_;      // of the ranges, of the pool; where both are held, pool_ is locked first
    std::vector<region> regions_;  // in ascending order of address
    std::size_t longest_ = 0;
    std::atomic<bool> foreign_{false};  // a range of a foreign device is, or was, registered
    std::vector<std::byte*> free_[19];  // by the binary logarithm of their size
    std::vector<region> busy_, idle_;
    std::size_t idle_bytes_ = 0;
    std::vector<std::byte*> slabs_;
};

}  // namespace colls::inline v1::detail::rdma
