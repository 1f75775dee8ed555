// How a group of GPUs is made: of processes, one GPU each (CUDA IPC), or of the GPUs of one process (peer access).
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/bootstrap/member_exchange.hpp>
#include <colls/cuda/detail/driver.hpp>
#include <colls/cuda/detail/far/domains.hpp>
#include <colls/cuda/detail/far/near_device.hpp>
#include <colls/cuda/detail/group/joint_steps.hpp>
#include <colls/cuda/detail/group/local_ranks.hpp>
#include <colls/cuda/detail/group/peer_watch.hpp>
#include <colls/cuda/detail/group/shared_allocations.hpp>
#include <colls/cuda/detail/group/shared_buffers.hpp>
#include <colls/detail/group/failure.hpp>
#include <colls/detail/support/environment.hpp>
#include <colls/detail/support/hash.hpp>
#include <colls/detail/support/host.hpp>
#include <colls/net/detail/forming/apart.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace colls::inline v1 {
namespace detail {

/// Exchanges one value of each rank, again and again; memory is allocated by the constructor only. Not in namespace
/// cuda, where the name all_gather would be that of colls::cuda.
template <class Host, class X>
class value_exchange {
public:
    explicit value_exchange(Host& host)
        : host_(host), own_(sizeof(X)), all_(sizeof(X) * static_cast<std::size_t>(host.size())) {}
    /// values[r] = rank r's `own`, on all ranks.
    void operator()(const X& own, std::vector<X>& values) {
        std::memcpy(own_.data(), &own, sizeof own);
        all_gather(host_, own_, all_);
        for (std::size_t i = 0; i < values.size(); ++i) std::memcpy(&values[i], all_.data() + i * sizeof(X), sizeof(X));
    }

private:
    Host& host_;
    std::vector<unsigned char> own_, all_;
};

}  // namespace detail

namespace cuda::detail {

/// Channels of a rank where options.channels does not say: as many as fill its links, and at most a quarter of the
/// device, so that the calls of four streams fit it beside each other. A block has 64 KB under way; a link of 450 GB/s
/// (from compute capability 9.0 on), 2 us away, takes 0.9 MB, one of 300 GB/s 0.6.
inline int default_channels(int device) {
    int major = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    return std::clamp(multiprocessors(device) / 4, 1, major >= 9 ? 24 : 16);
}

/// One rank of a new group.
struct joined_rank {
    int rank = none;
    std::shared_ptr<shared_allocations> memory;
    std::unique_ptr<local_ranks> ranks;
    std::unique_ptr<peer_watch> watch;        ///< of other processes; null where there are none
    std::unique_ptr<buffer_sharing> sharing;  ///< likewise
};

/// The blocks from which cudaMalloc serves small requests.
inline constexpr std::uint64_t block_bytes = 2 << 20;

/// What each process tells the others while a group is made.
struct process_info {
    std::int32_t succeeded;  ///< in every step so far; else `why` says what has failed
    std::int32_t channels, device_number;
    std::uint64_t host;   ///< the same in all processes of a host, and of one COLLS_HOST
    std::uint64_t named;  ///< by COLLS_HOST
    fabric_clique clique;
    char device[32];  ///< PCI bus id: for texts
    device_uuid uuid;
    process_name process;
    std::uint64_t scratch_bytes, packet_bytes, small_bytes, middle_bytes, chunk_bytes;  ///< of the options
    std::uint64_t far_channels, far_bytes, gpu_direct;
    std::uint64_t window_bytes;  ///< of multicast memory; 0: none is asked for
    cuda::protocol protocol;
    std::uint64_t workspace_bytes, arena_bytes;
    std::uint64_t offset;   ///< of the workspace in the allocation that `memory` names
    shared_piece memory;    ///< the workspace, with the arena behind it
    std::uint64_t granule;  ///< of multicast memory
    std::uint64_t socket;   ///< where it is handed out
    std::int32_t goes_far;  ///< the program has what ranks take that do not reach each other's memory
    std::uint8_t unreached[max_ranks_of_hosts];  ///< 1 for each rank whose memory cannot be opened
    char why[320];
};

/// Lets kernels on device `from`, of rank a, access memory of device `to`. False: they cannot.
inline bool enable_peer_access(int from, int to, int a) {
    int can = 0;
    check(cudaDeviceCanAccessPeer(&can, from, to), "cudaDeviceCanAccessPeer", a);
    if (can == 0) return false;
    const device_guard guard(from);
    const cudaError_t code = cudaDeviceEnablePeerAccess(to, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled || code == cudaErrorTooManyPeers) {
        cudaGetLastError();
        return code == cudaErrorPeerAccessAlreadyEnabled;
    }
    check(code, "cudaDeviceEnablePeerAccess", a);
    return true;
}

/// Bytes of a channel's window of multicast memory; 0: a group of n asks for none.
inline std::uint64_t window_bytes_of(const options& o, std::size_t n) {
    const bool asks =
        o.protocol == cuda::protocol::multicast || (o.multicast && o.protocol == cuda::protocol::automatic);
    if (n < 2 || !asks) return 0;
    return (std::clamp<std::uint64_t>(o.multicast_bytes, 1, 1 << 30) + 127) / 128 * 128;
}
inline constexpr const char* without_multicast =
    "options.protocol is multicast, and the group has no multicast memory: ";

/// How one process joins a group, step by step.
template <class Host>
class process_join : joint_steps<process_info> {
public:
    process_join(Host& host, int device, const options& o)
        : joint_steps(host.rank(), host.size(), v1::detail::value_exchange<Host, process_info>(host),
              "cuda::communicator", "has no group", "could not join"),
          host_(host),
          device_(device),
          o_(o),
          joined_{rank_, std::make_shared<shared_allocations>(), nullptr, nullptr, nullptr},
          workspaces_(all_.size()),
          meet_([exchange = v1::detail::value_exchange<Host, char>(host),
                    all = std::vector<char>(all_.size())]() mutable { exchange({}, all); }) {}

