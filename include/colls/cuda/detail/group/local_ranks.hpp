// The ranks of a group that one communicator drives, all on one device.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
//
// Holds what their kernels are told of the group, what the kernels have reported, and what is kept between calls.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/cuda/detail/automatic.hpp>
#include <colls/cuda/detail/far/far_group.hpp>
#include <colls/cuda/detail/group/device_tables.hpp>
#include <colls/cuda/detail/group/residency.hpp>
#include <colls/cuda/detail/kernel/kernels.hpp>
#include <colls/cuda/detail/kernel/stored_steps.hpp>
#include <colls/cuda/options.hpp>
#include <colls/detail/group/failure.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/support/environment.hpp>
#include <colls/extend/host_map.hpp>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#ifndef COLLS_SEPARATE
#include <colls/files/detail/tuning_file.hpp>
#endif

namespace colls::inline v1::cuda::detail {

struct local_rank {
    int rank = 0;
    pinned_value<failure_report> status;
};

/// Multiprocessors of a device, each of which holds a block of a kernel. Throws unsupported where the device has no
/// cooperative launch.
inline int multiprocessors(int device) {
    int count = 0;
    check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    int cooperative = 0;
    check(cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device), "cudaDeviceGetAttribute");
    if (cooperative == 0)
        throw error(errc::unsupported, (error_text() << "colls: cuda: device " << device
                                                     << " has no cooperative launch, which all kernels here need")
                                           .text());
    return count;
}

/// The slot map of a schedule's type and value, at the size of a group, with its tables in device memory.
struct stored_slot_map {
    const void* type = nullptr;
    std::vector<std::byte> value;
    slot_map map;
    const slot_info* slots = nullptr;
    const std::uint8_t* overwrites = nullptr;
    std::vector<stored_table> steps;  ///< that calls have needed so far
};

/// What `automatic` has chosen for a call.
struct chosen_schedule {
    const stored_slot_map* map = nullptr;
    stored_table steps;
};

struct calls_together;

class local_ranks {
public:
    /// For ranks of a group of n on `device`. `channels`: of each rank, the same on all ranks.
    local_ranks(int n, int device, int channels, const options& o)
        : n_(n), device_(device), options_(limited(o)), tables_(device, o.table_bytes), orders_(device) {
        sizes_.ranks = n;
        sizes_.channels = channels;
        sizes_.eager_bytes = workspace_layout::eager_bytes_of(o.packet_bytes, n);
        sizes_.scratch_bytes = (o.scratch_bytes + 127) / 128 * 128;
        int domains = 1;
        check(cudaDeviceGetAttribute(&domains, cudaDevAttrMemSyncDomainCount, device), "cudaDeviceGetAttribute");
        has_memory_domains_ = domains > 1;
        timeout_ = o.timeout > 0 ? o.timeout : env_.timeout;
        take_links(false);
    }
    local_ranks(const local_ranks&) = delete;
    local_ranks& operator=(const local_ranks&) = delete;

    int size() const { return n_; }
    /// See rank_context::is_foreign: a forked child has copies of this and of its owners, and must touch nothing.
    bool is_foreign() const { return born_ != v1::detail::forks.load(std::memory_order_relaxed); }
    /// Are all ranks of the group local? Else other devices, or other processes, read this device's memory.
    bool is_whole() const { return static_cast<int>(ranks_.size()) == n_; }
    int device() const { return device_; }
    const workspace_layout& sizes() const { return sizes_; }
    const options& chosen_options() const { return options_; }
    const std::vector<local_rank>& ranks() const { return ranks_; }
    /// The handle of each local rank, in device memory.
    const rank_handle* handles() const { return reinterpret_cast<const rank_handle*>(handles_.data()); }
    /// Device memory for what store_calls stores, in a group of which one rank is local.
    const joint_calls* stored_calls() const { return reinterpret_cast<const joint_calls*>(stored_calls_.data()); }

