// From a call's checked arguments to the launch of a kernel.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/check_arguments.hpp>
#include <colls/cuda/detail/group/local_ranks.hpp>
#include <colls/cuda/detail/launch/protocol_table.hpp>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// A call that is ready to be launched.
struct pending_call {
    virtual ~pending_call() = default;
    /// Takes the other one into the same launch; `channels`: of a rank. False: it needs one of its own.
    virtual bool add(const pending_call& other, int channels) = 0;
    /// Throws where it would not be launched for lack of room.
    virtual void check(local_ranks& ranks, cudaStream_t stream) const = 0;
    virtual void launch(local_ranks& ranks, cudaStream_t stream) = 0;
};

/// The calls of a group that is under way: see group_of_calls.
struct calls_together {
    std::optional<cudaStream_t> stream;    ///< of its first call
    std::vector<message> sends, receives;  ///< in the order of the calls
    void (*launch_messages)(
        local_ranks&, call_name, std::vector<message> sends, std::vector<message> receives, cudaStream_t) = nullptr;
    std::vector<std::unique_ptr<pending_call>> calls;  ///< collective ones
};

/// Checks the stream of a call.
inline void check_stream(local_ranks& ranks, call_name what, cudaStream_t stream) {
    const int rank = ranks.ranks().front().rank;
    if (is_captured(stream))
        ranks.expect_unseen_calls();
    else
        check_stream(what, rank, stream, ranks.device());
    calls_together* const all = ranks.together();
    if (all == nullptr) return;
    if (all->stream.value_or(stream) != stream)
        refuse(what, rank, "its stream is another one than that of the calls before in its group of calls");
    all->stream = stream;
}

/// Least bytes of a channel's slice, by a schedule and on the eager path: smaller messages use fewer channels.
inline constexpr std::size_t least_slice = 16 << 10, least_eager_slice = 2 << 10;

/// Channels for that many bytes, of at least `slice` each.
inline std::int32_t channels_for(const local_ranks& ranks, std::uint64_t bytes, std::uint64_t slice) {
    const auto most = static_cast<std::uint64_t>(ranks.sizes().channels);
    return static_cast<std::int32_t>(std::clamp<std::uint64_t>((bytes + slice - 1) / slice, 1, most));
}

/// Elements of T in a chunk of at most `bytes`: a multiple of `quantum`, and at least one.
template <class T>
constexpr std::uint64_t chunk_elements(std::uint64_t bytes) {
    const std::uint64_t quanta = bytes / sizeof(T) / quantum;
    return (quanta < 1 ? 1 : quanta) * quantum;
}

/// Throws unsupported where the device does not hold `blocks` blocks of a kernel at once, or not together with the
/// launches in flight that might wait for this one: then nothing is launched. `is_next`: see device_residency::fits.
inline void check_fits(
    local_ranks& ranks, call_name what, const void* kernel, int blocks, cudaStream_t stream, bool is_next = false) {
    const int rank = ranks.ranks().front().rank, resident = ranks.loaded(kernel).resident_blocks;
    if (blocks > resident)
        throw error(errc::unsupported,
            (error_text() << "colls: cuda: " << what.text << " needs " << blocks
                          << " blocks at once, and the device holds " << resident
                          << ": take fewer ranks, or a lower options.channels")
                .text(),
            rank);
    const double share = static_cast<double>(blocks) / resident;
    const device_guard guard(ranks.device());
    device_residency* const others = ranks.residency();
    const auto fits = others != nullptr ? others->fits(stream, share, &ranks, is_next) : device_residency::answer::fits;
    if (fits == device_residency::answer::fits) return;
    error_text why;
    why << "colls: cuda: " << what.text << " on rank " << rank;
    if (fits == device_residency::answer::one_queue)
        why << " might wait for ever for calls of other groups on other streams, since "
               "CUDA_DEVICE_MAX_CONNECTIONS is 1, and all streams of the device share one queue. Wait for those "
               "calls, use their stream, or set it to 2 or more";
    else
        why << " needs " << blocks << " of the " << resident
            << " blocks that the device holds, which also has calls of other groups on other streams, so they "
               "might wait for each other for ever. Wait for those calls, use their stream, or lower "
               "options.channels of these groups, now "
            << ranks.sizes().channels << ", so that they fit the device together";
    throw error(errc::unsupported, why.text(), rank);
}

