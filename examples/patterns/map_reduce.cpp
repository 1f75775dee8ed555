// MapReduce (Dean and Ghemawat 2004): word count and an inverted index of texts. Each rank maps its part of the texts
// to (word, value) records, sends each record to the rank that the hash of its word names, and merges what it receives.
// With a combiner a rank merges its own records first.
//
// ranks: 5 3 2
#include "../common/program.hpp"

#include <colls/patterns/shuffle.hpp>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

namespace {

using namespace example;
using records = std::map<std::string, std::uint32_t>;  // a word and its value

struct text {
    std::uint32_t number;  // 0 to 31: its bit in the inverted index
    std::string words;
};

/// What a job makes of one occurrence of a word, and of two values of a word.
struct job {
    const char* name;
    std::uint32_t (*map)(const text&);
    std::uint32_t (*merge)(std::uint32_t, std::uint32_t);
};
const job word_count{
    "word count", [](const text&) { return 1u; }, [](std::uint32_t a, std::uint32_t b) { return a + b; }};
const job inverted_index{"inverted index", [](const text& t) { return 1u << t.number; },
    [](std::uint32_t a, std::uint32_t b) { return a | b; }};

/// Calls f(word) for each run of letters, in lower case.
template <class F>
void each_word(const std::string& words, F f) {
    std::string word;
    for (std::size_t i = 0; i <= words.size(); ++i) {
        const char c = i < words.size() ? words[i] : ' ', lower = static_cast<char>(c | 0x20);
        if (lower >= 'a' && lower <= 'z') {
            word += lower;
        } else if (!word.empty()) {
            f(word);
            word.clear();
        }
    }
}

/// The rank that reduces a word: its FNV-1a hash. std::hash may differ between the programs of a group.
int owner_of(const std::string& word, int ranks) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : word) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return static_cast<int>(hash % static_cast<std::uint64_t>(ranks));
}

void merge_into(records& all, const job& what, const std::string& word, std::uint32_t value) {
    const auto [at, is_new] = all.try_emplace(word, value);
    if (!is_new) at->second = what.merge(at->second, value);
}

/// A record as bytes: the word, a zero, the value.
void append(std::vector<char>& list, const std::string& word, std::uint32_t value) {
    list.insert(list.end(), word.c_str(), word.c_str() + word.size() + 1);
    list.resize(list.size() + sizeof value);
    std::memcpy(list.data() + list.size() - sizeof value, &value, sizeof value);
}

/// What one rank's part in a job cost.
struct traffic {
    long sent = 0, received = 0;  // records
    long bytes_sent = 0, bytes_received = 0;
};

// example-begin map_reduce
/// Returns the records of the words that this rank owns, of the texts of all ranks.
records map_reduce(
    colls::communicator& comm, const job& what, const std::vector<text>& mine, bool combine, traffic& cost) {
    std::vector<std::vector<char>> lists(static_cast<std::size_t>(comm.size()));
    const auto emit = [&](const std::string& word, std::uint32_t value) {
        append(lists[static_cast<std::size_t>(owner_of(word, comm.size()))], word, value);
        ++cost.sent;
    };
    records combined;
    for (const text& t : mine)
        each_word(t.words, [&](const std::string& word) {
            if (combine)
                merge_into(combined, what, word, what.map(t));
            else
                emit(word, what.map(t));
        });
    for (const auto& [word, value] : combined) emit(word, value);

    const auto received = colls::shuffle(comm, lists);

    records result;
    for (const std::vector<char>& list : received)
        for (const char* at = list.data(); at != list.data() + list.size(); ++cost.received) {
            const std::string word = at;
            std::uint32_t value;
            std::memcpy(&value, at + word.size() + 1, sizeof value);
            merge_into(result, what, word, value);
            at += word.size() + 1 + sizeof value;
        }
    for (const auto& list : lists) cost.bytes_sent += static_cast<long>(list.size());
    for (const auto& list : received) cost.bytes_received += static_cast<long>(list.size());
    return result;
}
// example-end

/// The same without ranks.
records serial(const job& what, const std::vector<text>& all) {
    records result;
    for (const text& t : all)
        each_word(t.words, [&](const std::string& word) { merge_into(result, what, word, what.map(t)); });
    return result;
}

/// Whether the ranks together have exactly the records of `want`, each at the rank that owns its word.
bool is_divided(colls::communicator& comm, const records& mine, const records& want) {
    bool right = true;
    for (const auto& [word, value] : mine) {
        const auto at = want.find(word);
        right = right && at != want.end() && at->second == value && owner_of(word, comm.size()) == comm.rank();
    }
    long words = static_cast<long>(mine.size());
    colls::all_reduce(comm, std::span(&words, 1), colls::sum);
    return right && words == static_cast<long>(want.size());
}

