// From a call's arguments to a launch.
#pragma once

#include <colls/detail/cuda/members.hpp>
#include <colls/family.hpp>
#include <colls/schedules/direct.hpp>

#include <algorithm>
#include <string_view>

namespace colls::inline v1::cuda::detail {

/// A rank's buffers as the caller gives them; counts in elements.
struct given {
    const void* in = nullptr;
    void* out = nullptr;
    std::size_t in_count = 0, out_count = 0;
};

template <class... X>
constexpr std::uint64_t name_hash() {
    std::uint64_t h = 0xcbf29ce484222325ull;
    for (const char c : std::string_view(__PRETTY_FUNCTION__))
        h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    return h;
}

[[noreturn]] inline void refuse(collective what, int rank, const char* why) {
    throw error(errc::invalid_argument,
        (message() << "colls: cuda: " << name_of(what) << " on rank " << rank << ": " << why).text(), rank);
}

/// A buffer that the device can reach, or none of any length.
inline void check_pointer(collective what, int rank, const void* at, std::size_t count, int device, const char* which) {
    if (count == 0) return;
    cudaPointerAttributes a{};
    check(cudaPointerGetAttributes(&a, at), "cudaPointerGetAttributes", rank);
    message why;
    if (a.type == cudaMemoryTypeManaged || (a.type == cudaMemoryTypeDevice && a.device == device)) return;
    why << "the " << which << " buffer is "
        << (a.type == cudaMemoryTypeDevice
                   ? "memory of another device"
                   : "host memory: copy it to the device, or use colls:: in place of colls::cuda::");
    refuse(what, rank, why.text());
}
/// In place means: the same buffer, or the own block, which begins at element `first`, within the whole. Anything else
/// must not overlap.
inline void check_overlap(
    collective what, int rank, const given& b, std::size_t of_in, std::size_t of_out, std::uint64_t first) {
    if (b.in_count == 0 || b.out_count == 0) return;
    const auto in = reinterpret_cast<std::uint64_t>(b.in), out = reinterpret_cast<std::uint64_t>(b.out);
    if (in >= out + b.out_count * of_out || out >= in + b.in_count * of_in) return;
    const bool gathers = what == collective::gather || what == collective::all_gather;
    if (what == collective::all_to_all) refuse(what, rank, "it does not work in place");
    if (of_in != of_out) refuse(what, rank, "in place, input and output need elements of one size");
    if (in + (owned(what) && !gathers ? first * of_in : 0) != out + (gathers ? first * of_out : 0))
        refuse(what, rank,
            owned(what) ? "input and output overlap without being in place: in place, the one is this rank's own block "
                          "of the other"
                        : "input and output overlap without being in place: in place, they are the same buffer");
}
inline void check_stream(collective what, int rank, cudaStream_t stream, int device) {
#if CUDART_VERSION >= 12080
    int on = device;
    check(cudaStreamGetDevice(stream, &on), "cudaStreamGetDevice", rank);
    if (on != device) refuse(what, rank, "the stream belongs to another device than the group");
#else
    (void)what, (void)rank, (void)stream, (void)device;
#endif
}

/// Elements of the whole layout, as rank `rank` knows it from its own buffers.
inline std::uint64_t whole_count(
    collective what, const given& b, int rank, int n, int root, const std::vector<std::uint64_t>& offsets) {
    const auto size = static_cast<std::uint64_t>(n), r = static_cast<std::uint64_t>(rank);
    std::uint64_t all = 0, own_in = 0, own_out = 0;
    switch (what) {
        case collective::barrier:
            return 0;
        case collective::broadcast:
            return b.out_count;
        case collective::scatter:
            all = b.out_count * size, own_in = rank == root ? all : b.in_count, own_out = b.out_count;
            break;
        case collective::gather:
            all = b.in_count * size, own_in = b.in_count, own_out = rank == root ? all : b.out_count;
            break;
        case collective::reduce:
            all = own_in = b.in_count, own_out = rank == root ? all : b.out_count;
            break;
        case collective::all_gather:
            all = own_out = b.out_count;
            break;
        case collective::reduce_scatter:
            all = own_in = b.in_count;
            break;
        default:
            all = own_in = own_out = b.in_count;
            break;
    }
    const std::uint64_t block = offsets.empty() ? balanced(all, size, r).count : offsets[r + 1] - offsets[r];
    if (what == collective::all_gather) own_in = block;
    if (what == collective::reduce_scatter) own_out = block;
    if (!offsets.empty() && all != offsets.back()) refuse(what, rank, "the counts do not add up to the buffer's size");
    if (what == collective::all_to_all && all % size != 0)
        refuse(what, rank, "the buffer does not divide into one block a rank");
    if (b.in_count != own_in || b.out_count != own_out)
        refuse(what, rank, "the sizes of the input and output buffers do not fit together");
    return all;
}

template <class Schedule>
inline constexpr bool keeps_order = std::is_same_v<Schedule, schedule_for<direct, implemented_by<Schedule>>> ||
                                    std::is_same_v<Schedule, one_shot::all_reduce>;

/// All that the ranks here have to do with one call.
template <class Schedule, class T, class D, class Op, class Epilogue>
void submit(members& m, const std::vector<given>& all, int root, const Schedule& s, const Op& op,
    const Epilogue& epilogue, cudaStream_t stream, const std::vector<std::uint64_t>& offsets = {}) {
    constexpr collective what = implemented_by<Schedule>;
    static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>,
        "colls: elements must be trivially copyable, and default constructible");
    if constexpr (reduces(what)) {
        static_assert(operator_on<Op, accumulator<T, Op>>,
            "colls: this operator does not take this element type: it must be const-callable as T(T, T)");
        static_assert(is_commutative<Op, accumulator<T, Op>> || keeps_order<Schedule>,
            "colls: this operator is not known to commute, and this schedule is not known to keep the order of ranks "
            "in a kernel; "
            "take direct or one_shot, or mark the operator with colls::commutative(op)");
    }
    const int n = m.size();
    const int rank = m.locals().front().rank;
    m.look();
    if (all.size() != m.locals().size()) refuse(what, rank, "it takes one buffer a rank");
    if (rooted(what) && (root < 0 || root >= n)) refuse(what, rank, "there is no such root");
    check_stream(what, rank, stream, m.device());