    joined_rank run() {
        shared_allocations& memory = *joined_.memory;
        attempt([&] { describe(); });
        exchange();
        domain_ = domains_of(n_, [&](int a, int b) {
            return of(a).host == of(b).host ||
                   (of(a).clique == of(b).clique && of(a).clique != fabric_clique{} && of(a).named == of(b).named);
        });
        do {
            attempt([&] { allocate(memory); });
            exchange();
            attempt([&] { map(memory); });
            tell();
        } while (begin_anew(memory));
        throw_if_failed();
        attempt([&] { connect(memory); });
        exchange();  // every workspace is ready before any rank's kernel accesses it
        make_multicast();
        if (far_) reach_other_hosts();
        return std::move(joined_);
    }

private:
    void describe() {
        int devices = 0;
        check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount", rank_);
        if (device_ < 0 || device_ >= devices)
            throw error(errc::unsupported,
                (error_text() << "rank " << rank_ << " names device " << device_ << ", and its process sees " << devices
                              << ", from number 0 on")
                    .text(),
                rank_);
        const device_guard guard(device_);
        const char* const name = v1::detail::variable("COLLS_HOST");
        const v1::detail::host_label boot = v1::detail::boot_of_host();
        own_.named = v1::detail::hash_text(name != nullptr ? name : "");
        own_.host = v1::detail::hash_mix(v1::detail::hash_text({boot.text, sizeof boot.text}), own_.named);
        own_.process = own_process();
        own_.goes_far = v1::detail::bootstrap_of_program.load(std::memory_order_relaxed) != nullptr;
        own_.device_number = device_;
        own_.channels = o_.channels > 0 ? o_.channels : default_channels(device_);
        own_.scratch_bytes = o_.scratch_bytes;
        own_.packet_bytes = o_.packet_bytes;
        own_.small_bytes = o_.small_bytes;
        own_.middle_bytes = o_.middle_bytes;
        own_.protocol = o_.protocol;
        own_.far_channels = static_cast<std::uint64_t>(o_.far_channels);
        own_.far_bytes = o_.far_bytes;
        own_.gpu_direct = o_.gpu_direct;
        own_.window_bytes = window_bytes_of(o_, all_.size());
        if (o_.far_channels < 1 || o_.far_channels > most_far_channels)
            throw error(errc::invalid_argument,
                (error_text() << "options.far_channels is " << o_.far_channels << ", and must be 1 to "
                              << most_far_channels)
                    .text(),
                rank_);
        own_.chunk_bytes = o_.chunk_bytes;
        check(cudaDeviceGetPCIBusId(own_.device, sizeof own_.device, device_), "cudaDeviceGetPCIBusId", rank_);
        for (int d = 0; d < devices; ++d) visible_.push_back(uuid_of(d));
        own_.uuid = visible_[static_cast<std::size_t>(device_)];
        own_.clique = clique_of(own_.device);
        if (own_.clique != fabric_clique{}) try {
                mapped_buffer().create(device_, block_bytes);
            } catch (const error&) {  // as where the system gives it no channel for such memory
                own_.clique = {};
            }
    }
    void allocate(shared_allocations& memory) {
        int channels = own_.channels;
        bool several_hosts = false;
        by_fabric_ = false;
        for (int r = 0; r < n_; ++r) {
            const process_info& p = of(r);
            channels = std::min(channels, p.channels);
            several_hosts = several_hosts || !is_near(r);
            by_fabric_ = by_fabric_ || (is_near(r) && p.host != own_.host);
            if (p.scratch_bytes != own_.scratch_bytes || p.packet_bytes != own_.packet_bytes ||
                p.small_bytes != own_.small_bytes || p.middle_bytes != own_.middle_bytes ||
                p.chunk_bytes != own_.chunk_bytes || p.protocol != own_.protocol ||
                p.far_channels != own_.far_channels || p.far_bytes != own_.far_bytes ||
                p.gpu_direct != own_.gpu_direct || p.window_bytes != own_.window_bytes)
                throw error(errc::invalid_argument,
                    (error_text() << "rank " << r << " has different options than rank " << rank_
                                  << ": scratch_bytes, packet_bytes, small_bytes, middle_bytes, chunk_bytes, "
                                     "far_channels, far_bytes, gpu_direct, multicast, multicast_bytes and protocol "
                                     "are the same on all ranks")
                        .text(),
                    rank_, r);
        }
        for (int r = 0; r < n_ && !o_.share_devices; ++r)
            for (int q = 0; q < r; ++q)
                if (of(q).host == of(r).host && of(q).uuid == of(r).uuid)
                    throw error(errc::invalid_argument,
                        (error_text() << "ranks " << q << " and " << r << " name the same device, " << of(r).device
                                      << " (number " << of(q).device_number << " and " << of(r).device_number
                                      << "): give each a device of its own, or set options.share_devices")
                            .text(),
                        rank_, r);
        if (several_hosts) channels = std::min(channels, o_.far_channels);
        joined_.ranks = std::make_unique<local_ranks>(n_, device_, channels, o_);
        if (several_hosts) make_far(channels);
        own_.workspace_bytes = (joined_.ranks->sizes().bytes() + 255) / 256 * 256;
        // cudaMalloc serves several small requests from one block of 2 MiB, and CUDA IPC exports whole blocks: nothing
        // but the group's memory is exported if it takes whole blocks.
        const std::uint64_t bytes = own_.workspace_bytes + o_.arena_bytes;
        own_.arena_bytes = (bytes + block_bytes - 1) / block_bytes * block_bytes - own_.workspace_bytes;
        const std::uint64_t all = own_.workspace_bytes + own_.arena_bytes;
        if (by_fabric_) {
            memory.devices = {device_};
            memory.by_fabric = std::make_unique<mapped_buffer>();
            own_.memory = memory.by_fabric->create(device_, all);
            own_.offset = 0;
            workspace_ = memory.by_fabric->data();
            return;
        }
        workspace_ = memory.owned.emplace_back(device_, all).data();
        const device_guard guard(device_);
        own_.offset = reinterpret_cast<std::uint64_t>(workspace_) - allocation_of(workspace_).begin;
        own_.memory = {shared_piece::ipc, all, {}};
        cudaIpcMemHandle_t handle{};
        const cudaError_t code = cudaIpcGetMemHandle(&handle, workspace_);
        if (code != cudaSuccess && n_ > 1 && !own_.goes_far) check(code, "cudaIpcGetMemHandle", rank_);
        if (code != cudaSuccess) own_.memory.bytes = 0, cudaGetLastError();
        std::memcpy(own_.memory.handle, &handle, sizeof handle);
    }
    void map(shared_allocations& memory) {
        // From here on other processes may have mapped this rank's memory. All ranks come here, or none does.
        if (meet_) memory.synchronise_processes = std::exchange(meet_, nullptr);
        error_text why;
        for (int r = 0; r < n_; ++r) {
            std::byte*& at = workspaces_[static_cast<std::size_t>(r)];
            at = !is_near(r) ? far_->memory().shadow(r) : r != rank_ ? opened(r, memory.mapped, why) : workspace_;
            own_.unreached[r] = at == nullptr;
        }
        if (why.empty()) return;
        if (!own_.goes_far) why << ": form the host's group by colls::world(), and data go through the host";
        throw error(errc::peer_failed, why.text(), rank_);
    }
    /// The memory of another rank of this domain; null, and a text, where it is not reached. A device that this process
    /// does not see cannot be asked for access.
    std::byte* opened(int r, buffer_mappings& mapped, error_text& why) const {
        const process_info& p = of(r);
        const auto seen = std::find(visible_.begin(), visible_.end(), p.uuid);
        int can = 1;
        if (seen != visible_.end() && p.uuid != own_.uuid)
            check(cudaDeviceCanAccessPeer(&can, device_, static_cast<int>(seen - visible_.begin())),
                "cudaDeviceCanAccessPeer", rank_);
        try {
            if (can == 0) throw error(errc::unsupported, "no peer access between them");
            if (p.memory.bytes == 0)
                throw error(errc::unsupported, "cudaIpcGetMemHandle failed there: its system has no CUDA IPC (WSL)");
            auto m = std::make_unique<mapped_buffer>();
            const std::uint64_t at = m->map(device_, {p.memory}, {});  // the whole allocation
            mapped.push_back(std::move(m));
            return reinterpret_cast<std::byte*>(at + p.offset);
        } catch (const error& e) {
            if (why.empty())
                why << "colls: cuda: rank " << rank_ << " on device " << device_ << " cannot reach rank " << r
                    << " on device " << p.device << ": " << v1::detail::quoted(e.what())
                    << (seen == visible_.end() && p.host == own_.host ? " (a MIG slice reaches no other GPU instance)"
                                                                      : "");
            return nullptr;
        }
    }

