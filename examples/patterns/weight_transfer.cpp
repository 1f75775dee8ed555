// Hands the weights of a model from the ranks that train it to the ranks that serve it: colls::redistribute.
//
// The trainers keep the weights of each layer sharded by rows, as in ZeRO: they gather them for a step and scatter the
// gradients back. The servers keep them by columns (tensor parallelism: each computes some outputs of every layer), in
// replicas, each of which serves its part of the test images. After each round of training one redistribution for each
// tensor hands the weights over, on the one communicator that has all ranks. The servers' outputs are then compared
// with those of one rank that has all weights: they are the same bits, since each output is summed in the same order.
//
// ranks: 7 6 4
#include "../common/fashion_mnist.hpp"
#include "../common/network.hpp"
#include "../common/program.hpp"

#include <colls/redistribute.hpp>

#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace {

using numbers = std::vector<float>;
/// One row for each feature, one column for each image: a rank that computes some features fills whole rows.
using images = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr std::array hidden = {
    100, 50};  // 100 outputs do not divide by three servers, nor 784 inputs by three trainers

/// A matrix of the model: where it lies in network::parameters(), and its layouts before and after.
struct tensor {
    std::size_t offset;
    colls::layout trained, served;
    std::size_t size() const { return trained.shape().rows * trained.shape().columns; }
};

/// Weights (inputs x outputs; biases: 1 x outputs) of all layers, over `trainers` ranks and then `servers` ranks.
std::vector<tensor> tensors_of(const std::vector<int>& widths, int trainers, int servers, int replicas) {
    std::vector<tensor> all;
    std::size_t offset = 0;
    for (std::size_t l = 0; l + 1 < widths.size(); ++l)
        for (const int rows : {widths[l], 1}) {
            // example-begin layouts
            const colls::tensor_shape shape{static_cast<std::size_t>(rows), static_cast<std::size_t>(widths[l + 1])};
            const colls::rank_range from{0, trainers}, to{trainers, servers / replicas};
            // A single row is cut by columns: its shards are contiguous, as those of a matrix are by rows.
            all.push_back(
                {offset, rows == 1 ? colls::layout::by_columns(shape, from) : colls::layout::by_rows(shape, from),
                    colls::layout::by_columns(shape, to).replicated(replicas)});
            // example-end
            offset += all.back().size();
        }
    return all;
}

/// The outputs of a layer, of which `weights` has some columns: each is its bias and then, input by input, the
/// products.
images outputs(const float* weights, const float* biases, std::size_t columns, const images& in, bool last) {
    images out(static_cast<Eigen::Index>(columns), in.cols());
    for (Eigen::Index o = 0; o < out.rows(); ++o) {
        out.row(o).setConstant(biases[o]);
        for (Eigen::Index i = 0; i < in.rows(); ++i) out.row(o) += weights[i * out.rows() + o] * in.row(i);
    }
    return last ? out : images(out.cwiseMax(0.0f));
}

/// The trainers' part: full weights in `net` during a step, between steps this rank's shards in `shards`.
class trainer {
public:
    trainer(colls::communicator group, const std::vector<tensor>& tensors, const std::vector<int>& widths,
        std::vector<numbers>& shards)
        : group_(std::move(group)), tensors_(tensors), net_(widths, 1), shards_(shards), velocity_(tensors.size()) {
        for (std::size_t t = 0; t < tensors.size(); ++t) {
            const colls::layout& l = tensors[t].trained;
            std::vector<std::size_t> sizes;
            for (int r = 0; r < group_.size(); ++r) sizes.push_back(l.size_of(r));
            const colls::tensor_block own = l.held_by(group_.rank());
            const std::size_t first = tensors[t].offset + own.row * l.shape().columns + own.column;
            std::copy_n(net_.parameters().begin() + static_cast<std::ptrdiff_t>(first), own.size(), shards[t].begin());
            velocity_[t].resize(own.size());
            counts_.push_back(sizes);
        }
    }

    /// One step of SGD with momentum on a batch, each trainer with its part of the samples. Returns the mean loss.
    double step(const example::dataset& data, std::span<const int> samples, float rate) {
        gather();
        const colls::buffer_block mine = colls::block_of(samples.size(), group_.size(), group_.rank());
        const auto own = samples.subspan(mine.offset, mine.size);
        std::vector<std::uint8_t> labels;
        for (const int s : own) labels.push_back(data.labels[static_cast<std::size_t>(s)]);
        double loss = net_.backward(example::batch_of<float>(data, own), labels, static_cast<int>(samples.size()),
            std::size_t{1} << 20, [](std::size_t) {});
        for (std::size_t t = 0; t < tensors_.size(); ++t) {
            numbers gradient(shards_[t].size());
            colls::reduce_scatter_v(group_, net_.gradient().subspan(tensors_[t].offset, tensors_[t].size()), gradient,
                counts_[t], colls::sum);
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                velocity_[t][i] = 0.9f * velocity_[t][i] + gradient[i];
                shards_[t][i] -= rate * velocity_[t][i];
            }
        }
        colls::all_reduce(group_, std::span(&loss, 1), colls::sum);
        return loss / static_cast<double>(samples.size());
    }

    /// All weights, on every trainer.
    std::span<const float> gather() {
        for (std::size_t t = 0; t < tensors_.size(); ++t)
            colls::all_gather_v(
                group_, shards_[t], net_.parameters().subspan(tensors_[t].offset, tensors_[t].size()), counts_[t]);
        return net_.parameters();
    }

