// What the proxy of a rank on a GPU moves, beside the same messages on the host: two processes exchange messages over
// TCP, by colls::exchange and by proxies, in turn. A thread of each process stands in for its kernel: it lists the
// posts of all channels, and waits for them. It copies nothing to or from windows: that is the GPU's part.
#include "run_ranks.hpp"
#include "statistics.hpp"

#include <colls/bootstrap/member_exchange.hpp>
#include <colls/colls.hpp>
#include <colls/cuda/detail/far/proxy.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/extend/message_member.hpp>
#include <colls/messages/detail/group_to_form.hpp>
#include <colls/net/detail/forming/apart.hpp>
#include <colls/world.hpp>

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <sys/mman.h>
#include <cstdlib>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace kernel = colls::cuda::detail;

struct settings {
    std::vector<std::size_t> bytes{64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
    int channels = 8, turns = 7;
    std::size_t window = 1 << 20;
    double seconds = 0.3;
};

/// A rank's memory for posts, its proxy, and the stand-in for its kernel.
class proxied {
public:
    proxied(colls::communicator& network, const settings& s)
        : me_(network.rank()), peer_(1 - me_), places_{kernel::far_memory::elsewhere, kernel::far_memory::elsewhere} {
        places_[static_cast<std::size_t>(me_)] = 0;
        const kernel::far_layout layout{2, s.channels, s.window, 16};
        bytes_ = layout.bytes();
        void* const at =
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
        memory_ = {static_cast<std::byte*>(at), layout, places_};
        colls::extend::message_group* const by = network.context().backend->by_messages();
        if (by == nullptr) throw std::runtime_error("the ranks do not pass messages: COLLS_TRANSPORT is not tcp");
        std::vector<std::uint64_t> places(static_cast<std::size_t>((s.channels + 1) / 2));
        if (me_ == 0)
            for (auto& p : places) p = by->create(2);
        colls::broadcast(network, places, 0);
        std::vector<std::unique_ptr<colls::extend::message_transport>> transports;
        const std::vector<int> members{0, 1};
        for (const std::uint64_t place : places) {
            const colls::detail::group_to_form f({place, me_, members, true}, &network.context());
            colls::extend::message_member m = by->join(f);
            groups_.push_back(m.group);
            transports.push_back(std::move(m.collectives));
            transports.push_back(std::move(m.messages));
        }
        transports.resize(static_cast<std::size_t>(s.channels));
        proxy_ = std::make_unique<kernel::proxy>(
            memory_, std::move(transports),
            [](const kernel::proxy::notice& n) {
                fmt::print(stderr, "the proxy has failed: {}\n", n.text), std::abort();
            },
            [](kernel::proxy::notice&) { return false; });
        posted_.resize(static_cast<std::size_t>(s.channels));
    }
    proxied(const proxied&) = delete;
    ~proxied() {
        proxy_.reset();
        for (const auto& g : groups_) g->close();
        munmap(memory_.base, bytes_);
    }

    /// Sends and receives `bytes`: a slice on each channel, in pieces that fit a window.
    void exchange(std::size_t bytes) {
        const int channels = memory_.layout.channels;
        const std::size_t slice = (bytes + static_cast<std::size_t>(channels) - 1) / static_cast<std::size_t>(channels),
                          piece = std::min(slice, memory_.layout.window_bytes), posts = (slice + piece - 1) / piece;
        std::vector<std::uint64_t> first = posted_;
        for (bool over = false; !over;) {
            over = true;
            for (int c = 0; c < channels; ++c) {
                std::uint64_t& posted = posted_[static_cast<std::size_t>(c)];
                const std::uint64_t end = first[static_cast<std::size_t>(c)] + posts;
                const std::uint64_t done = std::atomic_ref(*memory_.done(c)).load(std::memory_order_acquire);
                while (posted < end && posted < done + 2) post(c, posted, piece);
                over = over && done == end;
            }
            if (!over) sched_yield();
        }
    }

private:
    void post(int c, std::uint64_t& number, std::size_t bytes) {
        kernel::far_post& p = memory_.post(c, number);
        p.value = number + 1;
        p.fingerprint = 1;
        p.round = 0;
        p.ports = 1;
        p.sends[0] = p.receives[0] = {peer_, 0, 1};
        for (const bool receives : {false, true})
            memory_.pieces(c, number, receives)[0] = {0, static_cast<std::uint32_t>(bytes)};
        std::atomic_ref(*memory_.posted(c)).store(++number, std::memory_order_release);
    }

