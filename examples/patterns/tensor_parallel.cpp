// Tensor parallel (Shoeybi et al. 2019) and sequence parallel (Korthikanti et al. 2022): a small transformer that reads
// bytes, whose attention heads and hidden units are cut over the ranks. Every gradient is compared with one rank's.
//
// ranks: 4 3 2
#include "transformer.hpp"

#include "../common/difference.hpp"
#include "../common/program.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using example::matrix;
using example::parallelism;
using example::transformer;
using example::transformer_shape;

constexpr std::array modes{parallelism::tensor, parallelism::sequence, parallelism::sequence_kept};
constexpr std::array mode_names{"tensor", "sequence", "sequence, inputs kept"};

std::vector<std::uint8_t> read_text(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    std::vector<std::uint8_t> text{std::istreambuf_iterator<char>(in), {}};
    if (text.empty()) throw std::runtime_error(file + " is missing or empty: name a text by --text");
    return text;
}
/// Sequences of a step: pieces of length + 1 bytes.
std::vector<std::uint8_t> sequences(const std::vector<std::uint8_t>& text, int count, int length, int step) {
    const auto piece = static_cast<std::size_t>(length + 1);
    if (text.size() < piece) throw std::runtime_error("the text is shorter than a sequence: give a smaller --length");
    std::mt19937_64 random(static_cast<std::uint64_t>(step) + 5);
    std::vector<std::uint8_t> batch;
    for (int b = 0; b < count; ++b) {
        const auto from = text.begin() + static_cast<std::ptrdiff_t>(random() % (text.size() - piece + 1));
        batch.insert(batch.end(), from, from + static_cast<std::ptrdiff_t>(piece));
    }
    return batch;
}

/// The largest difference between this rank's matrices and its parts of the whole ones, relative to the largest value.
double difference(const transformer& part, const std::vector<matrix>& mine, const std::vector<matrix>& whole) {
    double worst = 0;
    for (std::size_t i = 0; i < part.size(); ++i) {
        const matrix expected = part.part_of(whole[i], i);
        if (mine[i].rows() != expected.rows() || mine[i].cols() != expected.cols()) return INFINITY;
        if (expected.size() == 0) continue;
        worst = example::worse(
            worst, (mine[i] - expected).cwiseAbs().maxCoeff<Eigen::PropagateNaN>() / whole[i].cwiseAbs().maxCoeff());
    }
    return worst;
}

/// The largest relative difference of one rank's gradients from central differences, in some elements of each weight.
double gradient_error(transformer& model, std::span<const std::uint8_t> batch, double total) {
    model.backward(batch, total);
    const std::vector<matrix> gradients = model.gradients;
    std::mt19937_64 random(7);
    double worst = 0;
    for (std::size_t i = 0; i < model.size(); ++i) {
        const double largest = gradients[i].cwiseAbs().maxCoeff();
        for (int k = 0; k < 4; ++k) {
            const auto place = static_cast<Eigen::Index>(random() % static_cast<std::uint64_t>(gradients[i].size()));
            double& w = model.weights[i].data()[place];
            const double before = w, h = 1e-5;
            w = before + h;
            const double above = model.backward(batch, total);
            w = before - h;
            const double below = model.backward(batch, total);
            w = before;
            worst = example::worse(worst, std::abs(gradients[i].data()[place] - (above - below) / (2 * h)) / largest);
        }
    }
    return worst;
}

void descend(transformer& model, double rate) {
    for (std::size_t i = 0; i < model.size(); ++i) model.weights[i] -= rate * model.gradients[i];
}

/// What a rank of the group sends in all blocks, and keeps, by the formulas, on average: elements.
struct formulas {
    double sent, kept;

    formulas(const transformer_shape& s, int batch, int ranks, parallelism how) {
        const double n = ranks, tokens = batch * s.length, sbh = tokens * s.width;
        const double volume = how == parallelism::tensor ? 4 * 2 : how == parallelism::sequence ? 10 : 8;
        sent = s.blocks * volume * sbh * (n - 1) / n;
        const double streams = how == parallelism::tensor ? 4 : how == parallelism::sequence ? 4 / n : 2 / n + 2;
        kept = s.blocks * (sbh * (streams + 4 / n) + 2 * tokens * s.hidden / n + s.heads * tokens * s.length / n);
    }
};
/// What this rank keeps, exactly.
std::size_t kept_exactly(const transformer& model, const transformer_shape& s, int batch, parallelism how) {
    const auto at = [](int v) { return static_cast<std::size_t>(v); };
    const std::size_t all = at(batch * s.length), own = model.group().tokens().size, heads = model.group().heads.size;
    const std::size_t inputs = how == parallelism::sequence ? own : all;
    return at(s.blocks) * (at(s.width) * 2 * (own + inputs) + all * at(4 * s.head_width()) * heads +
                              all * at(s.length) * heads + 2 * all * model.group().hidden.size);
}