    /// Figures of the links: the tuning file's, otherwise the usual ones; `rdma`: a device moves what goes to other
    /// hosts. All ranks must take the same.
    void take_links(bool rdma) {
        if (rdma) links_.far = link_figures::over_rdma();
        if (const double* const x = v1::detail::tuned_gpu_links())
            links_.near.alpha = x[0], links_.near.beta = x[1], links_.far.alpha = x[2], links_.far.beta = x[3];
    }

    /// The multicast memory of the group, as the one local rank reaches it.
    void set_multicast(const multicast_window& window) { multicast_ = window; }
    const multicast_window& multicast() const { return multicast_; }

    /// Some ranks are on other hosts: before `connect`. Its proxy starts when the others may send.
    /// `host_of`: a number for each rank, equal for those of a host. `each`: ranks of each host, where they are equally
    /// many and consecutive; else 0.
    void set_far(std::unique_ptr<far_group> f, const std::vector<int>& host_of, int each) {
        hosts_ = host_map(host_of);
        sizes_.eager_bytes = 0;  // calls go by schedules
        far_ = std::move(f);
        ranks_per_host_ = each;
    }
    /// Tells kernels where the windows of far() are, if they have moved since `connect`: before the first launch.
    void renew_windows() {
        const far_memory now = far_->memory_for_kernels();
        const device_guard there(device_);
        const private_stream stream(device_);
        check(cudaMemcpyAsync(
                  handles_.data() + offsetof(rank_handle, far), &now, sizeof now, cudaMemcpyHostToDevice, stream.get()),
            "cudaMemcpyAsync");
        check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    }
    int ranks_per_host() const { return ranks_per_host_; }
    /// Not known where all ranks are on one host.
    host_map hosts() const { return hosts_; }
    far_group* far() const { return far_.get(); }
    bool is_far(int rank) const { return far_ && far_->memory().is_far(rank); }
    /// Has a local rank given up? For the proxy.
    bool has_failed(proxy::notice& n) const {
        const failure_report& r = *ranks_.front().status.get();
        const auto why = static_cast<failure>(
            std::atomic_ref<std::uint64_t>(ranks_.front().status->what).load(std::memory_order_acquire));
        const std::uint32_t ordered = order_.load(std::memory_order_acquire);
        if (why != failure::nothing)
            n = {why, r.peer, ordered != 0 && reason_in(ordered) == why ? order_text_ : ""};
        else if (ordered != 0)
            n = {reason_in(ordered), peer_in(ordered), order_text_};
        return why != failure::nothing || ordered != 0;
    }

    /// Makes the handles of `ranks`, which are local. workspaces[r]: of rank r. regions: for each rank of the group
    /// where its regions begin (see shared_address), the same number for each rank. Addresses as this device reaches
    /// them.
    void connect(const std::vector<int>& ranks, const std::vector<std::byte*>& workspaces,
        const std::vector<std::uint64_t>& regions) {
        workspaces_ = device_memory(device_, workspaces.size() * sizeof(std::byte*), workspaces.data());
        regions_ = device_memory(device_, regions.size() * sizeof(std::uint64_t), regions.data());
        host_regions_ = regions;
        host_workspaces_ = workspaces;
        if (static_cast<int>(ranks.size()) < n_)
            resident_ = resident_group(device_,
                static_cast<double>(sizes_.channels) * static_cast<double>(ranks.size()) / multiprocessors(device_));
        std::vector<rank_handle> handles;
        for (const int r : ranks) {
            ranks_.push_back({r, {}});
            rank_handle h;
            h.rank = r;
            h.sizes = sizes_;
            h.workspaces = reinterpret_cast<std::byte* const*>(workspaces_.data());
            h.regions = reinterpret_cast<const std::uint64_t*>(regions_.data());
            h.region_count = static_cast<std::uint32_t>(regions.size() / workspaces.size());
            h.status = ranks_.back().status.get();
            h.timeout_ns = nanoseconds_of(timeout_);
            if (far_) h.far = far_->memory_for_kernels();
            handles.push_back(h);
        }
        handles_ = device_memory(device_, handles.size() * sizeof(rank_handle), handles.data());
        if (ranks.size() == 1) stored_calls_ = device_memory(device_, sizeof(joint_calls));
    }