    // Domains: ranks that reach each other's memory. Data between them go by the proxies, as between hosts.

    /// The lowest rank of the domain stands for it.
    int domain_of(int r) const { return domain_[static_cast<std::size_t>(r)]; }
    bool is_near(int r) const { return domain_of(r) == domain_of(rank_); }
    /// After a step: do all ranks begin anew, since some do not reach each other? They are then divided. Else the step
    /// has failed where a rank says so.
    bool begin_anew(shared_allocations& memory) {
        const auto misses = [&](int a, int b) { return of(a).unreached[b] != 0; };
        int first = none;
        for (int r = n_; r-- > 0;) {
            const bool reaches = std::count(std::begin(of(r).unreached), std::end(of(r).unreached), 1) == 0;
            if (!of(r).goes_far || (reaches && !of(r).succeeded)) return false;
            if (!reaches) first = r;
        }
        if (first == none) return false;
        if (first == rank_) v1::detail::say(error_text() << "colls: " << own_.why << ": such data go through the host");
        domain_ = domains_of(
            n_, [&](int a, int b) { return domain_of(a) == domain_of(b) && !misses(a, b) && !misses(b, a); });
        std::fill(std::begin(own_.unreached), std::end(own_.unreached), std::uint8_t{0});
        memory.mapped.clear();
        tell();  // no rank has mapped the memory of another one
        memory.owned.clear();
        memory.by_fabric.reset();
        return true;
    }