    launch<Op, Epilogue> a{m.teams(), static_cast<std::int32_t>(all.size()), {}, {}, op, epilogue};
    for (std::size_t i = 0; i < all.size(); ++i) {
        const given& b = all[i];
        const int r = m.locals()[i].rank;
        const std::uint64_t count = whole_count(what, b, r, n, root, offsets);
        if (i != 0 && count != a.common.count)
            refuse(what, r, "its buffers are of another size than those of the ranks before");
        a.common.count = count;
        check_pointer(what, r, b.in, b.in_count, m.device(), "input");
        check_pointer(what, r, b.out, b.out_count, m.device(), "output");
        check_overlap(what, r, b, sizeof(T), sizeof(D),
            offsets.empty() ? balanced(count, static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(r)).first
                            : offsets[static_cast<std::size_t>(r)]);
        a.of[i] = {static_cast<const std::byte*>(b.in), static_cast<std::byte*>(b.out),
            m.place_of(b.in, b.in_count * sizeof(T)), m.place_of(b.out, b.out_count * sizeof(D))};
    }

    call& c = a.common;
    const bool by_rank = owned(what) || what == collective::all_to_all;
    std::uint64_t longest = 0;
    const auto widest_of = [&](int blocks) {
        if (offsets.empty()) return balanced(c.count, static_cast<std::uint64_t>(blocks), 0).count;
        for (int b = 0; b < blocks; ++b)
            longest =
                std::max(longest, offsets[static_cast<std::size_t>(b) + 1] - offsets[static_cast<std::size_t>(b)]);
        return longest;
    };
    c.root = root;
    if (!offsets.empty()) c.offsets = m.kept(offsets);
    const std::uint64_t letter = widest_of(by_rank ? n : 1) * sizeof(T);
    const auto channels = static_cast<std::uint64_t>(m.sizes().blocks);
    const auto fit = [&](std::uint64_t bytes, std::uint64_t slice) {
        return static_cast<std::int32_t>(std::clamp<std::uint64_t>((bytes + slice - 1) / slice, 1, channels));
    };
    const auto print = [&](std::uint64_t h) {
        for (const std::uint64_t x : {h, name_hash<T, D, Op, Epilogue>(), static_cast<std::uint64_t>(what), c.count,
                 static_cast<std::uint64_t>(root), static_cast<std::uint64_t>(c.blocks),
                 static_cast<std::uint64_t>(c.chunk)})
            c.fingerprint = mixed(c.fingerprint, x);
        for (const std::uint64_t x : offsets) c.fingerprint = mixed(c.fingerprint, x);
    };
    const auto run = [&](const void* kernel, void** arguments) {
        const int room = m.resident(kernel), blocks = c.blocks * a.locals;
        if (blocks > room)
            throw error(errc::unsupported,
                (message() << "colls: cuda: " << name_of(what) << " needs " << blocks
                           << " blocks at once, and the device holds " << room
                           << ": take fewer ranks, or options.channels")
                    .text(),
                rank);
        const on_device here(m.device());
        check(cudaLaunchCooperativeKernel(
                  kernel, dim3(static_cast<unsigned>(blocks)), dim3(block_threads), arguments, 0, stream),
            "cudaLaunchCooperativeKernel", rank);
    };