    /// Orders the local ranks to give up: their kernels that wait, and later ones; and later calls throw. The kernels
    /// of other ranks hear of it when they wait for one of these. `text`: what is to blame beyond `why`, which other
    /// ranks read. The first order stands. Can be called by any thread, also while another waits for a kernel.
    void order(failure why, int peer, const char* text, int told_by = none) noexcept {
        if (is_foreign()) return;
        const std::lock_guard lock(order_mutex_);
        if (order_.load(std::memory_order_relaxed) != 0) return;
        std::snprintf(order_text_, sizeof order_text_, "%s", text);
        order_told_by_ = told_by;
        const std::uint32_t word = poison_word(why, peer);
        order_.store(word, std::memory_order_release);
        for (const local_rank& l : ranks_) {
            // First what needs no call of the runtime, which might wait for the other thread.
            std::atomic_ref<std::uint32_t>(l.status->order).store(word, std::memory_order_relaxed);
        }
        for (const local_rank& l : ranks_) tell(l.rank, text, 0, word);
    }
    /// Tells the other ranks that this one has not made a call, for the given reason; empty: that it has made it now.
    void set_refusal(const char* text, failure why = failure::refused) noexcept {
        if (is_whole() || (*text == '\0' && !has_refused_) || is_foreign()) return;
        has_refused_ = *text != '\0';
        for (const local_rank& l : ranks_)
            tell(l.rank, text, workspace_layout::refusal_begin, has_refused_ ? poison_word(why, l.rank) : 0);
        if (far_) far_->refuse({has_refused_ ? why : failure::nothing, ranks_.front().rank, text});
    }
    bool has_refused() const { return has_refused_; }
    /// The same of a call that was refused; not told where the rank may go on without its host.
    void refuse(const char* text) noexcept {
        if (!has_unseen_calls_) set_refusal(text);
    }
    /// From now on graphs, or kernels of the program, may make calls: no refusal could be taken back in time.
    void expect_unseen_calls() noexcept {
        has_unseen_calls_ = true;
        set_refusal("");
    }

    /// Tells the other ranks that this one makes no more calls, unless they have been told already why it made none.
    void leave() noexcept {
        if (order_.load(std::memory_order_relaxed) == 0 && !has_refused_) set_refusal("left", failure::left);
    }

    /// Throws if a kernel of a local rank has reported a failure, or the host has ordered one. Both stay for ever.
    /// Throws invalid_argument in a forked child.
    void throw_if_failed() const {
        if (is_foreign())
            throw error(errc::invalid_argument,
                (error_text() << "colls: cuda: rank " << ranks_.front().rank
                              << ": this process was forked from the rank, whose group it cannot use: a group belongs "
                                 "to the process that made it")
                    .text(),
                ranks_.front().rank);
        for (const local_rank& l : ranks_) {
            const failure_report& r = *l.status.get();
            const auto why =
                static_cast<failure>(std::atomic_ref<std::uint64_t>(l.status->what).load(std::memory_order_acquire));
            if (why != failure::nothing) throw_failure(l.rank, why, r.peer, r.told_by, r.round, r.block);
        }
        if (const std::uint32_t word = order_.load(std::memory_order_acquire); word != 0) {
            // The caller may then overwrite what kernels of other ranks read: these are told first.
            const std::lock_guard told(order_mutex_);
            throw_failure(ranks_.front().rank, reason_in(word), peer_in(word), none, none, none);
        }
    }