/// Launches `kernel` with blocks for `channels` channels of each local rank. Throws as check_fits does.
inline void launch_kernel(
    local_ranks& ranks, call_name what, const void* kernel, int channels, void** arguments, cudaStream_t stream) {
    const int rank = ranks.ranks().front().rank, blocks = channels * static_cast<int>(ranks.ranks().size());
    const device_guard guard(ranks.device());
    check_fits(ranks, what, kernel, blocks, stream, true);
    ranks.set_refusal("");
    cudaLaunchAttribute attributes[2] = {};
    unsigned used = 0;
    // A block that is alone needs no others beside it.
    if (blocks > 1) {
        attributes[used].id = cudaLaunchAttributeCooperative;
        attributes[used++].val.cooperative = 1;
    }
    // A fence waits for the earlier writes of all kernels of its domain. In a domain of their own, the fences of these
    // kernels do not wait for those that compute meanwhile, nor the other way round.
    if (ranks.has_memory_domains()) {
        attributes[used].id = cudaLaunchAttributeMemSyncDomain;
        attributes[used++].val.memSyncDomain = cudaLaunchMemSyncDomainRemote;
    }
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(block_threads);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = used;
    const cudaError_t code = cudaLaunchKernelExC(&config, kernel, arguments);
    if (device_residency* const others = ranks.residency()) others->launched(stream, &ranks);
    check(code, "cudaLaunchKernelExC", rank);
    if (ranks.far() != nullptr) ranks.far()->wake(is_captured(stream));
}

/// Called in a handler of what a call throws before its launch: tells the other ranks, which may be waiting for this
/// one already, and throws on. The group goes on after a call that was refused, for wrong arguments, and is broken by
/// what else can go wrong.
[[noreturn]] inline void call_failed(local_ranks& ranks) {
    const int rank = ranks.ranks().front().rank;
    try {
        throw;
    } catch (const error& e) {
        if (ranks.is_whole()) throw;
        if (e.code() == errc::peer_failed)
            ranks.order(failure::failed, rank, e.what());
        else
            ranks.refuse(e.what());
        throw;
    } catch (const std::exception& e) {
        const bool memory = dynamic_cast<const std::bad_alloc*>(&e) != nullptr;
        if (!ranks.is_whole()) ranks.order(failure::failed, rank, memory ? "out of host memory" : e.what());
        throw;
    }
}

/// Elements of a chunk whose blocks, in each round, fit the windows to other hosts. Throws unsupported where none does.
inline std::uint64_t chunk_for_windows(const local_ranks& ranks, const slot_map& map, std::uint64_t element) {
    const far_layout& windows = ranks.far()->memory().layout;
    const std::int32_t blocks = std::max(map.most_transfers, 1);
    const std::uint64_t chunk = chunk_within(windows.window_bytes / static_cast<std::uint64_t>(blocks), element);
    if (static_cast<std::uint32_t>(blocks) > windows.pieces || chunk == 0)
        throw error(errc::unsupported,
            (error_text() << "colls: cuda: rank " << ranks.ranks().front().rank
                          << ": options.far_bytes has no room for " << blocks
                          << " blocks, which a rank may send to other hosts in a round: raise it, or take a "
                             "schedule that sends fewer")
                .text(),
            ranks.ranks().front().rank);
    return chunk;
}

/// A call that is ready to be launched: `Second` is what its kernel takes besides the arguments.
template <class Op, class Epilogue, class Tables, class Second>
struct prepared_call final : pending_call {
    using arguments = kernel_arguments<Op, Epilogue, Tables>;
    call_name what;
    const void* kernel;
    arguments a;
    Second second;
    prepared_call(call_name w, const void* k, const arguments& all, const Second& s)
        : what(w), kernel(k), a(all), second(s) {
        if constexpr (!arguments::are_short) a.tables.parts[0] = a.common;
    }

