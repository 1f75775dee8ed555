#include "trial.hpp"

#include <cstring>

namespace perf {

namespace {

constexpr int poison = 0xa5;

/// The number of elements in which two images of a buffer differ; each guard byte counts as one.
std::size_t differences(std::span<const std::byte> is, std::span<const std::byte> wanted, std::size_t begin,
    std::size_t bytes, std::size_t element) {
    if (std::memcmp(is.data(), wanted.data(), wanted.size()) == 0) return 0;
    std::size_t count = 0;
    for (std::size_t i = 0; i < wanted.size();) {
        const std::size_t width = i >= begin && i < begin + bytes ? element : 1;
        count += std::memcmp(&is[i], &wanted[i], width) != 0;
        i += width;
    }
    return count;
}

}  // namespace

trial::trial(colls::communicator& comm, const call_kind& kind, const shape& s, std::span<buffer_pair> pairs)
    : kind_(kind), shape_(s), rank_(comm.rank()), n_(comm.size()), pairs_(pairs) {
    if (kind.what == job::all_to_all_v)
        for (int r = 0; r < n_; ++r) {
            sends_.push_back(sent_by(rank_, r, n_, s.count));
            receives_.push_back(sent_by(r, rank_, n_, s.count));
        }
    for (buffer_pair& p : pairs_) {
        for (guarded* g : {&p.first, &p.second}) g->move_to(kind.unalign * s.element);
        call c{.what = kind.what,
            .op = kind.op,
            .in_count = s.in,
            .out_count = s.out,
            .root = kind.root,
            .sends = sends_,
            .receives = receives_,
            .schedule = kind.schedule};
        c.out = p.second.data();
        c.in = kind.in_place ? p.second.data() : p.first.data();
        if (kind.in_place) {
            const std::size_t block = static_cast<std::size_t>(rank_) * s.count * s.element;
            if (s.in < s.out) c.in += block;
            if (s.out < s.in) c.out += block;
        }
        calls_.push_back(c);
    }
}

bool trial::reads_input() const {
    return (kind_.what != job::broadcast && kind_.what != job::scatter) || rank_ == kind_.root;
}

void trial::fill(std::uint64_t seed) {
    for (std::size_t k = 0; k < calls_.size(); ++k)
        if (reads_input()) kind_.type->contribute(calls_[k].in, 0, shape_.in, kind_.op, rank_, n_, seed + k);
}

std::uint64_t trial::read() const {
    std::uint64_t all = 0;
    for (const call& c : calls_) {
        const std::size_t bytes = shape_.out * shape_.element;
        for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
            std::uint64_t word;
            std::memcpy(&word, c.out + i, 8);
            all += word;
        }
        for (std::size_t i = bytes / 8 * 8; i < bytes; ++i) all += static_cast<std::uint64_t>(c.out[i]);
    }
    return all;
}

void trial::expect(std::byte* out, std::uint64_t seed) const {
    const element_type& t = *kind_.type;
    const std::size_t element = shape_.element, count = shape_.count, own = static_cast<std::size_t>(rank_) * count;
    const bool at_root = rank_ == kind_.root;
    const auto moved = [&](std::size_t at, std::size_t first, std::size_t elements, int from) {
        t.contribute(out + at * element, first, elements, reduction::none, from, n_, seed);
    };
    const auto folded = [&](std::size_t first, std::size_t elements, int last) {
        t.fold(out, first, elements, kind_.op, last, n_, seed);
    };
    switch (kind_.what) {
        case job::broadcast:
            return moved(0, 0, count, kind_.root);
        case job::scatter:
            return moved(0, own, count, kind_.root);
        case job::gather:
        case job::all_gather:
            if (kind_.what == job::all_gather || at_root)
                for (int r = 0; r < n_; ++r) moved(static_cast<std::size_t>(r) * count, 0, count, r);
            return;
        case job::reduce:
            if (at_root) folded(0, count, n_);
            return;
        case job::reduce_scatter:
            return folded(own, count, n_);
        case job::all_reduce:
            return folded(0, count, n_);
        case job::all_to_all:
            for (int r = 0; r < n_; ++r) moved(static_cast<std::size_t>(r) * count, own, count, r);
            return;
        case job::barrier:
            return;
        case job::inclusive_scan:
            return folded(0, count, rank_ + 1);
        case job::exclusive_scan:
            if (rank_ > 0) folded(0, count, rank_);
            return;
        case job::all_to_all_v:
            for (std::size_t r = 0, at = 0; r < receives_.size(); at += receives_[r++]) {
                std::size_t first = 0;  // of the block for this rank in rank r's input
                for (int to = 0; to < rank_; ++to) first += sent_by(static_cast<int>(r), to, n_, count);
                moved(at, first, receives_[r], static_cast<int>(r));
            }
            return;
        case job::send_recv:
            return moved(0, 0, count, (rank_ + n_ - 1) % n_);
    }
}

std::size_t trial::wrong_after(std::uint64_t seed, const std::function<void()>& perform) {
    std::vector<std::vector<std::byte>> images;
    for (buffer_pair& p : pairs_)
        for (guarded* g : {&p.first, &p.second}) {
            const auto whole = g->around(buffer_bytes());
            std::memset(whole.data(), poison, whole.size());
        }
    fill(seed);
    for (std::size_t k = 0; k < pairs_.size(); ++k) {
        for (guarded* g : {&pairs_[k].first, &pairs_[k].second}) {
            const auto whole = g->around(buffer_bytes());
            images.emplace_back(whole.begin(), whole.end());
        }
        const auto offset = calls_[k].out - pairs_[k].second.around(buffer_bytes()).data();
        expect(images.back().data() + offset, seed + k);
    }
    perform();
    std::size_t wrong = 0;
    for (std::size_t k = 0; k < pairs_.size(); ++k) {
        std::size_t i = 2 * k;
        for (guarded* g : {&pairs_[k].first, &pairs_[k].second})
            wrong += differences(g->around(buffer_bytes()), images[i++], g->begin(), buffer_bytes(), shape_.element);
    }
    return wrong;
}

}  // namespace perf
