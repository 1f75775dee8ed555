// Rounds of random messages between ranks on GPUs, beside what they should bring: every rank knows what all send. For
// ranks of one process and of many.
#pragma once

#include <colls/transports/cuda.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace message_test {

using colls::cuda::detail::check;
using byte = unsigned char;

/// Byte i of what is sent from one rank to another, as their message of that number in a round.
inline byte content(int from, int to, std::size_t number, std::size_t round, std::size_t i) {
    std::uint64_t x =
        i * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(from * 97 + to) * 1000003 + number * 131 + round * 31;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9ull;
    return static_cast<byte>(x >> 40);
}

/// Memory of a rank, filled with messages, between guards; with an offset that is no multiple of anything.
class arena {
public:
    /// `of_group`: from allocate, else of cudaMalloc, which ranks of other processes do not reach.
    arena(colls::cuda::communicator& gpu, std::size_t bytes, bool of_group, cudaStream_t stream)
        : host_(bytes, filler), stream_(stream) {
        if (of_group)
            group_.emplace(gpu.allocate<byte>(bytes));
        else
            own_ = colls::cuda::detail::device_memory(gpu.device(), bytes);
    }
    /// `bytes` more, somewhere.
    std::size_t take(std::size_t bytes, std::size_t offset) {
        const std::size_t at = used_ + guard + offset;
        used_ = at + bytes;
        if (used_ + guard > host_.size()) std::printf("the test's arena is too small\n"), std::abort();
        taken_.push_back({at, bytes});
        return at;
    }
    std::span<byte> on_device(std::size_t at, std::size_t bytes) { return {data() + at, bytes}; }
    byte& operator[](std::size_t i) { return host_[i]; }
    void put() { copy(data(), host_.data()); }
    void get() { copy(host_.data(), data()); }
    /// Is all memory beside what was taken as it was?
    bool intact() const {
        std::size_t next = 0;
        const auto is_filler = [](byte b) { return b == filler; };
        for (const auto& [at, bytes] : taken_) {
            if (!std::all_of(host_.begin() + static_cast<std::ptrdiff_t>(next),
                    host_.begin() + static_cast<std::ptrdiff_t>(at), is_filler))
                return false;
            next = at + bytes;
        }
        return std::all_of(host_.begin() + static_cast<std::ptrdiff_t>(next), host_.end(), is_filler);
    }

private:
    static constexpr byte filler = 0x71;
    static constexpr std::size_t guard = 32;
    byte* data() { return own_.size() != 0 ? reinterpret_cast<byte*>(own_.data()) : group_->data(); }
    void copy(void* to, const void* from) {
        check(cudaMemcpyAsync(to, from, host_.size(), cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
    }
    struct range {
        std::size_t at, bytes;
    };
    std::vector<byte> host_;
    std::vector<range> taken_;
    std::size_t used_ = 0;
    std::optional<colls::cuda::memory<byte>> group_;
    colls::cuda::detail::device_memory own_;
    cudaStream_t stream_;
};

/// A message of a round's plan, which is the same on all ranks.
struct planned {
    int from, to;
    std::size_t number, bytes;
};

/// One rank's part in a round: `issue` makes its calls, `wrong` looks at the result when the stream is synchronised.
class part {
public:
    part(colls::cuda::communicator& gpu, cudaStream_t stream, std::size_t round, const std::vector<planned>& plan,
        bool of_group)
        : gpu_(gpu),
          stream_(stream),
          round_(round),
          random_(static_cast<unsigned>(round * 64) + static_cast<unsigned>(gpu.rank())) {
        std::size_t room = 4096;
        for (const planned& p : plan)
            if (p.from == gpu.rank() || p.to == gpu.rank()) {
                mine_.push_back({p, 0, 0});
                room += 2 * (p.bytes + 64);
            }
        memory_ = std::make_unique<arena>(gpu, room, of_group, stream);
        for (entry& e : mine_) {
            if (e.p.from == gpu.rank()) {
                e.out = memory_->take(e.p.bytes, random_() % 16);
                for (std::size_t i = 0; i < e.p.bytes; ++i)
                    (*memory_)[e.out + i] = content(e.p.from, e.p.to, e.p.number, round, i);
            }
            if (e.p.to == gpu.rank()) e.in = memory_->take(e.p.bytes, random_() % 16);
        }
        memory_->put();
    }
    /// All messages in one group of calls, in an order of this rank's own.
    void issue() {
        std::vector<std::size_t> order(2 * mine_.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::shuffle(order.begin(), order.end(), random_);
        // Those between two ranks keep their order.
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            const planned &x = mine_[a / 2].p, &y = mine_[b / 2].p;
            const std::size_t pair_x = static_cast<std::size_t>(x.from * 131 + x.to * 7) % 17,
                              pair_y = static_cast<std::size_t>(y.from * 131 + y.to * 7) % 17;
            return pair_x != pair_y ? pair_x < pair_y : x.number < y.number;
        });
        auto calls = colls::cuda::begin(gpu_);
        for (const std::size_t i : order) {
            const entry& e = mine_[i / 2];
            if (i % 2 == 0 && e.p.from == gpu_.rank())
                colls::cuda::send(gpu_, memory_->on_device(e.out, e.p.bytes), e.p.to, stream_);
            if (i % 2 == 1 && e.p.to == gpu_.rank())
                colls::cuda::recv(gpu_, memory_->on_device(e.in, e.p.bytes), e.p.from, stream_);
        }
        calls.end();
    }
    int wrong() {
        int all = 0;
        memory_->get();
        check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
        for (const entry& e : mine_) {
            const auto differs = [&](std::size_t at, const char* what) {
                for (std::size_t i = 0; i < e.p.bytes; ++i)
                    if ((*memory_)[at + i] != content(e.p.from, e.p.to, e.p.number, round_, i)) {
                        std::printf("round %zu, rank %d: message %zu from %d to %d, byte %zu of %zu: %s\n", round_,
                            gpu_.rank(), e.p.number, e.p.from, e.p.to, i, e.p.bytes, what);
                        ++all;
                        return;
                    }
            };
            if (e.p.from == gpu_.rank()) differs(e.out, "what was sent has changed");
            if (e.p.to == gpu_.rank()) differs(e.in, "wrong");
        }
        if (!memory_->intact())
            std::printf("round %zu, rank %d: memory beside a message has changed\n", round_, gpu_.rank()), ++all;
        return all;
    }

private:
    struct entry {
        planned p;
        std::size_t out, in;
    };
    colls::cuda::communicator& gpu_;
    cudaStream_t stream_;
    std::size_t round_;
    std::minstd_rand random_;
    std::vector<entry> mine_;
    std::unique_ptr<arena> memory_;
};

/// The plan of a round of n ranks: messages of up to `most` bytes, to itself as well, some without a byte; in every
/// fourth round one pair has many short ones.
inline std::vector<planned> plan_of(int n, std::size_t round, std::size_t most) {
    std::minstd_rand random(static_cast<unsigned>(round) + 17u);
    std::vector<planned> all;
    const bool many = round % 4 == 3;
    for (int i = 0; i < (many ? 70 : 3 * n); ++i) {
        planned p{static_cast<int>(random() % static_cast<unsigned>(n)),
            static_cast<int>(random() % static_cast<unsigned>(n)), 0, 0};
        if (many && i % 8 != 0) p.from = 0, p.to = n - 1;
        p.bytes = random() % 5 == 0 ? 0 : random() % (many ? 600 : most);
        p.number = static_cast<std::size_t>(
            std::count_if(all.begin(), all.end(), [&](const planned& q) { return q.from == p.from && q.to == p.to; }));
        all.push_back(p);
    }
    return all;
}

/// Ranks that divide their messages into groups of calls in different ways. Rank 1 has all in one group: `many` from
/// rank 0 and to it, and of a third rank `many`. Rank 0 first waits for the third one's second group, and for rank 1;
/// and only then sends. So no message may wait for one of another pair, nor for one of the other direction.
class divided_part {
public:
    divided_part(colls::cuda::communicator& gpu, cudaStream_t stream, std::size_t many, bool of_group)
        : gpu_(gpu), stream_(stream), many_(many), memory_(gpu, 4096 + 4 * many * (most_bytes + 48), of_group, stream) {
        const auto add = [&](int from, int to, std::size_t count) {
            for (std::size_t i = 0; i < count && to < gpu.size() && from < gpu.size(); ++i) {
                if (from != gpu.rank() && to != gpu.rank()) continue;
                const planned p{from, to, i, i * 29 % (most_bytes + 1)};
                const std::size_t at = memory_.take(p.bytes, i % 16);
                for (std::size_t b = 0; b < p.bytes && from == gpu.rank(); ++b)
                    memory_[at + b] = content(from, to, i, many, b);
                all_.push_back({p, at});
            }
        };
        add(0, 1, many);
        add(1, 0, many);
        add(2, 1, many);
        add(2, 0, 1);
        memory_.put();
    }
    void issue() {
        if (gpu_.rank() == 0) {
            make([](const planned& p) { return p.to == 0; });
            make([](const planned& p) { return p.from == 0; });
        } else if (gpu_.rank() == 1) {
            make([](const planned&) { return true; });
        } else {
            make([](const planned& p) { return p.to == 1; });
            make([](const planned& p) { return p.to == 0; });
        }
    }
    int wrong() {
        int all = 0;
        memory_.get();
        check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
        for (const auto& [p, at] : all_)
            for (std::size_t b = 0; b < p.bytes; ++b)
                if (memory_[at + b] != content(p.from, p.to, p.number, many_, b)) {
                    std::printf("divided groups, rank %d: message %zu of %zu from %d to %d is wrong\n", gpu_.rank(),
                        p.number, many_, p.from, p.to);
                    ++all;
                    break;
                }
        if (!memory_.intact()) std::printf("divided groups: memory beside a message has changed\n"), ++all;
        return all;
    }

private:
    static constexpr std::size_t most_bytes = 40;
    struct entry {
        planned p;
        std::size_t at;
    };
    /// One group of those that `belongs` is true of, pairs in turn.
    template <class F>
    void make(const F& belongs) {
        auto calls = colls::cuda::begin(gpu_);
        for (std::size_t i = 0; i < many_; ++i)
            for (const auto& [p, at] : all_) {
                if (p.number != i || !belongs(p)) continue;
                if (p.from == gpu_.rank())
                    colls::cuda::send(gpu_, memory_.on_device(at, p.bytes), p.to, stream_);
                else
                    colls::cuda::recv(gpu_, memory_.on_device(at, p.bytes), p.from, stream_);
            }
        calls.end();
    }
    colls::cuda::communicator& gpu_;
    cudaStream_t stream_;
    std::size_t many_;
    arena memory_;
    std::vector<entry> all_;
};

/// Counts of an all_to_all_v: elements from rank a to rank b.
inline std::size_t count_of(int a, int b, std::size_t round) {
    const std::size_t x = static_cast<std::size_t>(a * 7 + b * 13) + round * 5;
    return x % 3 == 0 ? 0 : x * x % 700;
}

/// One rank's part in an all_to_all_v, a gather_v and a scatter_v, each of 32-bit words.
class counted_part {
public:
    counted_part(colls::cuda::communicator& gpu, cudaStream_t stream, std::size_t round)
        : gpu_(gpu), stream_(stream), round_(round), root_(static_cast<int>(round) % gpu.size()) {
        const int n = gpu.size(), me = gpu.rank();
        for (int r = 0; r < n; ++r) {
            sent_.push_back(static_cast<int>(count_of(me, r, round)));
            received_.push_back(static_cast<int>(count_of(r, me, round)));
            gathered_.push_back(count_of(r, r, round) + 1);
        }
        const auto fill = [&](auto& at, std::size_t count, const auto& value) {
            at.emplace(gpu.allocate<std::uint32_t>(count));
            std::vector<std::uint32_t> host(count);
            for (std::size_t i = 0; i < count; ++i) host[i] = value(i);
            check(cudaMemcpyAsync(at->data(), host.data(), count * 4, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
            check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        };
        std::vector<std::uint32_t> words;
        for (int r = 0; r < n; ++r)
            for (int i = 0; i < sent_[static_cast<std::size_t>(r)]; ++i)
                words.push_back(word(me, r, static_cast<std::size_t>(i)));
        fill(in_, words.size(), [&](std::size_t i) { return words[i]; });
        fill(out_, sum(received_), [](std::size_t) { return 0u; });
        mine_ = gathered_[static_cast<std::size_t>(me)];
        fill(own_, mine_, [&](std::size_t i) { return word(me, n, i); });
        fill(back_, mine_, [](std::size_t) { return 0u; });
        fill(whole_, me == root_ ? sum(gathered_) : 0, [](std::size_t) { return 0u; });
    }
    void issue() {
        colls::cuda::all_to_all_v(gpu_, *in_, *out_, sent_, received_, stream_);
        // Every other round the root gathers in place.
        const bool in_place = gpu_.rank() == root_ && round_ % 2 == 0;
        const std::span<std::uint32_t> own(own_->data(), mine_),
            place(whole_->data() + std::accumulate(gathered_.begin(), gathered_.begin() + root_, std::size_t{0}),
                in_place ? mine_ : 0);
        if (in_place)
            check(cudaMemcpyAsync(place.data(), own.data(), mine_ * 4, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
        colls::cuda::gather_v(gpu_, in_place ? place : own, *whole_, gathered_, root_, stream_);
        colls::cuda::scatter_v(gpu_, *whole_, *back_, gathered_, root_, stream_);
    }
    int wrong() {
        int all = 0;
        std::vector<std::uint32_t> want, got;
        const auto compare = [&](const auto& at, const char* what) {
            got.resize(want.size());
            check(
                cudaMemcpyAsync(got.data(), at->data(), got.size() * 4, cudaMemcpyDefault, stream_), "cudaMemcpyAsync");
            check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
            if (got != want) std::printf("rank %d, round %zu: %s is wrong\n", gpu_.rank(), round_, what), ++all;
            want.clear();
        };
        const int n = gpu_.size(), me = gpu_.rank();
        for (int r = 0; r < n; ++r)
            for (int i = 0; i < received_[static_cast<std::size_t>(r)]; ++i)
                want.push_back(word(r, me, static_cast<std::size_t>(i)));
        compare(out_, "all_to_all_v");
        for (int r = 0; r < n && me == root_; ++r)
            for (std::size_t i = 0; i < gathered_[static_cast<std::size_t>(r)]; ++i) want.push_back(word(r, n, i));
        compare(whole_, "gather_v");
        for (std::size_t i = 0; i < mine_; ++i) want.push_back(word(me, n, i));
        compare(back_, "scatter_v");
        return all;
    }

private:
    static std::uint32_t word(int a, int b, std::size_t i) {
        return static_cast<std::uint32_t>(
            (static_cast<std::size_t>(a) * 1009 + static_cast<std::size_t>(b) * 31 + i) * 2654435761u);
    }
    template <class C>
    static std::size_t sum(const C& counts) {
        std::size_t all = 0;
        for (const auto c : counts) all += static_cast<std::size_t>(c);
        return all;
    }
    colls::cuda::communicator& gpu_;
    cudaStream_t stream_;
    std::size_t round_, mine_ = 0;
    int root_;
    std::vector<int> sent_, received_;
    std::vector<std::size_t> gathered_;
    std::optional<colls::cuda::memory<std::uint32_t>> in_, out_, own_, back_, whole_;
};

}  // namespace message_test