    /// The decision depends only on what is equal on all ranks.
    bool add(const pending_call& other, int channels) override {
        const auto* const next = dynamic_cast<const prepared_call*>(&other);
        if (next == nullptr || next->kernel != kernel || !std::is_empty_v<Op> || !std::is_empty_v<Epilogue> ||
            a.calls == most_calls || (a.calls + 1) * a.rank_count > max_local_ranks ||
            next->a.common.slots != a.common.slots)
            return false;
        if constexpr (!arguments::are_short)
            if (a.tables.has_offsets != 0 || next->a.tables.has_offsets != 0) return false;
        if constexpr (requires { second.steps; })  // a table of steps is that of one root
            if (second.steps != next->second.steps) return false;
        if (used + next->used > channels) return false;
        joint_calls& all = joint();
        call_part& part = all.parts[a.calls] = next->a.common;
        part.first_channel = used;
        used += next->used;
        if constexpr (arguments::are_short)
            all.of[a.calls] = next->a.common;
        else
            std::copy_n(next->a.tables.of, a.rank_count, all.of + a.calls * a.rank_count);
        ++a.calls;
        return true;
    }
    void check(local_ranks& ranks, cudaStream_t stream) const override {
        check_fits(ranks, what, kernel, used * static_cast<int>(ranks.ranks().size()), stream);
    }
    void launch(local_ranks& ranks, cudaStream_t stream) override {
        for (int i = 0; i < a.calls && a.calls > 1; ++i)
            joint().parts[i].fingerprint =
                mixed(joint().parts[i].fingerprint, static_cast<std::uint64_t>(a.calls * most_calls + i));
        if constexpr (arguments::are_short)
            if (a.calls > 1) {
                a.tables = ranks.stored_calls();
                void* given[] = {several.get(), &a.tables};
                launch_kernel(ranks, what, reinterpret_cast<const void*>(&store_calls<joint_calls>), 1, given, stream);
            }
        void* given[] = {&a, &second};  // a kernel that takes one reads one
        launch_kernel(ranks, what, kernel, used, given, stream);
    }

private:
    /// What is, or will be, in the tables; of one call so far at the first time.
    joint_calls& joint() {
        if constexpr (arguments::are_short) {
            if (several == nullptr) {
                several = std::make_unique<joint_calls>();
                several->parts[0] = a.common;
                several->of[0] = a.common;
            }
            return *several;
        } else {
            return a.tables;
        }
    }

    int used = a.common.channels;          // channels of all calls
    std::unique_ptr<joint_calls> several;  // short arguments: of more than one call
};

/// Launches a call, or adds it to those that are launched together.
template <class Op, class Epilogue, class Tables, class Second>
void issue(local_ranks& ranks, collective what, const void* kernel, const kernel_arguments<Op, Epilogue, Tables>& a,
    const Second& second, cudaStream_t stream) {
    using call = prepared_call<Op, Epilogue, Tables, Second>;
    calls_together* const together = ranks.together();
    if (together == nullptr) return call(what, kernel, a, second).launch(ranks, stream);
    ranks.loaded(kernel);
    if constexpr (std::is_pointer_v<Tables>) ranks.loaded(reinterpret_cast<const void*>(&store_calls<joint_calls>));
    auto next = std::make_unique<call>(what, kernel, a, second);
    if (together->calls.empty() || !together->calls.back()->add(*next, ranks.sizes().channels))
        together->calls.push_back(std::move(next));
}

/// Hops of a call on the eager path, with its channels; 0: it goes by a schedule. `longest`: elements of T that a rank
/// sends to one other.
template <class T>
int hops_if_eager(const local_ranks& ranks, collective what, std::uint64_t longest, std::int32_t& channels) {
    const int n = ranks.size();
    const options& o = ranks.chosen_options();
    const std::uint64_t bytes = longest * sizeof(T), room = ranks.sizes().eager_bytes;
    const bool prefers_two = most_hops(what, n) == 2 && takes_two_hops(bytes, n);
    for (int hops = prefers_two ? 2 : 1; !ranks.far() && hops <= most_hops(what, n); ++hops) {
        const std::uint64_t message = eager_message(bytes, n, hops);
        channels = channels_for(ranks, message, least_eager_slice);
        const std::uint64_t slice = longest_slice(longest, static_cast<std::uint64_t>(channels)) * sizeof(T);
        const bool is_short = o.protocol == protocol::eager ||
                              (o.protocol == protocol::automatic &&
                                  (message <= o.small_bytes || message * static_cast<std::uint64_t>(n - 1) <=
                                                                   std::min(o.middle_bytes, eager_limit(n))));
        if (what == collective::barrier || (is_short && eager_room<T>(slice, n, hops) <= room)) return hops;
    }
    return 0;
}