    /// The memory of this device that other ranks reach, as kernels are told.
    const reachable_memory& reachable() const { return reachable_; }
    /// How the other ranks reach a buffer of this device. `reached`: it is memory to which peer access leads.
    shared_address address_for_peers(const void* at, std::size_t bytes, bool reached) const {
        const auto address = reinterpret_cast<std::uint64_t>(at);
        if (is_whole()) return {address, shared_address::absolute, 0};
        reachable_memory m = reachable_;
        if (!reached) m.all = 0;
        m.shared = shared_;
        return m.address_of(address, bytes);
    }
    /// Between processes: the others reach these bytes only, as region `exported`.
    void export_memory(const std::byte* at, std::size_t bytes) {
        shared_of_kernels_ = device_memory(device_, sizeof shared_, shared_);
        reachable_ = {{reinterpret_cast<std::uint64_t>(at), bytes}, 0,
            reinterpret_cast<const byte_span*>(shared_of_kernels_.data())};
    }

    /// Between processes: `bytes` from `at` on are buffer i of those that users share, which this device reaches at
    /// mapped[r] of rank r; none: nothing is any longer. While no kernel runs. Throws what the runtime reports.
    void set_shared(std::uint32_t i, const void* at, std::size_t bytes, const std::vector<std::uint64_t>& mapped) {
        const std::size_t each = host_regions_.size() / static_cast<std::size_t>(n_);
        for (std::size_t r = 0; r < mapped.size(); ++r)
            host_regions_[r * each + shared_address::shared + i] = mapped[r];
        shared_[i] = {reinterpret_cast<std::uint64_t>(at), bytes};
        const device_guard there(device_);
        const auto copy = [&](std::byte* to, const void* from, std::size_t size) {
            check(cudaMemcpyAsync(to, from, size, cudaMemcpyHostToDevice, orders_.get()), "cudaMemcpyAsync");
        };
        copy(regions_.data(), host_regions_.data(), host_regions_.size() * sizeof(std::uint64_t));
        copy(shared_of_kernels_.data(), shared_, sizeof shared_);
        check(cudaStreamSynchronize(orders_.get()), "cudaStreamSynchronize");
    }
    /// Where this rank's regions begin.
    void tell_regions(std::uint64_t (&begins)[shared_address::most_regions]) const {
        begins[shared_address::exported] = reachable_.exported.begin;
        for (std::uint32_t i = 0; i < shared_address::most_shared; ++i)
            begins[shared_address::shared + i] = shared_[i].begin;
    }

    /// The others reach no memory of this device: calls pass all data through the workspaces, which are host memory.
    void hide_memory() { reachable_ = {{}, 0, nullptr}; }
    bool hides_memory() const { return reachable_.all == 0 && reachable_.exported.bytes == 0; }

    /// The slot map of a schedule: built, proven and copied to the device at its first use.
    template <class S>
    stored_slot_map& map_for(const S& s) {
        static const char type = 0;
        std::vector<std::byte> value(std::is_empty_v<S> ? 0 : sizeof(S));
        if (!value.empty()) std::memcpy(value.data(), &s, value.size());
        for (const auto& m : maps_)
            if (m->type == &type && m->value == value) return *m;
        auto m = std::make_unique<stored_slot_map>();
        m->type = &type;
        m->value = std::move(value);
        m->map = proven_slot_map(s, n_);
        m->map.fingerprint ^= name_hash<S>();
        m->slots = tables_.copy(m->map.slots);
        m->overwrites = tables_.copy(m->map.overwrites);
        maps_.push_back(std::move(m));
        return *maps_.back();
    }

    /// The steps of the schedule of that map, for calls with that root (none: with any), copied to the device at their
    /// first use: those of the one local rank, or of all ranks.
    template <class S>
    stored_table steps_for(stored_slot_map& map, const S& s, int root) {
        const int role = role_in(s, root);
        for (const stored_table& t : map.steps)
            if (t.me == role) return t;
        std::vector<stored_step> steps;
        for (int r = role == none ? 0 : role; r < (role == none ? n_ : role + 1); ++r)
            for (const stored_step& x : steps_of(s, r, n_)) steps.push_back(x);
        map.steps.push_back({tables_.copy(steps), role, map.map.rounds, map.map.ports, root_of(s, n_)});
        return map.steps.back();
    }