    void connect(shared_allocations& memory) {
        // The regions of each rank: absolute, exported, and none of a user yet.
        std::vector<std::uint64_t> regions(all_.size() * shared_address::most_regions);
        std::vector<descriptor> processes;
        for (int r = 0; r < n_; ++r) {
            regions[static_cast<std::size_t>(r) * shared_address::most_regions + shared_address::exported] =
                reinterpret_cast<std::uint64_t>(workspaces_[static_cast<std::size_t>(r)]) + of(r).workspace_bytes;
            processes.push_back(of(r).host == own_.host ? watched(of(r).process) : descriptor{});
        }
        joined_.ranks->connect({rank_}, workspaces_, regions);
        std::byte* const arena_at = workspace_ + own_.workspace_bytes;
        joined_.ranks->export_memory(arena_at, own_.arena_bytes);
        memory.arena = std::make_shared<device_arena>(arena_at, own_.arena_bytes);
        joined_.sharing = std::make_unique<buffer_sharing>(
            *joined_.ranks, rank_, v1::detail::value_exchange<Host, share_info>(host_), by_fabric_);
        joined_.watch = std::make_unique<peer_watch>(*joined_.ranks, std::move(processes),
            [&context = host_.context(), rank = rank_](int& peer, error_text& why) {
                const v1::detail::poison_state& p = context.memory.poison();
                if (p.state.load(std::memory_order_acquire) != 2) return false;
                peer = p.peer == none || p.peer == rank ? p.rank : p.peer;
                why << v1::detail::report_in(p);
                return true;
            });
    }