    // A slice is whole quanta, one more where they do not divide.
    c.blocks = fit(letter, small_slice);
    const std::uint64_t slice =
        (letter / (quantum * sizeof(T)) / static_cast<std::uint64_t>(c.blocks) + 2) * (quantum * sizeof(T)) + 4;
    if (what == collective::barrier || (letter <= m.chosen().small_bytes && slice <= m.sizes().letter_bytes)) {
        c.user_blocks = by_rank ? n : 1;
        print(1);
        void* arguments[] = {&a};
        return run(reinterpret_cast<const void*>(&small_kernel<what, T, D, Op, Epilogue>), arguments);
    }
    const kept_map& k = m.map_for(s);
    c.slots = k.slots;
    c.overwrites = k.overwrites;
    c.width = k.map.width;
    c.user_blocks = k.map.blocks;
    c.blocks = fit(c.count * sizeof(T), least_slice);
    longest = widest_of(c.user_blocks);
    const auto elements = [&](std::uint64_t bytes) {
        return std::max<std::uint64_t>(bytes / sizeof(T) / quantum, 1) * quantum;
    };
    c.chunk = elements(m.chosen().chunk_bytes);
    constexpr bool as_it_is = std::is_same_v<Epilogue, no_epilogue> && std::is_same_v<T, D>;
    if (k.map.scratch_needed || !as_it_is || !m.everywhere()) {
        const std::uint64_t slots = 2 * static_cast<std::uint64_t>(c.width), room = m.sizes().scratch_bytes / slots;
        while (c.chunk > quantum && slot_bytes(c.chunk, sizeof(T)) > room)
            c.chunk = elements((c.chunk - quantum) * sizeof(T) / 2);
        if (slot_bytes(c.chunk, sizeof(T)) > room)
            throw error(errc::unsupported,
                (message() << "colls: cuda: " << name_of(what) << ": options.scratch_bytes has no room for "
                           << static_cast<std::size_t>(slots) << " slots of "
                           << static_cast<std::size_t>(slot_bytes(quantum, sizeof(T))) << " bytes")
                    .text(),
                rank);
    }
    c.chunks = static_cast<std::int32_t>(chunks_needed(longest, static_cast<std::uint64_t>(c.blocks), c.chunk));
    print(k.map.fingerprint ^ name_hash<Schedule>());
    Schedule value = s;
    void* arguments[] = {&a, &value};
    run(reinterpret_cast<const void*>(&large_kernel<Schedule, T, D, Op, Epilogue>), arguments);
}

}  // namespace colls::inline v1::cuda::detail
