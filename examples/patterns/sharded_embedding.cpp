// A sharded embedding: the rows of a table are spread over the ranks. A lookup sends ids to the owners of their rows,
// and rows come back; gradients go to the owners, which sum them and update. Trains a skip-gram model with negative
// sampling (Mikolov et al. 2013) on the words of licence texts. See docs/patterns/sharded_embedding.md.
//
// ranks: 3 5 4
#include "../common/program.hpp"
#include "../common/texts.hpp"
#include "sharded_embedding/embedding.hpp"
#include "sharded_embedding/skip_gram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace example;

/// The two tables of a skip-gram model.
struct model {
    sharded_embedding centres, targets;
    model(colls::communicator& comm, int vocabulary, int width, bool unique = true)
        : centres(comm, vocabulary, width, 1, unique), targets(comm, vocabulary, width, 2, unique) {}
};

constexpr double rate = 0.2;

/// A rank's samples of a step of `batch` samples.
samples own_samples(colls::communicator& comm, const corpus& words, int step, int batch) {
    const auto [offset, size] = colls::block_of(static_cast<std::size_t>(batch), comm.size(), comm.rank());
    return samples_at(words, static_cast<std::size_t>(step * batch) + offset, size);
}

/// Whether the rows that this rank has are those of the whole table.
bool same_rows(colls::communicator& comm, const adagrad_rows& own, const adagrad_rows& whole) {
    double sum = 0;  // std::max would lose a NaN
    for (Eigen::Index at = 0; at < own.rows.cols(); ++at) {
        const Eigen::Index id = at * comm.size() + comm.rank();
        sum += (own.rows.col(at) - whole.rows.col(id)).norm();
    }
    return sum < 2e-7;
}

void compare_with_one_rank(colls::communicator& comm, output& out, const corpus& words, int width, int steps) {
    const int vocabulary = static_cast<int>(words.words.size());
    // Batches of a few samples leave ranks without ids.
    for (const int batch : {1, 2, 300}) {
        whole_embedding centres(vocabulary, width, 1), targets(vocabulary, width, 2);
        model unique(comm, vocabulary, width), again(comm, vocabulary, width), all(comm, vocabulary, width, false);
        double loss = 0, one_rank = 0;
        for (int step = 0; step < steps; ++step) {
            one_rank += train_step(centres, targets,
                samples_at(words, static_cast<std::size_t>(step * batch), static_cast<std::size_t>(batch)), rate);
            const samples own = own_samples(comm, words, step, batch);
            loss += train_step(unique.centres, unique.targets, own, rate);
            for (model* m : {&again, &all}) train_step(m->centres, m->targets, own, rate);
        }
        colls::all_reduce(comm, std::span(&loss, 1), colls::sum);
        out.check(fmt::format("{} steps of {} samples: the rows of one rank", steps, batch),
            same_rows(comm, unique.centres.table, centres.table) &&
                same_rows(comm, unique.targets.table, targets.table) && std::abs(loss - one_rank) < 1e-9);
        out.check("  also where repeated ids are sent each time",
            same_rows(comm, all.centres.table, centres.table) && same_rows(comm, all.targets.table, targets.table));
        out.check("  a second run gives the same bits", unique.centres.table.rows == again.centres.table.rows &&
                                                            unique.targets.table.rows == again.targets.table.rows);
    }
}

/// An id out of range on one rank: an error on all of them, no row moves, and the group goes on.
bool refuses_bad_ids(colls::communicator& comm) {
    sharded_embedding table(comm, 10, 4, 1);
    for (const int bad : {10, -1}) {
        std::string text;
        try {
            table.lookup(std::vector{3, comm.rank() == comm.size() - 1 ? bad : 4});
        } catch (const colls::error& e) {
            text = e.what();
        }
        const bool mine = comm.rank() == comm.size() - 1;
        if (text.find(mine ? fmt::format("id {} is out of range: the table has rows 0 to 9", bad)
                           : "refused its own rows") == text.npos)
            return false;
    }
    return table.lookup(std::vector{9, 3, 9}).col(2) == initial_row(1, 9, 4);
}

