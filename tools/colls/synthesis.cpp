#include "synthesis.hpp"

#include "exchange/ports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

namespace tool {

namespace {

using colls::collective;
using colls::simulation::topology;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// Two ranks with no other rank between them, and the links from one to the other.
struct neighbours {
    int from, to;
    std::vector<int> route;
};

/// `turned`: each link in the other direction.
std::vector<neighbours> neighbours_on(const topology& t, int n, bool turned) {
    std::vector<std::vector<std::vector<int>>> routes(at(n), std::vector<std::vector<int>>(at(n)));
    for (int a = 0; a < n; ++a)
        for (int b = 0; b < n; ++b)
            if (a != b) t.route(a, b, routes[at(a)][at(b)]);
    const auto leads_through_a_rank = [&](int a, int b) {
        const std::vector<int>& whole = routes[at(a)][at(b)];
        for (int c = 0; c < n; ++c) {
            if (c == a || c == b) continue;
            const std::vector<int>&first = routes[at(a)][at(c)], &second = routes[at(c)][at(b)];
            if (first.size() + second.size() == whole.size() && std::equal(first.begin(), first.end(), whole.begin()) &&
                std::equal(second.begin(), second.end(), whole.begin() + static_cast<std::ptrdiff_t>(first.size())))
                return true;
        }
        return false;
    };
    std::vector<neighbours> all;
    for (int a = 0; a < n; ++a)
        for (int b = 0; b < n; ++b)
            if (a != b && !leads_through_a_rank(a, b))
                all.push_back({turned ? b : a, turned ? a : b, routes[at(a)][at(b)]});
    return all;
}

/// Blocks that each link carries in a round. The slowest link of all routes carries as few as keep the others' shares
/// within 2 % of their bandwidths, 8 at most.
std::vector<int> blocks_in_round(const topology& t, const std::vector<neighbours>& pairs) {
    std::set<int> used;
    for (const neighbours& p : pairs) used.insert(p.route.begin(), p.route.end());
    double slowest = std::numeric_limits<double>::infinity();
    for (const int l : used) slowest = std::min(slowest, t.links()[at(l)].bandwidth);
    constexpr int most = 8;
    constexpr double enough = 0.02;
    int best = 1;
    double least = 2;
    for (int k = 1; k <= most; ++k) {
        double lost = 0;
        for (const int l : used) {
            const double share = k * t.links()[at(l)].bandwidth / slowest;
            lost = std::max(lost, 1 - std::floor(share + 1e-6) / share);
        }
        if (lost < least - 1e-9) {
            least = lost;
            best = k;
        }
        if (lost <= enough) break;
    }
    std::vector<int> capacity(t.links().size(), 0);
    for (const int l : used)
        capacity[at(l)] = static_cast<int>(std::floor(best * t.links()[at(l)].bandwidth / slowest + 1e-6));
    return capacity;
}

/// A set of blocks.
class block_bits {
public:
    explicit block_bits(int blocks) : words_(at(blocks + 63) / 64) {}
    bool has(int b) const { return (words_[at(b) / 64] >> (at(b) % 64) & 1) != 0; }
    void add(int b) { words_[at(b) / 64] |= std::uint64_t{1} << (at(b) % 64); }
    std::size_t words() const { return words_.size(); }
    std::uint64_t word(std::size_t i) const { return words_[i]; }

private:
    std::vector<std::uint64_t> words_;
};

struct transfer {
    int from, to, block;
};
using rounds = std::vector<std::vector<transfer>>;

/// Spreads blocks until every rank has all.
class spreading {
public:
    spreading(const std::vector<neighbours>& pairs, const std::vector<int>& capacity, int n, int blocks)
        : pairs_(pairs), capacity_(capacity), n_(n), blocks_(blocks), into_(at(n)) {
        for (int i = 0; i < static_cast<int>(pairs.size()); ++i) into_[at(pairs[at(i)].to)].push_back(i);
    }