private:
    colls::communicator group_;
    const std::vector<tensor>& tensors_;
    example::network<float> net_;
    std::vector<numbers>& shards_;
    std::vector<numbers> velocity_;
    std::vector<std::vector<std::size_t>> counts_;
};

int count_correct(const images& logits, std::span<const std::uint8_t> labels) {
    int correct = 0;
    for (Eigen::Index s = 0; s < logits.cols(); ++s) {
        Eigen::Index best = 0;
        logits.col(s).maxCoeff(&best);
        correct += best == labels[static_cast<std::size_t>(s)];
    }
    return correct;
}

/// What is sent, from the schedules, beside what the formulas say.
void report(example::output& out, int ranks, const std::vector<tensor>& tensors) {
    example::table table({"rank", "role", "sends", "at most", "receives", "its part", "passes on", "(r-1)/r of it"});
    example::plot chart(
        "What each rank sends in one transfer of all weights", {"rank"}, {.label = "sent", .in = example::unit::bytes});
    bool within = true, complete = true;
    for (int r = 0; r < ranks; ++r) {
        std::size_t part = 0, limit = 0;
        double passed = 0;
        colls::redistribution_load sum;
        for (const tensor& t : tensors) {
            const colls::redistribution s(t.trained, t.served);
            const colls::redistribution_load l = s.load_of(r);
            std::size_t piece = 0;
            for (int slot = 0; slot < s.blocks(ranks); ++slot) piece = std::max(piece, s.piece(r, slot).size());
            const auto trainers = static_cast<std::size_t>(t.trained.ranks());
            const bool trains = t.trained.index_of(r) != colls::none;
            const std::size_t most = trains ? (t.size() + trainers - 1) / trainers + piece : 0;
            within = within && l.sent <= most;
            complete = complete && l.received == t.served.size_of(r);
            limit += most;
            part += t.served.size_of(r);
            passed += static_cast<double>(t.served.size_of(r)) * (1 - 1.0 / t.served.replicas);
            sum.sent += l.sent;
            sum.received += l.received;
            sum.passed_on += l.passed_on;
        }
        table.add(r, part == 0 ? "trains" : "serves", 4 * sum.sent, 4 * limit, 4 * sum.received, 4 * part,
            4 * sum.passed_on, static_cast<std::size_t>(4 * passed));
        chart.add("sent", r, static_cast<double>(4 * (sum.sent + sum.passed_on)));
        chart.add("formula", r, static_cast<double>(4 * limit) + 4 * passed);
    }
    out.print("Bytes of one transfer of all weights. At most: ceil(S / M) and one piece, summed over the tensors.\n");
    out.print(table);
    out.check("no trainer sends more than ceil(S / M) and one piece of any tensor", within);
    out.check("each server receives its part once", complete);
    chart.says(
        "Trainers send their share of the weights once, less than the formula allows; servers pass on about what it "
        "says to the next replica. No rank sends all weights.");
    out.draw(chart);
}

}  // namespace