    const link_figures& links() const { return links_; }
    /// What `automatic` chooses from for calls of C with that root.
    template <collective C>
    const gpu_choice& choice_for(int root) {
        // On one host each schedule is rotated to the root.
        if (!rooted(C) || !hosts_.known()) root = 0;
        for (const auto& c : choices_)
            if (c->what() == C && c->root() == root) return *c;
        chunk_limits limits{sizes_.channels, options_.chunk_bytes, is_whole() ? 0 : sizes_.scratch_bytes, 0, 0};
        if (far_) limits.window = far_->memory().layout.window_bytes, limits.pieces = far_->memory().layout.pieces;
        choices_.push_back(std::make_unique<gpu_choice>(gpu_choice::of<C>(n_, hosts_, root, links_, limits)));
        return *choices_.back();
    }
    /// What a call of `bytes` bytes asks for.
    gpu_demand demand_of(double bytes) const {
        return {v1::detail::class_bytes(static_cast<std::size_t>(bytes)), env_.reproducible,
            v1::detail::forced_schedule(env_.schedule, ranks_.front().rank)};
    }
    /// What `automatic` chooses for such a call of C: the same on all ranks. In a group with one local rank.
    template <collective C>
    chosen_schedule chosen(double bytes, int root) {
        const gpu_demand d = demand_of(bytes);
        for (const known_choice& k : known_choices_)
            if (k.what == C && k.root == root && k.bytes == d.bytes) return k.taken;
        const candidate& c = choice_for<C>(root).choose(d);
        if (env_.debug != v1::detail::debug_level::warn && ranks_.front().rank == 0)
            v1::detail::say(error_text() << "colls: cuda: " << name_of(C) << " of about "
                                         << static_cast<std::size_t>(d.bytes) << " bytes: " << c.name);
        known_choices_.push_back({C, root, d.bytes, stored<C>(c, root)});
        return known_choices_.back().taken;
    }

    /// A kernel that is loaded on this device.
    struct loaded_kernel {
        const void* function = nullptr;
        int resident_blocks = 0;  ///< how many of its blocks this device holds at once
        int ptx_version = 0;      ///< of the architecture that it was compiled for: 90 for sm_90
    };
    /// Loads a kernel on this device and on the peer devices of the process. Loaded by its first launch, a kernel would
    /// wait for running kernels that wait for it.
    loaded_kernel loaded(const void* kernel) {
        for (const loaded_kernel& k : kernels_)
            if (k.function == kernel) return k;
        const relaxed_capture relaxed;
        cudaFuncAttributes attributes{};
        const auto load = [&] {
            check(cudaFuncGetAttributes(&attributes, kernel),
                "cudaFuncGetAttributes (is the program compiled for this device?)");
        };
        for (const int peer : peer_devices_) {
            const device_guard guard(peer);
            load();
        }
        const device_guard guard(device_);
        load();
        int each = 0;
        check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, block_threads, 0),
            "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
        kernels_.push_back({kernel, each * multiprocessors(device_), attributes.ptxVersion});
        return kernels_.back();
    }
    /// Has the device more than one domain of memory synchronisation?
    bool has_memory_domains() const { return has_memory_domains_; }
    /// Where launches of this group are counted; null: it has all its ranks, and no launch waits for another device.
    device_residency* residency() const { return resident_.get(); }
    /// The devices of all ranks of this process.
    void set_peer_devices(std::vector<int> devices) { peer_devices_ = std::move(devices); }
    /// The calls that are launched together, while there are such; else null.
    calls_together* together() const { return together_; }
    void set_together(calls_together* t) { together_ = t; }

