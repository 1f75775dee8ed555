// top_k_all_reduce: each rank sends its k largest values alone, and keeps the others for the next call.
//
//     colls::top_k_all_reduce exchange(gradient.size(), gradient.size() / 100);   // 1 %
//     for (...) exchange(comm, gradient);     // the sum over the ranks of what they sent; zero elsewhere
//
// Stich et al. 2018, "Sparsified SGD with Memory": a rank adds each contribution to a residual, sends the k values of
// the residual with the largest magnitudes, and sets them to zero. Lin et al. 2018, "Deep Gradient Compression", add
// momentum correction: the residual sums the rank's velocity instead, and the velocity of what was sent starts again;
// then the trainer updates the weights without momentum.
//
// Each rank sends k values with their indices to all others (all_gather), and all add them up in rank order: the same
// bits on every rank. Of equal magnitudes those of lower index go first. A NaN counts as larger than any number.
#pragma once

#include <colls/collectives.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace colls::inline v1 {

/// A value of a sparse vector.
struct sparse_value {
    float value;          ///< the value
    std::uint32_t index;  ///< its place in the vector
    friend bool operator==(const sparse_value&, const sparse_value&) = default;
};

/// Sums floats over the ranks, of which each sends its k largest: see the opening comment.
class top_k_all_reduce {
public:
    /// @param count     of floats, fewer than 2^32; the same on every rank
    /// @param k         values that a rank sends in a call, from 1 to count; the same on every rank
    /// @param momentum  of the momentum correction; 0: none
    top_k_all_reduce(std::size_t count, std::size_t k, float momentum = 0)
        : k_(k), momentum_(momentum), residual_(checked(count, k)), velocity_(momentum == 0 ? 0 : count) {}

    /// Adds x to the residual, and replaces x by the sum over the ranks of what they send of theirs. Collective.
    ///
    /// @param x  count() floats
    ///
    /// Throws colls::error as all_gather does (collectives.hpp). After an error x and the residual are unspecified.
    /// Cost: an all_gather of 8 k bytes a rank, of which each rank sends (n - 1) 8 k at least; time O(count + n k).
    void operator()(communicator& comm, std::span<float> x) {
        if (x.size() != residual_.size()) {
            detail::error_text text;
            text << "colls: rank " << comm.rank() << " in top_k_all_reduce: the buffer holds " << x.size()
                 << " floats, and should hold " << residual_.size();
            detail::refuse_call(comm.handle(), errc::invalid_argument, text.text());
        }
        (void)comm.context();  // refuses a communicator of no group before the residual changes
        add(x);
        const auto n = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
        all_.resize(n * k_);
        const std::span own = std::span(all_).subspan(me * k_, k_);
        take_largest(own);
        all_gather(comm, own, all_);
        for (float& v : x) v = 0;
        for (const sparse_value& v : all_) x[v.index] += v.value;
    }

    std::size_t count() const { return residual_.size(); }
    /// Values that a rank sends in a call.
    std::size_t k() const { return k_; }
    /// What this rank has not sent yet, count() floats. A checkpoint saves and restores it, and the velocity.
    std::span<float> residual() { return residual_; }
    /// The velocity of the momentum correction: count() floats, or none without it.
    std::span<float> velocity() { return velocity_; }
    /// Bytes that each of n ranks sends in a call, by a schedule of the least volume.
    double bytes_sent(int n) const {
        return static_cast<double>(n - 1) * static_cast<double>(k_ * sizeof(sparse_value));
    }

private:
    /// `count`, before memory is taken for it.
    static std::size_t checked(std::size_t count, std::size_t k) {
        if (k >= 1 && k <= count && count <= UINT32_MAX) return count;
        detail::error_text text;
        text << "colls: top_k_all_reduce: k is " << k << ", and must be from 1 to the number of floats, here " << count
             << ", which must be below 2^32";
        throw error(errc::invalid_argument, text.text());
    }
    void add(std::span<const float> x) {
        if (velocity_.empty()) {
            for (std::size_t i = 0; i < x.size(); ++i) residual_[i] += x[i];
        } else {
            for (std::size_t i = 0; i < x.size(); ++i) {
                velocity_[i] = momentum_ * velocity_[i] + x[i];
                residual_[i] += velocity_[i];
            }
        }
    }

    static std::uint32_t magnitude(float x) { return detail::bits_of(x) & 0x7fffffffu; }

    /// Moves the k values of largest magnitude from the residual to `to`, by rising index. Magnitudes compare as their
    /// bits do. The k-th is found digit by digit: each pass counts the values by one more digit.
    void take_largest(std::span<sparse_value> to) {
        constexpr struct {
            int low, width;
        } digits[] = {{20, 11}, {9, 11}, {0, 9}};
        std::uint32_t kth = 0;    // its digits found so far
        std::size_t wanted = k_;  // of the values with these digits, and without larger ones
        for (const auto [low, width] : digits) {
            const int end = low + width;
            counts_.assign(std::size_t{1} << width, 0);
            for (const float v : residual_)
                if (const std::uint32_t m = magnitude(v); m >> end == kth >> end)
                    ++counts_[m >> low & ((1u << width) - 1)];
            std::size_t d = counts_.size() - 1;
            while (counts_[d] < wanted) wanted -= counts_[d--];
            kth |= static_cast<std::uint32_t>(d) << low;
        }
        std::size_t at = 0;
        for (std::size_t i = 0; i < residual_.size(); ++i) {
            const std::uint32_t m = magnitude(residual_[i]);
            if (m < kth || (m == kth && wanted == 0)) continue;
            if (m == kth) --wanted;
            to[at++] = {residual_[i], static_cast<std::uint32_t>(i)};
            residual_[i] = 0;
            if (!velocity_.empty()) velocity_[i] = 0;
        }
    }

    std::size_t k_;
    float momentum_;
    std::vector<float> residual_, velocity_;
    std::vector<sparse_value> all_;
    std::vector<std::size_t> counts_;
};

}  // namespace colls::inline v1