    /// Multicast memory, where the options ask for it: of all ranks, or, where one has none, of no rank.
    void make_multicast() {
        if (own_.window_bytes == 0) return;
        const bool must = o_.protocol == cuda::protocol::multicast;
        const auto succeeds = [&](const auto& step) {
            attempt([&] {
                try {
                    step();
                } catch (const error& e) {
                    if (!must) throw;
                    throw error(
                        errc::unsupported, (error_text() << without_multicast << v1::detail::quoted(e.what())).text());
                }
            });
            tell();
            if (must) throw_if_failed();
            return std::all_of(all_.begin(), all_.end(), [](const process_info& p) { return p.succeeded != 0; });
        };
        const std::uint64_t bytes = own_.window_bytes * static_cast<std::uint64_t>(joined_.ranks->sizes().channels);
        const double timeout = v1::detail::environment::read().timeout;
        const auto check = [&] { joined_.ranks->throw_if_failed(); };
        std::unique_ptr<multicast_memory> m;
        v1::detail::descriptor file;
        std::uint64_t granule = 0;
        const bool is_made = succeeds([&] {
            if (far_ || by_fabric_)
                throw error(errc::unsupported, "its ranks are on several hosts, or do not reach each other");
            for (int r = 0; r < n_; ++r)
                if (r != rank_ && of(r).uuid == own_.uuid)
                    throw error(errc::unsupported,
                        (error_text() << "ranks " << r << " and " << rank_ << " share a device").text());
            m = std::make_unique<multicast_memory>(all_.size(), std::vector<int>{device_});
            own_.granule = m->granule(bytes);
        }) && succeeds([&] {
            for (const process_info& p : all_) granule = std::max(granule, p.granule);
            if (rank_ != 0) return;
            m->create(bytes, granule);
            file = v1::detail::descriptor(m->exported());
            own_.socket = v1::detail::random_id();
        }) && succeeds([&] {
            if (rank_ == 0)
                v1::detail::hand_out(of(0).socket, std::array{file.get()}, n_ - 1, timeout, rank_, check);
            else
                m->import(v1::detail::fetch(of(0).socket, 1, timeout, rank_, 0, check)[0].get(), bytes, granule);
            m->add();
        }) && succeeds([&] { m->bind(); }) &&
                             succeeds([&] { m->map(); });
        if (!is_made) return;
        joined_.ranks->set_multicast({m->of(0), m->all(), own_.window_bytes});
        joined_.memory->multicast = std::move(m);
    }

    // Ranks on other hosts.

    static constexpr int most_far_channels = 64;
    struct places_of_channels {
        std::uint64_t of[most_far_channels / 2];
    };
    /// How the members of the proxies' network meet: by the host group.
    class meeting_by_host final : public member_exchange {
    public:
        explicit meeting_by_host(Host& host) : exchange_(host), all_(static_cast<std::size_t>(host.size())) {}
        void all_gather(const void* own, std::size_t bytes, void* all) override {
            part mine{};
            std::memcpy(mine.bytes, own, bytes);
            exchange_(mine, all_);
            for (std::size_t r = 0; r < all_.size(); ++r)
                std::memcpy(static_cast<std::byte*>(all) + r * bytes, all_[r].bytes, bytes);
        }

