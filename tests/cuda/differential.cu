// On a GPU: collectives by several schedules and on the eager path with virtual ranks, against a serial reference. With
// an argument: of that many ranks only, and without the largest counts, which take long under compute-sanitizer.
#include <colls/schedules.hpp>
#include <colls/transports/cuda.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

namespace {

using colls::collective;
using word = std::uint32_t;

/// One buffer a rank, in device memory, between guards, at any offset; and a copy of it all on the host.
class buffers {
public:
    buffers(const std::vector<std::size_t>& counts, std::size_t offset) {
        std::size_t total = 4;
        for (const std::size_t c : counts) total += c + 2 * guard;
        host_.assign(total, 0x5a5a5a5au);
        colls::cuda::detail::check(cudaMalloc(&all_, total * sizeof(word)), "cudaMalloc");
        std::size_t at = offset;
        for (const std::size_t c : counts) {
            begin_.push_back(at + guard);
            each_.emplace_back(all_ + at + guard, c);
            at += c + 2 * guard;
        }
    }
    buffers(const buffers&) = delete;
    ~buffers() { cudaFree(all_); }
    /// On the device.
    const std::vector<std::span<word>>& each() const { return each_; }
    /// The data of rank r, on the host.
    std::span<word> of(int r) {
        const auto i = static_cast<std::size_t>(r);
        return std::span<word>(host_).subspan(begin_[i], each_[i].size());
    }
    void to_device(cudaStream_t stream) { copy(all_, host_.data(), cudaMemcpyHostToDevice, stream); }
    void to_host(cudaStream_t stream) { copy(host_.data(), all_, cudaMemcpyDeviceToHost, stream); }
    /// Is all as it was that is not within a buffer, on the host?
    bool intact() const {
        std::size_t at = 0, bad = 0;
        for (std::size_t i = 0; i <= each_.size(); ++i) {
            const std::size_t end = i == each_.size() ? host_.size() : begin_[i];
            for (; at < end; ++at) bad += host_[at] != 0x5a5a5a5au;
            if (i < each_.size()) at += each_[i].size();
        }
        return bad == 0;
    }

private:
    static constexpr std::size_t guard = 8;
    void copy(void* to, const void* from, cudaMemcpyKind kind, cudaStream_t stream) {
        colls::cuda::detail::check(
            cudaMemcpyAsync(to, from, host_.size() * sizeof(word), kind, stream), "cudaMemcpyAsync");
    }
    word* all_ = nullptr;
    std::vector<word> host_;
    std::vector<std::size_t> begin_;
    std::vector<std::span<word>> each_;
};

word input(int rank, std::size_t i) {
    return static_cast<word>((i + 1) * 2654435761u) ^ static_cast<word>(rank * 40503 + 17);
}

int wrong = 0, calls = 0;

template <collective C, class F>
void check(colls::cuda::virtual_ranks& ranks, const char* name, std::size_t whole, int root, std::size_t offset,
    cudaStream_t stream) {
    if constexpr (colls::provides<F, C>) {
        const int n = ranks.size();
        if (!colls::supports(colls::schedule_of<C>(F{}), n)) return;
        const auto size = static_cast<std::size_t>(n);
        if (C == collective::gather || C == collective::scatter || C == collective::all_to_all)
            whole = (whole + size - 1) / size * size;
        const auto block = [&](int r) {
            return colls::cuda::detail::balanced(whole, size, static_cast<std::uint64_t>(r));
        };
        std::vector<std::size_t> gives, takes;
        for (int r = 0; r < n; ++r) {
            const std::size_t own = block(r).count;
            gives.push_back(C == collective::scatter                                 ? (r == root ? whole : 0)
                            : C == collective::gather || C == collective::all_gather ? own
                                                                                     : whole);
            takes.push_back(C == collective::gather || C == collective::reduce            ? (r == root ? whole : 0)
                            : C == collective::scatter || C == collective::reduce_scatter ? own
                                                                                          : whole);
        }
        buffers in(gives, offset), out(takes, (offset * 3 + 1) % 4);
        for (int r = 0; r < n; ++r) {
            for (std::size_t i = 0; i < in.of(r).size(); ++i) in.of(r)[i] = input(r, i);
            if (C == collective::broadcast)
                for (std::size_t i = 0; i < whole; ++i) out.of(r)[i] = r == root ? input(r, i) : 0;
        }
        in.to_device(stream);
        out.to_device(stream);
        if constexpr (C == collective::broadcast) colls::cuda::broadcast<F>(ranks, out.each(), root, stream);
        if constexpr (C == collective::scatter) colls::cuda::scatter<F>(ranks, in.each(), out.each(), root, stream);
        if constexpr (C == collective::gather) colls::cuda::gather<F>(ranks, in.each(), out.each(), root, stream);
        if constexpr (C == collective::all_gather) colls::cuda::all_gather<F>(ranks, in.each(), out.each(), stream);
        if constexpr (C == collective::reduce)
            colls::cuda::reduce<F>(ranks, in.each(), out.each(), colls::sum, root, stream);
        if constexpr (C == collective::reduce_scatter)
            colls::cuda::reduce_scatter<F>(ranks, in.each(), out.each(), colls::sum, stream);
        if constexpr (C == collective::all_reduce)
            colls::cuda::all_reduce<F>(ranks, in.each(), out.each(), colls::sum, stream);
        if constexpr (C == collective::all_to_all) colls::cuda::all_to_all<F>(ranks, in.each(), out.each(), stream);
        if constexpr (C == collective::inclusive_scan)
            colls::cuda::inclusive_scan<F>(ranks, in.each(), out.each(), colls::sum, stream);
        if constexpr (C == collective::exclusive_scan)
            colls::cuda::exclusive_scan<F>(ranks, in.each(), out.each(), colls::sum, stream);
        colls::cuda::barrier<F>(ranks, stream);
        in.to_host(stream);
        out.to_host(stream);
        colls::cuda::detail::check(cudaStreamSynchronize(stream), "a kernel");
        ranks.check();
        const auto fold = [&](int end, std::size_t i) {
            word all = 0;
            for (int r = 0; r < end; ++r) all += input(r, i);
            return all;
        };
        const auto owner = [&](std::size_t i) {
            int b = 0;
            while (i >= block(b).first + block(b).count) ++b;
            return b;
        };
        const auto expected = [&](int r, std::size_t i) -> word {
            switch (C) {
                case collective::broadcast:
                    return input(root, i);
                case collective::scatter:
                    return input(root, block(r).first + i);
                case collective::gather:
                case collective::all_gather:
                    return input(owner(i), i - block(owner(i)).first);
                case collective::all_to_all:
                    return input(owner(i), block(r).first + i - block(owner(i)).first);
                case collective::reduce_scatter:
                    return fold(n, block(r).first + i);
                case collective::inclusive_scan:
                    return fold(r + 1, i);
                case collective::exclusive_scan:
                    return r == 0 ? 0x5a5a5a5au : fold(r, i);
                default:
                    return fold(n, i);
            }
        };
        std::size_t bad = 0;
        for (int r = 0; r < n; ++r)
            for (std::size_t i = 0; i < out.of(r).size(); ++i) bad += out.of(r)[i] != expected(r, i);
        ++calls;
        if (bad != 0 || !in.intact() || !out.intact()) {
            ++wrong;
            std::printf("wrong: %s by %s, %d ranks, %zu elements, root %d, offset %zu: %zu elements%s\n",
                colls::name_of(C), name, n, whole, root, offset, bad,
                in.intact() && out.intact() ? "" : ", and memory beside a buffer");
        }
    }
}

template <class F, collective... C>
void family(colls::cuda::virtual_ranks& ranks, const char* name, cudaStream_t stream, std::size_t most) {
    const int n = ranks.size();
    std::size_t turn = 0;
    for (const std::size_t whole : {std::size_t{0}, std::size_t{1}, static_cast<std::size_t>(n + 1), std::size_t{2039},
             std::size_t{65'537}, std::size_t{1'000'003}}) {
        if (whole > most) break;
        ++turn;
        (check<C, F>(ranks, name, whole, static_cast<int>(turn) % n, turn % 4, stream), ...);
    }
}

int run(int only) {
    using enum collective;
    const std::size_t most = only == 0 ? ~std::size_t{0} : 10'000;
    cudaStream_t stream = nullptr;
    colls::cuda::detail::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (const int n : only != 0 ? std::vector<int>{only} : std::vector<int>{2, 3, 4, 7, 8}) {
        // Once by each protocol in turn of size, and once from memory to memory, so that schedules run with every
        // count.
        for (const colls::cuda::protocol p : {colls::cuda::protocol::automatic, colls::cuda::protocol::pulled}) {
            colls::cuda::virtual_ranks ranks(n, {.protocol = p, .chunk_bytes = 8 << 10});
            family<colls::direct, broadcast, scatter, gather, all_gather, reduce, reduce_scatter, all_reduce,
                all_to_all, inclusive_scan, exclusive_scan>(ranks, "direct", stream, most);
            family<colls::ring, all_gather, reduce_scatter, all_reduce>(ranks, "ring", stream, most);
            family<colls::circulant<>, reduce_scatter, all_reduce>(ranks, "circulant", stream, most);
            family<colls::recursive_doubling, all_reduce>(ranks, "recursive_doubling", stream, most);
            family<colls::one_shot, all_reduce>(ranks, "one_shot", stream, most);
            family<colls::tree<2>, broadcast, scatter, gather, reduce, all_reduce>(ranks, "tree<2>", stream, most);
            family<colls::bruck<2>, all_gather, all_to_all>(ranks, "bruck<2>", stream, most);
            family<colls::swing, all_reduce>(ranks, "swing", stream, most);
            family<colls::double_tree, all_reduce>(ranks, "double_tree", stream, most);
        }
        std::printf("%d ranks: %d calls so far, %d wrong\n", n, calls, wrong);
    }
    cudaStreamDestroy(stream);
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::printf("left out: there is no GPU\n"), 77;
    try {
        return run(argc > 1 ? std::atoi(argv[1]) : 0);
    } catch (const colls::error& e) {
        return std::printf("%s\n", e.what()), 1;
    }
}