std::vector<text> read_texts(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> files;
    if (std::filesystem::is_directory(folder))
        for (const auto& entry : std::filesystem::directory_iterator(folder))
            if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
    if (files.empty()) throw std::runtime_error(folder.string() + " has no files: name a folder of texts by --texts");
    std::ranges::sort(files);
    if (files.size() > 32) files.resize(32);
    std::vector<text> texts;
    for (const auto& file : files) {
        std::ostringstream all;
        all << std::ifstream(file).rdbuf();
        texts.push_back({static_cast<std::uint32_t>(texts.size()), all.str()});
    }
    return texts;
}

/// Texts of random words, in which one word makes up the share `skew`.
std::vector<text> made_texts(double skew, int words) {
    std::mt19937 random(1);
    std::vector<text> texts;
    for (std::uint32_t t = 0; t < 16; ++t) {
        texts.push_back({t, ""});
        for (int i = 0; i < words / 16; ++i) {
            const bool often = static_cast<double>(random() % 1000) < skew * 1000;
            std::string word;
            for (auto id = random() % 5000; !often && (word.empty() || id > 0); id /= 26)
                word += static_cast<char>('a' + id % 26);
            texts.back().words += (often ? "often" : word) + " ";
        }
    }
    return texts;
}

}  // namespace

int main(int argc, char** argv) {
    program program("Counts words and builds an inverted index by MapReduce, and compares both with a serial program.");
    std::string folder = "/usr/share/common-licenses";
    program.options.add("--texts", folder, "folder of text files");
    return program.run(argc, argv, [&](colls::communicator& comm, output& out) {
        table rows({"texts", "job", "combiner", "records sent", "bytes sent", "busiest reducer: bytes", "of the mean"});
        plot chart("Bytes received by the busiest reducer", {"share of the most frequent word", false, unit::percent},
            {.label = "received by the busiest reducer", .in = unit::bytes});
        double busiest[2] = {0, 0};

        // One run: returns the bytes that the busiest reducer received.
        const auto run = [&](const std::string& name, const std::vector<text>& texts, const job& what, bool combine) {
            std::vector<text> mine;
            for (std::size_t t = static_cast<std::size_t>(comm.rank()); t < texts.size();
                t += static_cast<std::size_t>(comm.size()))
                mine.push_back(texts[t]);
            traffic cost;
            const records result = map_reduce(comm, what, mine, combine, cost);
            const bool right = is_divided(comm, result, serial(what, texts));
            long sums[] = {cost.sent, cost.bytes_sent, cost.received, cost.bytes_received};
            long most = cost.bytes_received;
            colls::all_reduce(comm, std::span(sums), colls::sum);
            colls::all_reduce(comm, std::span(&most, 1), colls::max);
            const double mean = static_cast<double>(sums[3]) / comm.size();
            rows.add(name, what.name, combine ? "yes" : "no", sums[0], sums[1], most,
                fmt::format("{:.2f}", static_cast<double>(most) / std::max(mean, 1.0)));
            out.check(fmt::format("{}, {}, {}: as the serial program", name, what.name,
                          combine ? "with combiner" : "without combiner"),
                right && sums[0] == sums[2] && sums[1] == sums[3]);
            return std::pair(sums[1], most);
        };

        const auto licenses = read_texts(folder);
        out.print("{} ranks, {} texts\n", comm.size(), licenses.size());
        for (const job& what : {word_count, inverted_index}) {
            const long all = run("files", licenses, what, false).first,
                       fewer = run("files", licenses, what, true).first;
            out.check("the combiner sends fewer bytes", fewer < all);
        }
        // One word in all: every rank but its owner has an empty partition.
        const std::vector<text> one_word{{0, "word Word"}, {1, ""}, {2, "WORD"}};
        for (const bool combine : {false, true}) run("one word", one_word, word_count, combine);
        run("none", {}, word_count, true);
        for (const double skew : {0.0, 0.25, 0.5, 0.75, 0.95}) {
            const auto texts = made_texts(skew, out.quick() ? 4000 : 100'000);
            const std::string name = fmt::format("{:.0f} % one word", skew * 100);
            for (const bool combine : {false, true}) {
                busiest[combine ? 1 : 0] = static_cast<double>(run(name, texts, word_count, combine).second);
                chart.add(combine ? "with combiner" : "without", skew * 100, busiest[combine ? 1 : 0]);
            }
        }
        for (const double bytes : busiest) chart.mark(95, bytes, shown(bytes, unit::bytes));
        chart.says(
            fmt::format("The more often one word occurs, the more one reducer receives, unless ranks merge their own "
                        "records first: {} instead of {} where it is 95 % of all words.",
                shown(busiest[1], unit::bytes), shown(busiest[0], unit::bytes)));
        out.print(rows);
        out.draw(chart);
    });
}