    private:
        struct part {
            std::byte bytes[64];
        };
        v1::detail::value_exchange<Host, part> exchange_;
        std::vector<part> all_;
    };

    void make_far(int channels) {
        std::vector<std::uint8_t> places;
        int first = 0, each = n_, here = 0;
        while (first < n_ && domain_of(first) == 0) ++first;
        for (int r = 0; r < n_; ++r) {
            const bool near = is_near(r), begins = r % first == 0;
            places.push_back(near ? static_cast<std::uint8_t>(here++) : far_memory::elsewhere);
            if (n_ % first != 0 || (r > 0 && (domain_of(r) != domain_of(r - 1)) != begins)) each = 0;
        }
        if (each != 0) each = first;
        // far_piece::at has 32 bits.
        const std::uint64_t window = (std::clamp<std::uint64_t>(o_.far_bytes, 4096, 1 << 30) + 127) / 128 * 128;
        const near_device there(own_.device);  // the windows are pinned where they are touched first
        auto f = std::make_unique<far_group>(device_, std::move(places), far_layout{n_, channels, window, 1024});
        far_ = f.get();
        joined_.ranks->set_far(std::move(f), domain_, each);
    }
    /// Connects the proxies. Every rank has a step that may fail, and exchanges of its own in between.
    void reach_other_hosts() {
        attempt([&] {
            const v1::detail::group_maker make = v1::detail::bootstrap_of_program.load(std::memory_order_relaxed);
            if (make == nullptr)
                throw error(errc::unsupported,
                    "its ranks are on several hosts, and the program calls neither colls::world() nor "
                    "colls::bootstrap(), which bring what the proxies take to connect: form the host's group by one",
                    rank_);
        });
        exchange();
        meeting_by_host meet(host_);
        places_of_channels places{};
        attempt([&] {
            const v1::detail::connections_for_gpu near_it(own_.device);
            const near_device there(own_.device);
            far_->set_network(v1::detail::bootstrap_of_program.load(std::memory_order_relaxed)(rank_, n_, meet));
            if (rank_ == 0) far_->make_places(places.of);
        });
        exchange();
        std::vector<places_of_channels> all(all_.size());
        v1::detail::value_exchange<Host, places_of_channels> tell(host_);
        tell(places, all);
        attempt([&] {
            const near_device there(own_.device);  // and so is what it registers
            far_->connect(all[0].of);
            joined_.ranks->take_links(far_->offloads());
        });
        exchange();
        const bool in_gpu = o_.gpu_direct && make_gpu_windows();
        attempt([&] {
            local_ranks& ranks = *joined_.ranks;
            const near_device there(own_.device);  // and so is the proxy
            far_->start(
                in_gpu, [&ranks](const proxy::notice& n) { ranks.order(n.why, n.peer, n.text.c_str(), n.told_by); },
                [&ranks](proxy::notice& n) { return ranks.has_failed(n); });
            if (in_gpu) ranks.renew_windows();
        });
        exchange();
    }
    /// Windows in memory of the GPUs: of all ranks, or, where one cannot have them, of none.
    bool make_gpu_windows() {
        attempt([&] { far_->make_gpu_windows(); });
        tell();
        int without = 0;
        while (without < n_ && of(without).succeeded) ++without;
        if (without == rank_)
            v1::detail::say(
                error_text() << "colls: cuda: rank " << rank_ << ": no GPUDirect RDMA between hosts: " << own_.why);
        return without == n_;
    }