/// Bytes that all ranks send in a step, with and without repeated ids, and how evenly the owners are asked.
void measure(colls::communicator& comm, output& out, const corpus& words, int width) {
    const int n = comm.size(), vocabulary = static_cast<int>(words.words.size());
    table results({"samples a step", "ids", "different on a rank", "KB sent, all ids", "KB sent, each once",
        "busiest owner / mean: id % n", "in ranges"});
    plot chart(fmt::format("A step of a sharded embedding on {} ranks", n), {"samples a step", true},
        {"sent by all ranks", true, unit::bytes});
    double sent[2] = {1, 1};
    for (int batch = 64; batch <= (out.quick() ? 1024 : 16384); batch *= 4) {
        const samples own = own_samples(comm, words, 0, batch);
        std::vector<double> sums;
        for (const bool unique : {false, true}) {
            model m(comm, vocabulary, width, unique);
            train_step(m.centres, m.targets, own, rate);
            sums.push_back((m.centres.bytes() + m.targets.bytes()) / 1e3);
            sums.push_back(static_cast<double>(m.centres.ids_sent() + m.targets.ids_sent()));
        }
        // Rows asked of each owner, where owners are id % n, and where each has a range of ids.
        std::vector<double> asked(2 * static_cast<std::size_t>(n));
        for (const int id : own.targets) {
            ++asked[static_cast<std::size_t>(id % n)];
            ++asked[static_cast<std::size_t>(n + static_cast<int>(static_cast<long>(id) * n / vocabulary))];
        }
        colls::all_reduce(comm, sums, colls::sum);
        colls::all_reduce(comm, asked, colls::sum);
        const auto middle = asked.begin() + n;
        const double mean = std::accumulate(asked.begin(), middle, 0.0) / n;
        results.add(batch, sums[1], sums[3], fmt::format("{:.0f}", sums[0]), fmt::format("{:.0f}", sums[2]),
            fmt::format("{:.2f}", *std::max_element(asked.begin(), middle) / mean),
            fmt::format("{:.2f}", *std::max_element(middle, asked.end()) / mean));
        sent[0] = std::max(sums[0], 0.1) * 1e3, sent[1] = std::max(sums[2], 0.1) * 1e3;
        chart.add("all ids", batch, sent[0]);
        chart.add("each id once a rank", batch, sent[1]);
    }
    out.print(results);
    for (const double bytes : sent) chart.mark(out.quick() ? 1024 : 16384, bytes, shown(bytes, unit::bytes));
    chart.says(
        fmt::format("Frequent words repeat within a step: a rank that asks for each id once saves more the larger the "
                    "step is, {:.1f} times at the largest.",
            sent[0] / sent[1]));
    out.draw(chart);
}

/// The words whose rows point most nearly into the same direction.
std::string nearest(const corpus& words, const matrix& rows, const std::string& word) {
    const auto at = std::ranges::find(words.words, word) - words.words.begin();
    if (at == std::ssize(words.words)) return "is not in the text";
    std::vector<std::pair<double, std::string>> others;
    for (Eigen::Index i = 0; i < std::min<Eigen::Index>(rows.cols(), 600); ++i)  // the frequent ones
        if (i != at)
            others.emplace_back(
                -rows.col(i).normalized().dot(rows.col(at).normalized()), words.words[static_cast<std::size_t>(i)]);
    std::ranges::partial_sort(others, others.begin() + 5);
    std::string text;
    for (std::size_t i = 0; i < 5; ++i) text += " " + others[i].second;
    return text;
}

void train(colls::communicator& comm, output& out, const corpus& words, int width, int batch, int steps) {
    const int n = comm.size();
    model m(comm, static_cast<int>(words.words.size()), width);
    double sum = 0, first = 0;
    const int report = std::max(1, steps / 8);
    for (int step = 0; step < steps; ++step) {
        sum += train_step(m.centres, m.targets, own_samples(comm, words, step, batch), rate);
        if ((step + 1) % report != 0) continue;
        colls::all_reduce(comm, std::span(&sum, 1), colls::sum);
        sum /= static_cast<double>(report) * batch;
        out.print("step {:>4} of {}: loss {:.3f}\n", step + 1, steps, sum);
        if (first == 0) first = sum;
        if (step + 1 + report > steps) out.check("the loss has fallen", sum < first);
        sum = 0;
    }
    // All rows to rank 0, where they are put into the order of ids.
    std::vector<long> counts;
    for (int r = 0; r < n; ++r) counts.push_back((std::ssize(words.words) - r + n - 1) / n * width);
    matrix gathered(width, std::ssize(words.words)), rows = gathered;
    colls::gather_v(comm, numbers(m.centres.table.rows), numbers(gathered), counts, 0);
    for (Eigen::Index at = 0, r = 0; r < n; ++r)
        for (Eigen::Index id = r; id < rows.cols(); id += n) rows.col(id) = gathered.col(at++);
    if (comm.rank() != 0) return;
    for (const char* word : {"software", "copyright", "may", "version"})
        out.print("{:>10} is nearest to{}\n", word, nearest(words, rows, word));
}

}  // namespace

int main(int argc, char** argv) {
    program program("Trains a skip-gram model whose tables of rows are spread over the ranks.");
    std::string folder = "/usr/share/common-licenses";
    int width = 32, batch = 2048, steps = 600;
    program.options.add("--texts", folder, "folder of the texts");
    program.options.add("--width", width, "numbers a row", example::between(1, 4096));
    program.options.add("--batch", batch, "samples a step", example::between(1, 1'000'000));
    program.options.add("--steps", steps, "training steps", example::between(1, 1'000'000));
    return program.run(argc, argv, [&](colls::communicator& comm, output& out) {
        const corpus words = load_words(folder);
        out.print("{} words, {} different; tables of {} rows on each of {} ranks, or one less\n", words.text.size(),
            words.words.size(),
            (words.words.size() + static_cast<std::size_t>(comm.size()) - 1) / static_cast<std::size_t>(comm.size()),
            comm.size());
        out.check("the gradient is that of finite differences", gradient_error() < 2e-6);
        out.check("an id out of range is refused on all ranks, and the group goes on", refuses_bad_ids(comm));
        compare_with_one_rank(comm, out, words, width, out.quick() ? 5 : 20);
        measure(comm, out, words, width);
        if (out.quick())
            train(comm, out, words, width, 256, 40);
        else
            train(comm, out, words, width, batch, steps);
    });
}