    /// `owner[b]`: the rank that has block b at first. The search ends where it has `limit` rounds.
    rounds search(const std::vector<int>& owner, std::size_t limit, std::mt19937_64& random) {
        had_.assign(at(n_), block_bits(blocks_));
        holders_.assign(at(blocks_), 1);
        missing_.assign(at(n_), blocks_);
        for (int b = 0; b < blocks_; ++b) {
            had_[at(owner[at(b)])].add(b);
            --missing_[at(owner[at(b)])];
        }
        will_have_ = had_;
        rounds made;
        while (std::any_of(missing_.begin(), missing_.end(), [](int m) { return m > 0; }) && made.size() < limit) {
            made.emplace_back();
            play_round(made.back(), random);
            had_ = will_have_;
        }
        return made;
    }

private:
    void play_round(std::vector<transfer>& made, std::mt19937_64& random) {
        std::vector<int> left = capacity_, order(at(n_));
        last_.assign(pairs_.size(), -1);
        std::iota(order.begin(), order.end(), 0);
        // Each rank is given one block a turn, so that none takes the links of all.
        for (bool more = true; more;) {
            more = false;
            for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
            std::vector<int> waiting;
            for (const int to : order) {
                const neighbours* const from = scarcest_source(to, left);
                if (from == nullptr) continue;
                int& last = last_[at(static_cast<int>(from - pairs_.data()))];
                const int block = last = rarest_block(*from, last, random);
                for (const int l : from->route) --left[at(l)];
                will_have_[at(to)].add(block);
                ++holders_[at(block)];
                --missing_[at(to)];
                made.push_back({from->from, to, block});
                waiting.push_back(to);
                more = true;
            }
            order = waiting;  // a rank that finds nothing now finds nothing later in the round
        }
    }
    /// The one with the least choice among the neighbours that can send something new.
    const neighbours* scarcest_source(int to, const std::vector<int>& left) const {
        if (missing_[at(to)] == 0) return nullptr;
        const neighbours* best = nullptr;
        int least = std::numeric_limits<int>::max();
        for (const int i : into_[at(to)]) {
            const neighbours& p = pairs_[at(i)];
            if (std::any_of(p.route.begin(), p.route.end(), [&](int l) { return left[at(l)] == 0; })) continue;
            int offers = 0;
            for (std::size_t w = 0; w < had_[0].words(); ++w)
                offers += std::popcount(had_[at(p.from)].word(w) & ~will_have_[at(to)].word(w));
            if (offers > 0 && offers < least) {
                least = offers;
                best = &p;
            }
        }
        return best;
    }
    /// Among equal ones that behind the last block of the pair in this round, with which it makes one message.
    int rarest_block(const neighbours& p, int last, std::mt19937_64& random) const {
        int best = -1, equal = 0;
        for (std::size_t w = 0; w < had_[0].words(); ++w)
            for (std::uint64_t bits = had_[at(p.from)].word(w) & ~will_have_[at(p.to)].word(w); bits != 0;
                bits &= bits - 1) {
                const int b = static_cast<int>(w) * 64 + std::countr_zero(bits);
                const int held = holders_[at(b)], least = best < 0 ? held + 1 : holders_[at(best)];
                if (held < least) equal = 0;
                if (held > least) continue;
                if (random() % static_cast<unsigned>(++equal) == 0) best = b;  // each of the equal ones as likely
            }
        const int next = last + 1;
        const bool continues = last >= 0 && next < blocks_ && had_[at(p.from)].has(next) &&
                               !will_have_[at(p.to)].has(next) && holders_[at(next)] == holders_[at(best)];
        return continues ? next : best;
    }

