// Data-parallel training with Adam whose state is sharded over the ranks: ZeRO (Rajbhandari et al. 2020).
//
// Stage 0 shards nothing; stage 1 the optimizer's state; stage 2 the gradients too; stage 3 the parameters too, as
// fully sharded data parallel (Zhao et al. 2023) does. Every stage computes the same numbers.
#pragma once

#include "account.hpp"

#include <colls/colls.hpp>
#include <colls/patterns/sharded.hpp>

#include <Eigen/Core>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace example {

/// Parameters and gradients in bfloat16; the computation, master weights and Adam's two moments in float.
struct mixed_precision {
    using low = colls::bfloat16;
    using high = float;
};
/// For comparisons with one rank.
struct double_precision {
    using low = double;
    using high = double;
};

struct sharded_settings {
    int stage = 3;
    bool overlap = true;  // a layer is gathered, and a gradient reduced, while the layer before is computed
    double link = 0;      // emulated bytes a second that a rank sends; 0: as fast as the machine is
    double learning_rate = 1e-3;
    std::uint64_t seed = 1;
};

/// A multilayer perceptron with a learned scale of its logits: a layer of one parameter. Each layer is a unit that is
/// gathered, reduced and freed as a whole.
template <class Precision>
class sharded_training {
public:
    using low = typename Precision::low;
    using high = typename Precision::high;
    using matrix = Eigen::Matrix<high, Eigen::Dynamic, Eigen::Dynamic>;

    /// widths: of the input, of each hidden layer, of the output. The same seed gives the same weights for any number
    /// of ranks.
    sharded_training(colls::communicator& comm, std::span<const int> widths, const sharded_settings& how)
        : comm_(comm),
          how_(how),
          link_(how.link),
          widths_(widths.begin(), widths.end()),
          layout_(comm, layer_sizes(widths_)),
          activations_(layers()),
          updates_(layers()) {
        const std::size_t all = layout_.size(), own = layout_.local_size();
        parameters_ = {memory_, "parameters", how.stage >= 3 ? own : all};
        gradients_ = {memory_, "gradients", how.stage >= 2 ? own : all};
        for (auto* state : {&master_, &mean_, &variance_})
            *state = {memory_, "optimizer state", how.stage >= 1 ? own : all};
        for (std::size_t l = 0; l < layers(); ++l) initialise(l);
    }

    std::size_t layers() const { return layout_.units(); }
    const colls::sharded& layout() const { return layout_; }
    const memory_account& memory() const { return memory_; }
    /// The bytes that this rank has sent so far, and its time in calls.
    const example::link& traffic() const { return link_; }

    /// One step of Adam over one shard of a batch of `batch` samples. Returns the shard's summed loss. Collective.
    double step(const matrix& x, std::span<const std::uint8_t> labels, int batch) {
        matrix delta = forward(x, 2 * layers());
        double loss = 0;
        for (Eigen::Index s = 0; s < delta.cols(); ++s) {
            auto column = delta.col(s);
            const auto label = labels[static_cast<std::size_t>(s)];
            column = (column.array() - column.maxCoeff()).exp();
            column /= column.sum();
            loss -= std::log(std::max(static_cast<double>(column(label)), 1e-30));
            column(label) -= high(1);
        }
        delta /= static_cast<high>(batch);
        for (std::size_t l = layers(); l-- > 0;) backward(l, x, delta);
        finish_gradient();
        update();
        return loss;
    }

    /// The share of the samples that the network gets right. Collective; ranks may differ in what they pass.
    int count_correct(const matrix& x, std::span<const std::uint8_t> labels) {
        const matrix& logits = forward(x, layers());
        int correct = 0;
        for (Eigen::Index s = 0; s < logits.cols(); ++s) {
            Eigen::Index best = 0;
            logits.col(s).maxCoeff(&best);
            correct += best == labels[static_cast<std::size_t>(s)];
        }
        return correct;
    }

    /// The master weights of all layers. Collective.
    std::vector<high> weights() {
        std::vector<high> all(master_.all().begin(), master_.all().end());
        if (how_.stage == 0) return all;
        all.resize(layout_.size());
        for (std::size_t l = 0; l < layers(); ++l)
            layout_.start_all_gather(l, layout_.local_part(l, master_.all()), layout_.unit_part(l, all)).wait();
        return all;
    }
    /// This rank's part of the gradient of layer l after a step, reduced; the whole of it in stage 0.
    std::span<low> gradient(std::size_t l) { return own_part(l, gradients_, how_.stage >= 2); }

private:
    /// A whole layer, and the call that fills or reduces it. The call is destroyed first: it uses the buffer.
    struct transfer {
        counted<low> buffer;
        link::call call;
    };

    static std::vector<std::size_t> layer_sizes(const std::vector<int>& widths) {
        std::vector<std::size_t> sizes;
        for (std::size_t l = 0; l + 1 < widths.size(); ++l)
            sizes.push_back(static_cast<std::size_t>(widths[l + 1]) * static_cast<std::size_t>(widths[l] + 1));
        sizes.push_back(1);
        return sizes;
    }
    bool is_scale(std::size_t l) const { return l + 1 == layers(); }
    bool has_relu(std::size_t l) const { return l + 2 < layers(); }