private:
    /// Whose steps calls with that root need; none: those of all ranks.
    template <class S>
    int role_in(const S& s, int root) const {
        if (is_whole() || (rooted(implemented_by<S>) && root == none)) return none;
        const int rank = ranks_.front().rank;
        return rooted(implemented_by<S>) ? mod(rank - root + root_of(s, n_), n_) : rank;
    }
    /// The tables of a candidate. Where these have no more room, on all ranks alike: `direct`.
    template <collective C>
    chosen_schedule stored(const candidate& c, int root) {
        const auto by_direct = [&]() -> chosen_schedule {
            const schedule_for<direct, C> s{};
            stored_slot_map& map = map_for(s);
            return {&map, steps_for(map, s, root)};
        };
        if (c.name == "direct") return by_direct();
        const erased_schedule<C> s{c.schedule};
        stored_slot_map* map = nullptr;
        for (const auto& k : stored_)
            if (k->schedule == c.schedule) map = &k->map;
        const auto all = static_cast<std::size_t>(n_),
                   reserve = all * all * sizeof(slot_info) + 2 * all * sizeof(stored_step),  // for direct
            steps =
                static_cast<std::size_t>(s.rounds(n_)) * static_cast<std::size_t>(s.ports(n_)) * sizeof(stored_step);
        if (map == nullptr) {
            auto made = std::make_unique<stored_candidate>(stored_candidate{c.schedule, {}});
            slot_map& m = made->map.map = make_slot_map(s, n_);
            if (!tables_.has_room(m.slots.size() * sizeof(slot_info) + m.overwrites.size() + steps, reserve))
                return by_direct();
            made->map.slots = tables_.copy(m.slots);
            made->map.overwrites = tables_.copy(m.overwrites);
            stored_.push_back(std::move(made));
            map = &stored_.back()->map;
        }
        const int role = role_in(s, root);
        for (const stored_table& t : map->steps)
            if (t.me == role) return {map, t};
        if (!tables_.has_room(steps, reserve)) return by_direct();
        return {map, steps_for(*map, s, root)};
    }
    /// Writes a text and then a word at `at` into the workspace of a local rank. Not if the device cannot: its kernels
    /// read the order all the same.
    void tell(int rank, const char* text, std::uint64_t at, std::uint32_t word) noexcept {
        const relaxed_capture relaxed;
        int before = 0;
        cudaGetDevice(&before);
        cudaSetDevice(device_);
        char bytes[workspace_layout::text_bytes] = {};
        std::snprintf(bytes, sizeof bytes, "%s", text);
        std::byte* const to = host_workspaces_[static_cast<std::size_t>(rank)];
        cudaMemcpyAsync(to + workspace_layout::text_begin, bytes, sizeof bytes, cudaMemcpyDefault, orders_.get());
        cudaMemcpyAsync(to + at, &word, sizeof word, cudaMemcpyDefault, orders_.get());
        cudaStreamSynchronize(orders_.get());
        cudaSetDevice(before);
        cudaGetLastError();
    }
    /// The text that a rank gives for its failure; empty where it cannot be read.
    void read_text(int rank, char (&to)[workspace_layout::text_bytes]) const noexcept {
        to[0] = '\0';
        if (rank < 0 || rank >= n_) return;
        const relaxed_capture relaxed;
        cudaMemcpyAsync(to, host_workspaces_[static_cast<std::size_t>(rank)] + workspace_layout::text_begin, sizeof to,
            cudaMemcpyDefault, orders_.get());
        if (cudaStreamSynchronize(orders_.get()) != cudaSuccess) to[0] = '\0';
        cudaGetLastError();
        to[sizeof to - 1] = '\0';
    }
    [[noreturn]] void throw_failure(int rank, failure why, int peer, int told_by, int round, int block) const {
        if (const std::uint32_t own = order_.load(std::memory_order_acquire);
            told_by == none && own == poison_word(why, peer))
            told_by = order_told_by_;
        error_text text;
        text << "colls: cuda: rank " << rank << ": an earlier call failed: ";
        if (told_by != none && told_by != peer) text << "rank " << told_by << " gave up, because ";
        char reason[workspace_layout::text_bytes] = {};
        if (const std::uint32_t own = order_.load(std::memory_order_acquire); own != 0 && reason_in(own) == why)
            std::memcpy(reason, order_text_, sizeof reason);
        else if (why == failure::aborted || why == failure::failed || why == failure::refused)
            read_text(peer, reason);
        errc code = errc::peer_failed;
        switch (why) {
            case failure::late:
                code = errc::timeout;
                text << "rank " << peer << " did not come within " << timeout_ << " s";
                if (round != none) text << " in round " << round;
                text << " (block " << block << ")";
                break;
            case failure::mismatch:
                code = errc::mismatch;
                text
                    << "rank " << peer
                    << " made a different call (collective, schedule, type, operator, count or root; of a message, its "
                       "length)";
                break;
            case failure::aborted:
                text << "rank " << peer << " aborted";
                break;
            case failure::died:
                text << "the process of rank " << peer << " has ended";
                break;
            case failure::refused:
                text << "rank " << peer << " refused this call";
                break;
            case failure::left:
                text << "rank " << peer << " has left the group before this call";
                break;
            case failure::wrong_block:
                code = errc::invalid_argument;
                text << "a kernel of rank " << peer
                     << " made a call with blocks that are not in one dimension, have more than " << block_threads
                     << " threads, or not a multiple of 32";
                break;
            case failure::host_broken:
                text << "the host group by which the ranks joined is broken";
                break;
            default:
                text << "rank " << peer << " failed while it prepared a call";
                break;
        }
        if (reason[0] != '\0') text << ": " << v1::detail::quoted(reason);
        text << "; the group can no longer be used: make a new one";
        // The peer of a rank that gave up because others missed it is the rank that said so.
        throw error(code, text.text(), rank, peer == rank ? told_by : peer, round);
    }

    /// memory_pass::count has 32 bits, and counts the elements of a chunk.
    static options limited(options o) {
        if (o.chunk_bytes > (std::size_t{1} << 30)) o.chunk_bytes = std::size_t{1} << 30;
        return o;
    }

    struct known_choice {
        collective what;
        int root;
        double bytes;
        chosen_schedule taken;
    };
    struct stored_candidate {
        any_schedule schedule;
        stored_slot_map map;
    };

    const v1::detail::environment env_ = v1::detail::environment::read();
    link_figures links_;
    std::vector<std::unique_ptr<gpu_choice>> choices_;
    std::vector<std::unique_ptr<stored_candidate>> stored_;
    std::vector<known_choice> known_choices_;
    const int n_, device_;
    const unsigned born_ = v1::detail::count_forks();
    const options options_;
    workspace_layout sizes_;
    double timeout_ = 0;  // seconds
    std::vector<local_rank> ranks_;
    std::vector<std::byte*> host_workspaces_;
    device_memory workspaces_, regions_, handles_, stored_calls_, shared_of_kernels_;
    std::vector<std::uint64_t> host_regions_;  ///< what is in regions_
    reachable_memory reachable_;
    byte_span shared_[shared_address::most_shared];  ///< and in shared_of_kernels_
    multicast_window multicast_;
    std::vector<std::unique_ptr<stored_slot_map>> maps_;
    device_tables tables_;
    std::vector<loaded_kernel> kernels_;
    bool has_memory_domains_ = false;
    resident_group resident_;
    std::vector<int> peer_devices_;
    calls_together* together_ = nullptr;
    private_stream orders_;
    mutable std::mutex order_mutex_;
    std::atomic<std::uint32_t> order_{0};  ///< to the local ranks: a poison word
    char order_text_[workspace_layout::text_bytes] = {};
    int order_told_by_ = none;  ///< the rank that said so, if another one did
    bool has_refused_ = false, has_unseen_calls_ = false;
    int ranks_per_host_ = 0;
    host_map hosts_;
    std::unique_ptr<far_group> far_;  // the last member: its thread uses the others
};

}  // namespace colls::inline v1::cuda::detail