    const std::vector<neighbours>& pairs_;
    const std::vector<int>& capacity_;
    int n_, blocks_;
    std::vector<std::vector<int>> into_;       // the pairs that end at a rank
    std::vector<block_bits> had_, will_have_;  // by rank: before the round, and with what it brings
    std::vector<int> last_;                    // block of each pair in the round, or -1
    std::vector<int> holders_, missing_;       // ranks that will have a block; blocks that a rank will lack
};

/// Spreads n * cut blocks from their owners, or `cut` blocks from rank 0.
rounds spread(const synthesis& of, const topology& on, bool turned) {
    const bool from_one = of.what == collective::broadcast || of.what == collective::reduce;
    const int blocks = from_one ? of.cut : of.ranks * of.cut;
    std::vector<int> owner(at(blocks), 0);
    for (int b = 0; !from_one && b < blocks; ++b) owner[at(b)] = b / of.cut;
    const std::vector<neighbours> pairs = neighbours_on(on, of.ranks, turned);
    const std::vector<int> capacity = blocks_in_round(on, pairs);
    spreading search(pairs, capacity, of.ranks, blocks);
    std::mt19937_64 random(of.seed);
    rounds best = search.search(owner, std::numeric_limits<std::size_t>::max(), random);
    for (int i = 1; i < of.tries; ++i) {
        rounds other = search.search(owner, best.size(), random);
        if (other.size() < best.size()) best = std::move(other);
    }
    return best;
}

/// A message of one round: blocks first ... first + count - 1.
struct message {
    int from, to, first, count;
};
std::vector<message> messages_of(std::vector<transfer> round) {
    std::sort(round.begin(), round.end(), [](const transfer& a, const transfer& b) {
        return std::tuple(a.from, a.to, a.block) < std::tuple(b.from, b.to, b.block);
    });
    std::vector<message> all;
    for (const transfer& t : round)
        if (!all.empty() && all.back().from == t.from && all.back().to == t.to &&
            all.back().first + all.back().count == t.block)
            ++all.back().count;
        else
            all.push_back({t.from, t.to, t.block, 1});
    return all;
}

/// Sets of ranks that are joined by faster links than those between them and the others: the ranks themselves, and what
/// is left together if all pairs of a bandwidth or less are taken away.
std::vector<std::vector<int>> tight_sets(const topology& t, const std::vector<neighbours>& pairs, int n) {
    const auto width = [&](const neighbours& p) {
        double least = std::numeric_limits<double>::infinity();
        for (const int l : p.route) least = std::min(least, t.links()[at(l)].bandwidth);
        return least;
    };
    std::set<double> widths;
    for (const neighbours& p : pairs) widths.insert(width(p));
    std::set<std::vector<int>> sets;
    for (const double w : widths) {
        std::vector<int> group(at(n));
        std::iota(group.begin(), group.end(), 0);
        for (const neighbours& p : pairs)
            if (const int a = group[at(p.from)], b = group[at(p.to)]; width(p) > w && a != b)
                std::replace(group.begin(), group.end(), a, b);
        for (int g = 0; g < n; ++g) {
            std::vector<int> members;
            for (int r = 0; r < n; ++r)
                if (group[at(r)] == g) members.push_back(r);
            if (!members.empty() && static_cast<int>(members.size()) < n) sets.insert(members);
        }
    }
    return {sets.begin(), sets.end()};
}

/// Bytes a second that can enter a set of ranks. Each route into it uses its last link, and its narrowest one.
double bandwidth_into(const topology& t, const std::vector<neighbours>& pairs, const std::set<int>& members) {
    std::set<int> last, narrowest;
    for (const neighbours& p : pairs) {
        if (members.contains(p.from) || !members.contains(p.to)) continue;
        last.insert(p.route.back());
        narrowest.insert(*std::min_element(p.route.begin(), p.route.end(),
            [&](int a, int b) { return t.links()[at(a)].bandwidth < t.links()[at(b)].bandwidth; }));
    }
    const auto sum = [&](const std::set<int>& links) {
        double all = 0;
        for (const int l : links) all += t.links()[at(l)].bandwidth;
        return all;
    };
    return std::min(sum(last), sum(narrowest));
}

/// The bound for spreading from all ranks, or from rank 0.
double bound_of_spreading(const synthesis& of, const topology& on, double bytes, bool turned) {
    std::vector<neighbours> pairs = neighbours_on(on, of.ranks, turned);
    if (turned)
        for (neighbours& p : pairs) std::reverse(p.route.begin(), p.route.end());
    const bool from_one = of.what == collective::broadcast || of.what == collective::reduce;
    double bound = 0;
    for (const std::vector<int>& set : tight_sets(on, pairs, of.ranks)) {
        const std::set<int> members(set.begin(), set.end());
        const double outside = from_one ? (members.contains(0) ? 0 : 1)
                                        : static_cast<double>(of.ranks - static_cast<int>(set.size())) / of.ranks;
        bound = std::max(bound, bytes * outside / bandwidth_into(on, pairs, members));
    }
    if (!from_one) return bound;
    std::set<int> others;
    for (int r = 1; r < of.ranks; ++r) others.insert(r);
    return std::max(bound, bytes / bandwidth_into(on, pairs, others));
}

}  // namespace

exchange::transfer_table synthesised(const synthesis& of, const topology& on) {
    const bool gathers = of.what == collective::all_gather || of.what == collective::broadcast;
    const bool reduces = of.what == collective::reduce_scatter || of.what == collective::reduce;
    if (!gathers && !reduces && of.what != collective::all_reduce)
        throw std::runtime_error(
            fmt::format("{} is not synthesised; these are: all_gather, reduce_scatter, all_reduce, broadcast, reduce",
                colls::name_of(of.what)));
    if (of.ranks < 2) throw std::runtime_error("a schedule is made for two ranks or more");

    std::vector<std::pair<std::vector<message>, colls::action>> all;  // by round
    if (!gathers) {
        rounds back = spread(of, on, true);
        std::reverse(back.begin(), back.end());
        for (std::vector<transfer>& round : back) {
            for (transfer& t : round) std::swap(t.from, t.to);
            all.emplace_back(messages_of(round), colls::action::reduce);
        }
    }
    if (!reduces)
        for (const std::vector<transfer>& round : spread(of, on, false))
            all.emplace_back(messages_of(round), colls::action::copy);

    std::vector<std::vector<int>> ports;
    exchange::transfer_table table;
    for (const auto& [messages, action] : all) {
        std::vector<std::pair<int, int>> ends;
        for (const message& m : messages) ends.emplace_back(m.from, m.to);
        auto [port, count] = exchange::ports_of(ends, of.ranks);
        ports.push_back(std::move(port));
        table.ports = std::max(table.ports, count);
    }
    const bool one_buffer = of.what == collective::broadcast || of.what == collective::reduce;
    table.name = fmt::format("{} made for {} ranks", colls::name_of(of.what), of.ranks);
    table.implements = of.what;
    table.ranks = of.ranks;
    table.rounds = static_cast<int>(all.size());
    table.blocks = one_buffer ? of.cut : of.ranks * of.cut;
    table.steps.resize(at(table.rounds) * at(table.ranks) * at(table.ports));
    for (int r = 0; r < table.rounds; ++r)
        for (std::size_t i = 0; i < all[at(r)].first.size(); ++i) {
            const message& m = all[at(r)].first[i];
            const colls::block_set blocks = colls::block_range(m.first, m.count);
            table.at(m.from, r, ports[at(r)][i]).send = {m.to, blocks};
            table.at(m.to, r, ports[at(r)][i]).recv = {m.from, blocks, all[at(r)].second};
        }
    return table;
}

double bandwidth_bound(const synthesis& of, const topology& on, double bytes) {
    const bool gathers = of.what == collective::all_gather || of.what == collective::broadcast;
    const bool reduces = of.what == collective::reduce_scatter || of.what == collective::reduce;
    return (gathers ? 0 : bound_of_spreading(of, on, bytes, true)) +
           (reduces ? 0 : bound_of_spreading(of, on, bytes, false));
}

}  // namespace tool