/// One-rank groups of `comm`, and the gradients that its rank computes alone.
struct reference {
    colls::communicator alone;
    transformer model;

    reference(colls::communicator& comm, const transformer_shape& shape, int batch)
        : alone(comm.split(comm.rank(), 0)), model(alone, shape, parallelism::tensor, batch, 1) {}
};

/// Groups of 1 to n ranks, each way: every gradient, bytes and memory.
void compare(colls::communicator& comm, example::output& out, const transformer_shape& shape, int batch,
    const std::vector<std::uint8_t>& text) {
    reference one(comm, shape, batch);
    const auto data = sequences(text, batch, shape.length, 0);
    const double total = batch * shape.length;
    double error = 0;
    if (comm.rank() == 0) {
        transformer model(one.alone, {6, 2, 5, 2, 4}, parallelism::tensor, 2, 3);
        error = gradient_error(model, sequences(text, 2, 4, 1), 8);
    }
    out.print("gradients of a small block: relative difference {:.1e} from finite differences\n", error);
    out.check("every gradient agrees with finite differences", error < 1e-6);
    const double expected_loss = one.model.backward(data, total);

    example::table table({"ranks", "way", "difference", "sent a block", "formula", "kept a block", "formula"});
    example::plot chart("Activations that a rank keeps for backward, measured", {"ranks"},
        {.label = "kept by the busiest rank for each block", .in = example::unit::bytes});
    chart.says(
        "Sequence parallel keeps the least, since it also cuts what tensor parallel holds whole on every rank; where "
        "heads do not divide by the ranks, further ranks save little.");
    bool agree = true, bytes = true, memory = true;
    for (int ranks = 1; ranks <= comm.size(); ++ranks) {
        colls::communicator part = comm.split(comm.rank() < ranks ? 0 : -1, comm.rank());
        if (part.size() == 0) continue;
        for (std::size_t m = 0; m < modes.size(); ++m) {
            transformer model(part, shape, modes[m], batch, 1);
            double loss = model.backward(data, total), worst = difference(model, model.gradients, one.model.gradients);
            std::size_t sent = model.group().calls.bytes_sent(), kept = model.memory().peak();
            const formulas formula(shape, batch, ranks, modes[m]);
            memory = memory && kept == sizeof(double) * kept_exactly(model, shape, batch, modes[m]);
            colls::all_reduce(part, std::span(&loss, 1), colls::sum);
            colls::all_reduce(part, std::span(&worst, 1), colls::max);
            colls::all_reduce(part, std::span(&sent, 1), colls::sum);
            colls::all_reduce(part, std::span(&kept, 1), colls::max);
            agree = agree && worst < 1e-10 && std::abs(loss - expected_loss) < 1e-10;
            bytes = bytes && static_cast<double>(sent) == std::round(sizeof(double) * formula.sent * ranks);
            const auto kb = [&](double b) { return fmt::format("{:.2f}", b / 1000 / shape.blocks); };
            table.add(ranks, mode_names[m], fmt::format("{:.1e}", worst), kb(static_cast<double>(sent) / ranks),
                kb(sizeof(double) * formula.sent), kb(static_cast<double>(kept)), kb(sizeof(double) * formula.kept));
            chart.add(mode_names[m], ranks, static_cast<double>(kept) / shape.blocks);
        }
    }
    out.print("\n{} heads, {} hidden units, {} tokens of width {}: KB, sent by a rank on average, kept by the busiest",
        shape.heads, shape.hidden, batch * shape.length, shape.width);
    out.print(table);
    out.check("loss and every gradient: the same as one rank", agree);
    out.check("bytes sent are what the formulas say", bytes);
    out.check("memory is what the formulas say, on every rank", memory);
    out.draw(chart);
}