    /// What this rank updates of layer l, in a buffer of its shards alone (`sharded`) or in one of all layers.
    template <class T>
    std::span<T> own_part(std::size_t l, counted<T>& of, bool sharded) {
        if (sharded) return layout_.local_part(l, of.all());
        const std::span<T> layer = layout_.unit_part(l, of.all());
        return how_.stage == 0 ? layer : layout_.shard_part(l, layer);
    }

    void initialise(std::size_t l) {
        std::vector<high> drawn(layout_.unit(l).size, high(1));
        if (!is_scale(l)) {
            // He et al. 2015. Drawn by hand: std::normal_distribution differs between libraries.
            std::mt19937_64 random(how_.seed + 1000 * l);
            const auto weights = static_cast<std::size_t>(widths_[l]) * static_cast<std::size_t>(widths_[l + 1]);
            for (std::size_t i = 0; i < drawn.size(); ++i) {
                double sum = -6;
                for (int k = 0; k < 12; ++k) sum += static_cast<double>(random() >> 11) * 0x1p-53;
                drawn[i] = i < weights ? static_cast<high>(std::sqrt(2.0 / widths_[l]) * sum) : high(0);
            }
        }
        const std::span<high> own = how_.stage == 0 ? std::span(drawn) : layout_.shard_part(l, drawn);
        std::ranges::copy(own, own_part(l, master_, how_.stage >= 1).begin());
        const std::span<high> kept = how_.stage == 3 ? own : std::span(drawn);
        std::ranges::transform(kept, (how_.stage == 3 ? own_part(l, parameters_, true) : whole(l)).begin(),
            [](high w) { return static_cast<low>(w); });
    }
    std::span<low> whole(std::size_t l) { return layout_.unit_part(l, parameters_.all()); }

    // example-begin prefetch
    /// The parameters of the layer that is computed at `position`: positions 0, 1, ... go forward through the layers,
    /// and then backward. In stage 3 the next layer is gathered meanwhile.
    std::span<const low> parameters_at(std::size_t position, std::size_t end) {
        transfer& here = gathered_[position % 2];
        if (how_.stage == 3) {
            if (here.buffer.size() == 0) gather(position);
            link_.wait(here.call);
            if (how_.overlap && position + 1 < end) gather(position + 1);
            return here.buffer.all();
        }
        link_.wait(updates_[layer_at(position)]);
        return whole(layer_at(position));
    }
    void gather(std::size_t position) {
        const std::size_t l = layer_at(position);
        transfer& into = gathered_[position % 2];
        into.buffer = {memory_, "gathered layers", layout_.unit(l).size};
        start_all_gather(l, layout_.local_part(l, parameters_.all()), into.buffer.all(), into.call);
    }
    void release(std::size_t position) { gathered_[position % 2] = {}; }
    // example-end
    std::size_t layer_at(std::size_t position) const {
        return position < layers() ? position : 2 * layers() - 1 - position;
    }

    /// All ranks' shards of a layer. By `direct`, which sends no more than need be and folds in rank order.
    void start_all_gather(std::size_t l, std::span<const low> mine, std::span<low> layer, link::call& started) {
        using colls::collective;
        const auto sent = elements_sent<colls::direct, collective::all_gather>(layout_.counts(l), comm_.rank());
        link_.start(started, sizeof(low) * sent,
            [&] { return layout_.template start_all_gather<colls::direct>(l, mine, layer); });
        if (!how_.overlap) link_.wait(started);
    }

    // example-begin reduce
    /// Starts the sum over the ranks of a layer's gradient, while the layer before is computed.
    void reduce_gradient(std::size_t l, transfer&& next) {
        using colls::collective;
        finish_gradient();  // of the layer behind: frees its buffer, so that there are never more than two
        sending_ = std::move(next);
        if (how_.stage == 0) {
            const std::span<low> layer = layout_.unit_part(l, gradients_.all());
            const auto sent =
                elements_sent<colls::direct, collective::all_reduce>(layer.size(), comm_.size(), comm_.rank());
            link_.start(sending_.call, sizeof(low) * sent,
                [&] { return colls::start::all_reduce<colls::direct>(comm_, layer, colls::sum); });
        } else {
            const std::span<low> layer =
                how_.stage == 1 ? layout_.unit_part(l, gradients_.all()) : sending_.buffer.all();
            const auto sent = elements_sent<colls::direct, collective::reduce_scatter>(layout_.counts(l), comm_.rank());
            link_.start(sending_.call, sizeof(low) * sent, [&] {
                return layout_.template start_reduce_scatter<colls::direct>(l, layer, gradient(l), colls::sum);
            });
        }
        if (!how_.overlap) finish_gradient();
    }
    void finish_gradient() {
        link_.wait(sending_.call);
        sending_ = {};
    }
    // example-end