    Host& host_;
    const int device_;
    const options& o_;
    joined_rank joined_;
    far_group* far_ = nullptr;          // where there are other hosts
    std::vector<device_uuid> visible_;  ///< the devices that this process sees, by their numbers
    std::vector<int> domain_;           ///< of each rank, the lowest rank of those that reach each other's memory
    bool by_fabric_ = false;            ///< ranks of other hosts reach this one's memory
    std::byte* workspace_ = nullptr;
    std::vector<std::byte*> workspaces_;
    std::function<void()> meet_;  ///< a barrier over all processes, which allocates nothing
};

/// See communicator's constructor. Collective over `host`.
template <class Host>
joined_rank join_processes(Host& host, int device, const options& o) {
    const int n = host.size(), rank = host.rank();
    if (n < 1 || n > max_ranks_of_hosts)
        throw error(errc::unsupported,
            (error_text() << "colls: cuda::communicator: rank " << rank << ": a group has 1 to " << max_ranks_of_hosts
                          << " ranks, and this host group has " << n)
                .text(),
            rank);
    try {
        return process_join<Host>(host, device, o).run();
    } catch (const std::bad_alloc&) {  // outside of a step: the other ranks wait in an exchange
        host.abort("cuda::communicator: out of host memory");
        throw error(errc::peer_failed,
            (error_text() << "colls: cuda::communicator: rank " << rank << " is out of host memory").text(), rank);
    }
}

/// Makes the multicast memory of a group, where the options ask for it; null where it cannot be had, but must not be.
/// `reached`: the devices reach each other's memory. Throws unsupported.
inline std::unique_ptr<multicast_memory> make_multicast(
    const std::vector<int>& devices, const options& o, std::uint64_t bytes, bool reached) {
    if (bytes == 0) return nullptr;
    try {
        if (!reached) throw error(errc::unsupported, "the group's data go through host memory");
        return std::make_unique<multicast_memory>(devices, bytes);
    } catch (const error& e) {
        if (o.protocol != cuda::protocol::multicast) return nullptr;
        throw error(errc::unsupported, (error_text() << "colls: cuda::communicator::of_devices: " << without_multicast
                                                     << v1::detail::quoted(e.what()))
                                           .text());
    }
}

/// See communicator::of_devices.
inline std::vector<joined_rank> join_devices(const std::vector<int>& devices, const options& o) {
    const int n = static_cast<int>(devices.size());
    if (n < 1 || n > max_ranks)
        throw error(errc::invalid_argument, (error_text() << "colls: cuda::communicator::of_devices: a group has 1 to "
                                                          << max_ranks << " ranks, and got " << n << " devices")
                                                .text());
    int channels = o.channels > 0 ? o.channels : default_channels(devices.front());
    for (std::size_t a = 0; a < devices.size(); ++a) {
        channels = std::min(channels, o.channels > 0 ? multiprocessors(devices[a]) : default_channels(devices[a]));
        for (std::size_t b = 0; b < a; ++b)
            if (devices[a] == devices[b])
                throw error(errc::invalid_argument,
                    (error_text() << "colls: cuda::communicator::of_devices: device " << devices[a]
                                  << " is given twice: take virtual_ranks for several ranks on one device")
                        .text());
    }
    bool peers = !o.through_host;
    for (int a = 0; a < n; ++a)
        for (int b = 0; b < n && peers; ++b)
            if (a != b)
                peers =
                    enable_peer_access(devices[static_cast<std::size_t>(a)], devices[static_cast<std::size_t>(b)], a);
    const bool through_host = !peers && n > 1;
    const auto memory = std::make_shared<shared_allocations>();
    std::vector<joined_rank> all;
    std::vector<std::byte*> workspaces;
    for (int r = 0; r < n; ++r) {
        const int device = devices[static_cast<std::size_t>(r)];
        all.push_back({r, memory, std::make_unique<local_ranks>(n, device, channels, o), nullptr, nullptr});
        const std::uint64_t bytes = all.back().ranks->sizes().bytes();
        if (through_host) {
            memory->devices.push_back(device);
            workspaces.push_back(memory->pinned.emplace_back(bytes).data());
        } else {
            workspaces.push_back(memory->owned.emplace_back(device, bytes).data());
        }
    }
    const std::uint64_t window = window_bytes_of(o, devices.size());
    memory->multicast = make_multicast(devices, o, window * static_cast<std::uint64_t>(channels), !through_host);
    for (const joined_rank& j : all) {
        if (memory->multicast)
            j.ranks->set_multicast(
                {memory->multicast->of(static_cast<std::size_t>(j.rank)), memory->multicast->all(), window});
        j.ranks->connect({j.rank}, workspaces, std::vector<std::uint64_t>(devices.size()));
        j.ranks->set_peer_devices(devices);
        if (through_host) j.ranks->hide_memory();
    }
    return all;
}

}  // namespace cuda::detail
}  // namespace colls::inline v1