/// Groups of `tensor` ranks share a model; the sequences of a batch are cut over these groups.
void compare_grid(colls::communicator& comm, example::output& out, const transformer_shape& shape, int batch,
    const std::vector<std::uint8_t>& text) {
    reference one(comm, shape, batch);
    const auto data = sequences(text, batch, shape.length, 0);
    const double total = batch * shape.length;
    one.model.backward(data, total);
    for (int tensor = 1; tensor <= comm.size(); ++tensor) {
        const int copies = comm.size() / tensor;
        if (comm.size() % tensor != 0 || copies > batch) continue;
        // example-begin grid
        colls::communicator tensor_ranks = comm.split(comm.rank() / tensor, comm.rank());
        colls::communicator data_ranks = comm.split(comm.rank() % tensor, comm.rank());
        const auto own = colls::block_of(static_cast<std::size_t>(batch), copies, data_ranks.rank());
        const auto piece = static_cast<std::size_t>(shape.length + 1);
        transformer model(tensor_ranks, shape, parallelism::sequence, static_cast<int>(own.size), 1);
        model.backward(std::span(data).subspan(own.offset * piece, own.size * piece), total);
        for (matrix& g : model.gradients)
            colls::all_reduce(data_ranks, std::span(g.data(), static_cast<std::size_t>(g.size())), colls::sum);
        // example-end
        const double worst = difference(model, model.gradients, one.model.gradients);
        out.check(fmt::format("{} tensor-parallel ranks times {} of data: the same as one rank", tensor, copies),
            worst < 1e-10);
    }
}

/// Gradient descent on the text, each way, beside one rank.
void train(colls::communicator& comm, example::output& out, const transformer_shape& shape, int batch, int steps,
    const std::vector<std::uint8_t>& text) {
    reference one(comm, shape, batch);
    std::vector<transformer> models;
    models.reserve(modes.size());
    for (const parallelism how : modes) models.emplace_back(comm, shape, how, batch, 1);
    double first = 0, worst = 0, loss = 0;
    for (int s = 0; s < steps; ++s) {
        const auto data = sequences(text, batch, shape.length, s);
        const double total = batch * shape.length;
        loss = one.model.backward(data, total);
        descend(one.model, 0.2);
        for (transformer& model : models) {
            double sum = model.backward(data, total);
            colls::all_reduce(comm, std::span(&sum, 1), colls::sum);
            worst = example::worse(worst, std::abs(sum - loss));
            descend(model, 0.2);
        }
        if (s == 0) first = loss;
        if (s % 20 == 0 || s + 1 == steps)
            out.print("  step {:4}: loss {:.4f}, {:.1e} from one rank's\n", s, loss, worst);
    }
    for (transformer& model : models)
        worst = example::worse(worst, difference(model, model.weights, one.model.weights));
    out.check("losses and weights after training: the same as one rank", worst < 1e-8);
    out.check("the loss has fallen", loss < first || steps < 2);
}

}  // namespace

int main(int argc, char** argv) {
    example::program program(
        "Cuts a transformer over the ranks, tensor parallel and sequence parallel, and compares gradients, bytes and "
        "memory with one rank and with the formulas.");
    std::string file = "/usr/share/common-licenses/GPL-3";
    transformer_shape shape{48, 6, 192, 2, 32};
    int batch = 4, steps = 100;
    program.options.add("--text", file, "the text to learn");
    program.options.add("--width", shape.width, "numbers a token", example::between(1, 4096));
    program.options.add("--heads", shape.heads, "attention heads, a divisor of the width", example::between(1, 4096));
    program.options.add("--hidden", shape.hidden, "hidden units of a block", example::between(1, 65536));
    program.options.add("--blocks", shape.blocks, "transformer blocks", example::between(1, 100));
    program.options.add("--length", shape.length, "tokens of a sequence", example::between(1, 4096));
    program.options.add("--batch", batch, "sequences a step", example::between(1, 4096));
    program.options.add("--steps", steps, "steps of training", example::between(1, 1000000));
    return program.run(argc, argv, [&](colls::communicator& comm, example::output& out) {
        transformer_shape s = shape;
        s.check();
        if (out.quick()) s = {18, 3, 37, 2, 7};  // heads, hidden units and tokens that no group of 2 or 4 ranks divides
        const int sequences_a_step = out.quick() ? 3 : batch;
        const auto text = read_text(file);
        compare(comm, out, s, sequences_a_step, text);
        compare_grid(comm, out, s, sequences_a_step, text);
        train(comm, out, s, sequences_a_step, out.quick() ? 4 : steps, text);
    });
}