    int me_, peer_;
    std::uint8_t places_[2];
    std::size_t bytes_;
    kernel::far_memory memory_;
    std::vector<std::shared_ptr<colls::extend::message_group>> groups_;
    std::unique_ptr<kernel::proxy> proxy_;
    std::vector<std::uint64_t> posted_;
};

/// How the proxies' network is formed: by the group that the other threads use.
class meeting final : public colls::member_exchange {
public:
    explicit meeting(colls::communicator& world) : world_(world) {}
    void all_gather(const void* own, std::size_t bytes, void* all) override {
        const auto* const from = static_cast<const std::byte*>(own);
        auto* const to = static_cast<std::byte*>(all);
        colls::all_gather(
            world_, std::span(from, bytes), std::span(to, bytes * static_cast<std::size_t>(world_.size())));
    }

private:
    colls::communicator& world_;
};

/// Seconds of one call, of as many as take so long; the same number on both ranks.
template <class Call>
double seconds_of(colls::communicator& world, double limit, const Call& call) {
    call();
    colls::barrier(world);
    double begin = colls::detail::seconds_now();
    call();
    int calls = std::max(1, static_cast<int>(limit / std::max(1e-6, colls::detail::seconds_now() - begin)));
    colls::broadcast(world, std::span(&calls, 1), 0);
    begin = colls::detail::seconds_now();
    for (int i = 0; i < calls; ++i) call();
    return (colls::detail::seconds_now() - begin) / calls;
}

void run(int rank, const settings& s) {
    setenv("COLLS_RANK", std::to_string(rank).c_str(), 1);
    colls::communicator world = colls::world();
    meeting meet(world);
    colls::communicator network = colls::detail::bootstrap_of_program.load(std::memory_order_relaxed)(rank, 2, meet);
    proxied gpu(network, s);
    if (rank == 0)
        fmt::print(
            "two processes over TCP, exchange of so many bytes each way; {} channels, medians of {} turns\n"
            "{:>10} {:>14} {:>14} {:>8}\n",
            s.channels, s.turns, "bytes", "host MB/s", "proxy MB/s", "ratio");
    for (const std::size_t bytes : s.bytes) {
        std::vector<char> out(bytes, 'a'), in(bytes);
        std::vector<double> host, proxy;
        for (int turn = 0; turn < s.turns; ++turn) {
            host.push_back(seconds_of(world, s.seconds, [&] { colls::exchange(world, out, 1 - rank, in, 1 - rank); }));
            proxy.push_back(seconds_of(world, s.seconds, [&] { gpu.exchange(bytes); }));
        }
        const double h = bench::median(host), p = bench::median(proxy), mega = static_cast<double>(bytes) * 1e-6;
        if (rank == 0) fmt::print("{:>10} {:>14.0f} {:>14.0f} {:>8.2f}\n", bytes, mega / h, mega / p, h / p);
    }
}

}  // namespace

int main(int argc, char** argv) {
    settings s;
    CLI::App app("Bytes a second by proxies of GPUs, beside the host's");
    app.add_option("--bytes", s.bytes, "of a message, each way")->capture_default_str();
    app.add_option("--channels", s.channels)->capture_default_str()->check(CLI::Range(1, 64));
    app.add_option("--window", s.window, "bytes of a post")->capture_default_str()->check(CLI::Range(4096, 1 << 30));
    app.add_option("--turns", s.turns)->capture_default_str()->check(CLI::PositiveNumber);
    app.add_option("--seconds", s.seconds, "of a measurement")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    setenv("COLLS_TRANSPORT", "tcp", 1);
    setenv("COLLS_SIZE", "2", 1);
    setenv("COLLS_MASTER_ADDR", "127.0.0.1", 0);
    setenv("COLLS_MASTER_PORT", std::to_string(20000 + getpid() % 10000).c_str(), 0);
    return bench::run_ranks("gpu_proxy", 2, [&](int rank) { run(rank, s); });
}