    /// The logits, one column a sample. Gathers no position from `end` on.
    const matrix& forward(const matrix& x, std::size_t end) {
        for (std::size_t l = 0; l < layers(); ++l) {
            const matrix& in = l == 0 ? x : activations_[l - 1];
            matrix& out = activations_[l];
            const auto compute = computed(parameters_at(l, end));
            if (is_scale(l)) {
                out = compute.data()[0] * in;
            } else {
                out.noalias() = weight_matrix(l, compute.data()) * in;
                out.colwise() += biases(l, compute.data());
            }
            if (has_relu(l)) out = out.cwiseMax(high(0));
            release(l);
        }
        return activations_.back();
    }

    /// Takes delta, the loss's gradient by the layer's output, to that by its input.
    void backward(std::size_t l, const matrix& x, matrix& delta) {
        const matrix& in = l == 0 ? x : activations_[l - 1];
        if (has_relu(l)) delta = (activations_[l].array() > high(0)).select(delta, high(0));
        const std::size_t position = 2 * layers() - 1 - l;
        {
            const auto compute = computed(parameters_at(position, 2 * layers()));
            transfer next;
            if (how_.stage >= 2) next.buffer = {memory_, "gradients in flight", layout_.unit(l).size};
            const std::span<low> to = how_.stage >= 2 ? next.buffer.all() : layout_.unit_part(l, gradients_.all());
            write_gradient(l, in, delta, to);
            if (l > 0)
                delta = is_scale(l) ? matrix(compute.data()[0] * delta)
                                    : matrix(weight_matrix(l, compute.data()).transpose() * delta);
            reduce_gradient(l, std::move(next));
        }
        release(position);
    }
    void write_gradient(std::size_t l, const matrix& in, const matrix& delta, std::span<low> to) {
        counted<high> wide(memory_, "copies of a layer", to.size());
        high* const at = wide.data();
        if (is_scale(l)) {
            at[0] = delta.cwiseProduct(in).sum();
        } else {
            Eigen::Map<matrix>(at, delta.rows(), in.rows()).noalias() = delta * in.transpose();
            Eigen::Map<matrix>(at + delta.rows() * in.rows(), delta.rows(), 1) = delta.rowwise().sum();
        }
        std::ranges::transform(wide.all(), to.begin(), [](high g) { return static_cast<low>(g); });
    }

    /// A layer's parameters as the processor multiplies them: in `high`, and aligned, so that every stage computes the
    /// same bits.
    counted<high> computed(std::span<const low> parameters) {
        counted<high> wide(memory_, "copies of a layer", parameters.size());
        std::ranges::copy(parameters, wide.data());
        return wide;
    }
    auto weight_matrix(std::size_t l, const high* at) const {
        return Eigen::Map<const matrix>(at, widths_[l + 1], widths_[l]);
    }
    auto biases(std::size_t l, const high* at) const {
        return Eigen::Map<const Eigen::Matrix<high, Eigen::Dynamic, 1>>(
            at + Eigen::Index{widths_[l]} * widths_[l + 1], widths_[l + 1]);
    }

    // example-begin update
    /// Adam (Kingma and Ba 2015) on what this rank owns, and, in stages 1 and 2, the parameters for all ranks.
    void update() {
        ++steps_;
        const high unbias1 = 1 - std::pow(beta1, static_cast<high>(steps_));
        const high unbias2 = 1 - std::pow(beta2, static_cast<high>(steps_));
        const auto rate = static_cast<high>(how_.learning_rate);
        for (std::size_t l = 0; l < layers(); ++l) {
            const auto gradient = this->gradient(l);
            const auto master = own_part(l, master_, how_.stage >= 1), mean = own_part(l, mean_, how_.stage >= 1),
                       variance = own_part(l, variance_, how_.stage >= 1);
            const auto parameters = own_part(l, parameters_, how_.stage >= 3);
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                const auto g = static_cast<high>(gradient[i]);
                mean[i] = beta1 * mean[i] + (1 - beta1) * g;
                variance[i] = beta2 * variance[i] + (1 - beta2) * g * g;
                master[i] -= rate * (mean[i] / unbias1) / (std::sqrt(variance[i] / unbias2) + high(1e-8));
                parameters[i] = static_cast<low>(master[i]);
            }
            if (how_.stage == 1 || how_.stage == 2) start_all_gather(l, parameters, whole(l), updates_[l]);
        }
    }
    // example-end
    static constexpr high beta1 = high(0.9), beta2 = high(0.999);

    colls::communicator& comm_;
    sharded_settings how_;
    link link_;
    std::vector<int> widths_;
    colls::sharded layout_;
    memory_account memory_;
    counted<low> parameters_, gradients_;
    counted<high> master_, mean_, variance_;
    std::vector<matrix> activations_;
    std::array<transfer, 2> gathered_;  // the layers at an even and at an odd position
    transfer sending_;                  // the gradient that is being reduced
    std::vector<link::call> updates_;   // by layer: the all_gather of its new parameters
    long steps_ = 0;
};

}  // namespace example