/// Checks and launches a call of all local ranks. `all`: their buffers, in the order of ranks.ranks(). `offsets`: where
/// user blocks begin (n + 1 entries); empty: they are balanced. `by`: by(bytes, go) calls go(map, steps) with the slot
/// map and the steps of the schedule for a call of this many bytes. Throws invalid_argument, unsupported,
/// wrong_schedule, peer_failed, std::bad_alloc.
template <collective what, class T, class D, class Tables, class By, class Op, class Epilogue>
void launch_collective(local_ranks& ranks, const std::vector<rank_buffers>& all, int root, const By& by, const Op& op,
    const Epilogue& epilogue, cudaStream_t stream, const std::vector<std::uint64_t>& offsets) {
    static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>,
        "colls: elements must be trivially copyable, and default constructible");
    if constexpr (reduces(what))
        static_assert(operator_on<Op, accumulator<T, Op>>,
            "colls: this operator does not take this element type: it must be const-callable as T(T, T)");
    const int n = ranks.size();
    const int rank = ranks.ranks().front().rank;
    if (all.size() != ranks.ranks().size()) {
        error_text why;
        why << "it takes one buffer a rank, which is " << ranks.ranks().size() << ", and got " << all.size();
        refuse(what, rank, why.text());
    }
    if (rooted(what)) check_rank(what, rank, "root", root, n);
    check_stream(ranks, what, stream);

    kernel_arguments<Op, Epilogue, Tables> a{
        ranks.handles(), static_cast<std::int32_t>(all.size()), 1, {}, {}, op, epilogue};
    for (std::size_t i = 0; i < all.size(); ++i) {
        const rank_buffers& b = all[i];
        const int r = ranks.ranks()[i].rank;
        const std::uint64_t count = whole_count(what, b, r, n, root, offsets);
        if (i != 0 && count != a.common.count) {
            error_text why;
            why << "its buffers differ in size from those of rank " << ranks.ranks()[i - 1].rank;
            refuse(what, r, why.text());
        }
        a.common.count = count;
        const bool in_reached = check_pointer(what, r, b.in, bytes_of(b.in_count, sizeof(T)), ranks.device(), "input"),
                   out_reached =
                       check_pointer(what, r, b.out, bytes_of(b.out_count, sizeof(D)), ranks.device(), "output");
        check_overlap(what, r, b, sizeof(T), sizeof(D),
            offsets.empty() ? balanced(count, static_cast<std::uint64_t>(n), static_cast<std::uint64_t>(r)).first
                            : offsets[static_cast<std::size_t>(r)]);
        const kernel_buffers mine{static_cast<const std::byte*>(b.in), static_cast<std::byte*>(b.out),
            ranks.address_for_peers(b.in, b.in_count * sizeof(T), in_reached),
            ranks.address_for_peers(b.out, b.out_count * sizeof(D), out_reached)};
        static_cast<kernel_buffers&>(a.common) = mine;
        if constexpr (!std::is_pointer_v<Tables>) a.tables.of[i] = mine;
    }

    kernel_call& c = a.common;
    c.root = root;
    if constexpr (!std::is_pointer_v<Tables>) {
        if (offsets.size() > std::size(a.tables.offsets))
            throw error(errc::unsupported,
                (error_text() << "colls: cuda: " << name_of(what) << " on rank " << rank
                              << ": blocks of given sizes are for up to " << max_ranks << " ranks")
                    .text(),
                rank);
        a.tables.has_offsets = !offsets.empty();
        std::copy(offsets.begin(), offsets.end(), a.tables.offsets);
    }
    const auto longest_of = [&](int blocks) {
        if (offsets.empty()) return balanced(c.count, static_cast<std::uint64_t>(blocks), 0).count;
        std::uint64_t longest = 0;
        for (int b = 0; b < blocks; ++b)
            longest =
                std::max(longest, offsets[static_cast<std::size_t>(b) + 1] - offsets[static_cast<std::size_t>(b)]);
        return longest;
    };
    const auto set_fingerprint = [&](std::uint64_t h) {
        for (const std::uint64_t x : {h, name_hash<T, D, Op, Epilogue>(), static_cast<std::uint64_t>(what), c.count,
                 static_cast<std::uint64_t>(root), static_cast<std::uint64_t>(c.channels),
                 static_cast<std::uint64_t>(c.chunk)})
            c.fingerprint = mixed(c.fingerprint, x);
        for (const std::uint64_t x : offsets) c.fingerprint = mixed(c.fingerprint, x);
    };

    const options& o = ranks.chosen_options();
    // The eager path: if what a rank sends to one other, or to all of them together, is short enough, and has room.
    const int blocks = sends_blocks(what) ? n : 1;
    if (const int hops = hops_if_eager<T>(ranks, what, longest_of(blocks), c.channels); hops != 0) {
        c.user_blocks = blocks;
        c.chunks = hops;
        set_fingerprint(static_cast<std::uint64_t>(hops));
        return issue(
            ranks, what, reinterpret_cast<const void*>(&eager_kernel<what, T, D, Op, Epilogue, Tables>), a, 0, stream);
    }

    by(static_cast<double>(c.count * sizeof(T)), [&](const stored_slot_map& m, const stored_table& steps) {
        c.slots = m.slots;
        c.overwrites = m.overwrites;
        c.width = m.map.width;
        c.keeps_input = m.map.keeps_input;
        c.user_blocks = m.map.blocks;

        // The switch: where the group has multicast memory, which it has if the options allow an order of any kind.
        if constexpr (what == collective::all_reduce && folds_in_switch<T, Op>) {
            const void* const kernel = reinterpret_cast<const void*>(&multicast_kernel<T, D, Op, Epilogue, Tables>);
            const multicast_window window = ranks.multicast();
            if (window.bytes_each != 0 && (o.protocol == protocol::automatic || o.protocol == protocol::multicast) &&
                ranks.loaded(kernel).ptx_version >= 90) {
                c.channels = channels_for(ranks, c.count * sizeof(T), least_slice);
                c.chunk = chunk_elements<T>(window.bytes_each);
                c.chunks =
                    static_cast<std::int32_t>(chunks_needed(c.count, static_cast<std::uint64_t>(c.channels), c.chunk));
                set_fingerprint(3);
                return issue(ranks, what, kernel, a, window, stream);
            }
        }

        c.channels = channels_for(ranks, c.count * sizeof(T), least_slice);
        c.chunk = chunk_elements<T>(ranks.chosen_options().chunk_bytes);
        if (ranks.far()) c.chunk = std::min(c.chunk, chunk_for_windows(ranks, m.map, sizeof(T)));
        constexpr bool is_plain = std::is_same_v<Epilogue, no_epilogue> && std::is_same_v<T, D>;
        constexpr bool stages = reduces(what) && has_leaf<Op, accumulator<T, Op>>;
        if (m.map.scratch_needed || !is_plain || stages || !ranks.is_whole()) {
            // Each slot, and if a round may overwrite what it sends its landing slot, has to fit into scratch memory.
            const std::uint64_t slots = (m.map.scratch_needed ? 2 : 1) * static_cast<std::uint64_t>(c.width);
            c.chunk = std::min(c.chunk, chunk_within(ranks.sizes().scratch_bytes / slots, sizeof(T)));
            if (c.chunk == 0)
                throw error(errc::unsupported,
                    (error_text() << "colls: cuda: " << name_of(what) << " on rank " << rank
                                  << ": options.scratch_bytes has no room for " << static_cast<std::size_t>(slots)
                                  << " slots of " << static_cast<std::size_t>(slot_bytes(quantum, sizeof(T)))
                                  << " bytes: raise it")
                        .text(),
                    rank);
        }
        c.chunks = static_cast<std::int32_t>(
            chunks_needed(longest_of(c.user_blocks), static_cast<std::uint64_t>(c.channels), c.chunk));
        set_fingerprint(m.map.fingerprint);
        issue(ranks, what,
            reinterpret_cast<const void*>(&schedule_kernel<stored_schedule<what>, T, D, Op, Epilogue, Tables>), a,
            stored_schedule<what>{steps}, stream);
    });
}

}  // namespace colls::inline v1::cuda::detail