int main(int argc, char** argv) {
    example::program program("Trains on some ranks, hands the weights over, and serves on the others.");
    program.default_ranks(7);
    std::string folder = "/usr/share/datasets/fashion-mnist";
    int trainers = 0, replicas = 2, rounds = 3, steps = 200;
    program.options.add("--data", folder, "folder of Fashion-MNIST");
    program.options.add(
        "--trainers", trainers, "ranks that train; 0: half of them, or fewer so that replicas are equal");
    program.options.add("--replicas", replicas, "replicas of the served model", example::between(1, 64));
    program.options.add("--rounds", rounds, "rounds of training, each with a transfer", example::between(1, 1000));
    program.options.add("--steps", steps, "steps of a round", example::between(1, 100000));
    return program.run(argc, argv, [&](colls::communicator& comm, example::output& out) {
        int train = trainers > 0 ? trainers : comm.size() / 2;
        while (trainers == 0 && train > 1 && (comm.size() - train) % replicas != 0) --train;
        const int serve = comm.size() - train;
        if (train < 1 || serve < replicas || serve % replicas != 0)
            throw std::runtime_error(
                fmt::format("{} ranks that serve cannot be {} equal replicas: change --ranks, --trainers or --replicas",
                    serve, replicas));
        const bool trains = comm.rank() < train;
        const int shards = serve / replicas, replica = trains ? 0 : (comm.rank() - train) / shards;
        const int step_count = out.quick() ? 40 : steps, round_count = out.quick() ? 2 : rounds;
        const example::dataset data = example::load_fashion_mnist(folder, "train");
        const example::dataset test = example::load_fashion_mnist(folder, "t10k");
        const std::vector<int> widths = {data.pixels(), hidden[0], hidden[1], 10};
        const std::vector<tensor> tensors = tensors_of(widths, train, serve, replicas);
        out.print("{} ranks train and {} serve, as {} replicas of {}\n", train, serve, replicas, shards);

        std::vector<numbers> mine, served;
        std::vector<colls::prepared_redistribution> transfers;
        for (const tensor& t : tensors) {
            mine.emplace_back(t.trained.size_of(comm.rank()));
            served.emplace_back(t.served.size_of(comm.rank()));
        }
        // example-begin prepare
        for (std::size_t t = 0; t < tensors.size(); ++t)
            transfers.emplace_back(comm, mine[t], tensors[t].trained, served[t], tensors[t].served);
        // example-end
        colls::communicator group = comm.split(trains ? 0 : 1 + replica, 0);
        std::optional<trainer> training;
        if (trains) training.emplace(std::move(group), tensors, widths, mine);

        // The images that are served: each replica has a block of them.
        std::vector<int> samples(static_cast<std::size_t>(out.quick() ? 1000 : test.size()));
        std::iota(samples.begin(), samples.end(), 0);
        const images all = example::batch_of<float>(test, samples);
        const colls::buffer_block own = colls::block_of(samples.size(), replicas, trains ? 0 : replica);
        const auto begin = static_cast<Eigen::Index>(own.offset), count = static_cast<Eigen::Index>(own.size);

        example::table results({"steps", "loss", "accuracy, one rank", "accuracy, servers"});
        bool same = true, learned = false;
        for (int round = 0, at = 0; round < round_count; ++round) {
            double loss = 0;
            for (int s = 0; s < step_count && trains; ++s) {
                std::vector<int> batch(128);
                for (int& b : batch) b = at++ * 7919 % data.size();
                loss = training->step(data, batch, 0.02f);
            }
            // example-begin transfer
            for (auto& t : transfers) t.start();
            for (auto& t : transfers) t.wait();
            // example-end

            // One rank with all weights: the reference.
            images logits(10, all.cols());
            int correct[2] = {0, 0};  // of one rank, of the servers
            if (trains) {
                const std::span<const float> weights = training->gather();
                if (comm.rank() == 0) {
                    images x = all;
                    for (std::size_t t = 0; t < tensors.size(); t += 2)
                        x = outputs(weights.data() + tensors[t].offset, weights.data() + tensors[t + 1].offset,
                            tensors[t].trained.shape().columns, x, t + 2 == tensors.size());
                    logits = x;
                    correct[0] = count_correct(logits, test.labels);
                }
            }
            colls::broadcast(comm, std::span(logits.data(), static_cast<std::size_t>(logits.size())), 0);
            if (!trains) {
                images x = all.middleCols(begin, count);
                for (std::size_t t = 0; t < tensors.size(); t += 2) {
                    const colls::layout& l = tensors[t].served;
                    const images some = outputs(served[t].data(), served[t + 1].data(), l.held_by(comm.rank()).columns,
                        x, t + 2 == tensors.size());
                    std::vector<std::size_t> counts;
                    for (int p = 0; p < shards; ++p) counts.push_back(l.part(p).columns * own.size);
                    x.resize(static_cast<Eigen::Index>(l.shape().columns), count);
                    colls::all_gather_v(group, std::span(some.data(), static_cast<std::size_t>(some.size())),
                        std::span(x.data(), static_cast<std::size_t>(x.size())), counts);
                }
                const images want = logits.middleCols(begin, count);
                same =
                    same && std::memcmp(want.data(), x.data(), static_cast<std::size_t>(x.size()) * sizeof(float)) == 0;
                if (group.rank() == 0)
                    correct[1] = count_correct(x, std::span(test.labels).subspan(own.offset, own.size));
            }
            colls::all_reduce(comm, correct, colls::sum);
            const auto percent = [&](int k) {
                return fmt::format("{:.2f} %", 100.0 * k / static_cast<double>(samples.size()));
            };
            results.add(
                (round + 1) * step_count, fmt::format("{:.3f}", loss), percent(correct[0]), percent(correct[1]));
            same = same && correct[0] == correct[1];
            learned = correct[0] > static_cast<int>(samples.size()) / 2;
        }
        out.print(results);
        out.check("the servers' outputs are those of one rank, to the bit", same);
        out.check("more than half of the images are recognised", learned);
        report(out, comm.size(), tensors);
    });
}
