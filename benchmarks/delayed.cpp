// Hosts with a long and limited way between them: all_reduce by ring, halving-doubling and automatic over TCP, beside
// what their rounds and bytes would take at best, and beside Gloo and Open MPI.
//
// Each rank is in a network namespace with one device, and this program carries the packets from device to device: at
// the rate that was asked for, out of each host and into each, and so much later. Needs root. Nothing is left behind.
#include "crowd_side.hpp"

#include <colls/colls.hpp>
#include <colls/world.hpp>

#include <fmt/core.h>
#include <CLI/CLI.hpp>
#ifdef COLLS_BENCH_GLOO
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#endif

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

namespace {

struct settings {
    int ranks = 2, calls = 9, mtu = 9000;
    double delay_us = 200, mbits = 1000;
    std::vector<std::size_t> sizes{8, 65536, 1 << 20, 4 << 20, 16 << 20};
    std::vector<std::string> sides{"ring", "halving_doubling", "automatic", "gloo", "openmpi"};
    std::string as, mpirun = "mpirun", folder;
};

int must(int result, const char* what) {
    if (result < 0) throw std::system_error(errno, std::generic_category(), what);
    return result;
}
std::string address_of(int rank) { return fmt::format("10.78.0.{}", rank + 1); }
std::string space_of(int rank) { return fmt::format("/run/netns/rank{}", rank); }

/// The device of a rank, in a namespace of its own, which this thread is in afterwards.
int new_host(const settings& s, int rank) {
    must(unshare(CLONE_NEWNET), "unshare");
    std::ofstream(space_of(rank)).flush();
    must(mount("/proc/thread-self/ns/net", space_of(rank).c_str(), nullptr, MS_BIND, nullptr), "mount");
    const int fd = must(open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), "/dev/net/tun");
    const int control = must(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
    ifreq r{};
    std::strcpy(r.ifr_name, "wire0");
    r.ifr_flags = IFF_TUN | IFF_NO_PI;
    must(ioctl(fd, TUNSETIFF, &r), "TUNSETIFF");
    auto& in = reinterpret_cast<sockaddr_in&>(r.ifr_addr);
    in.sin_family = AF_INET;
    inet_pton(AF_INET, address_of(rank).c_str(), &in.sin_addr);
    must(ioctl(control, SIOCSIFADDR, &r), "SIOCSIFADDR");
    inet_pton(AF_INET, "255.255.255.0", &in.sin_addr);
    must(ioctl(control, SIOCSIFNETMASK, &r), "SIOCSIFNETMASK");
    r.ifr_mtu = s.mtu;
    must(ioctl(control, SIOCSIFMTU, &r), "SIOCSIFMTU");
    r.ifr_qlen = 10'000;
    must(ioctl(control, SIOCSIFTXQLEN, &r), "SIOCSIFTXQLEN");
    for (const char* const device : {"wire0", "lo"}) {
        std::strcpy(r.ifr_name, device);
        must(ioctl(control, SIOCGIFFLAGS, &r), "SIOCGIFFLAGS");
        r.ifr_flags |= IFF_UP | IFF_RUNNING;
        must(ioctl(control, SIOCSIFFLAGS, &r), "SIOCSIFFLAGS");
    }
    close(control);
    return fd;
}

/// Carries packets until `over`. A packet leaves its host when those before it have left, and comes in when those
/// before it have come in. What cannot leave yet stays in the queue of the host's device, so that the host's TCP knows
/// of it, as with a real device.
void carry(const settings& s, const std::vector<int>& devices, const std::atomic<bool>& over) {
    struct packet {
        double due;
        std::vector<char> bytes;
    };
    const auto n = devices.size();
    std::vector<std::deque<packet>> to(n);
    std::vector<double> left(n), arrived(n);
    const double byte_seconds = 8 / (s.mbits * 1e6), ahead = 100e-6;  // what a device has taken from its queue
    std::vector<char> buffer(65536);
    std::vector<pollfd> all;
    for (const int d : devices) all.push_back({d, POLLIN, 0});
    prctl(PR_SET_TIMERSLACK, 1);
    while (!over) {
        double now = bench::monotonic_seconds(), next = now + 0.01;
        for (std::size_t i = 0; i < n; ++i) {
            while (left[i] <= now + ahead) {
                const ssize_t got = read(devices[i], buffer.data(), buffer.size());
                if (got < 20) break;
                const auto target = static_cast<std::size_t>(static_cast<unsigned char>(buffer[19])) - 1;
                if (buffer[16] != 10 || target >= n) continue;
                const double takes = static_cast<double>(got) * byte_seconds;
                left[i] = std::max(left[i], now) + takes;
                arrived[target] = std::max(arrived[target] + takes, left[i] + s.delay_us * 1e-6);
                to[target].push_back({arrived[target], {buffer.data(), buffer.data() + got}});
            }
            all[i].events = left[i] <= now + ahead ? POLLIN : 0;
            if (left[i] > now + ahead) next = std::min(next, left[i] - ahead);
        }
        now = bench::monotonic_seconds();
        for (std::size_t i = 0; i < n; ++i) {
            for (; !to[i].empty() && to[i].front().due <= now; to[i].pop_front())
                if (write(devices[i], to[i].front().bytes.data(), to[i].front().bytes.size()) < 0 && errno != EIO)
                    break;
            if (!to[i].empty()) next = std::min(next, to[i].front().due);
        }
        const double wait = std::max(0.0, next - bench::monotonic_seconds());
        const timespec most{static_cast<time_t>(wait), static_cast<long>(std::fmod(wait, 1) * 1e9)};
        ppoll(all.data(), all.size(), &most, nullptr);
    }
}

/// One rank of this library, or of Gloo.
void run_rank(const settings& s, int rank) {
    const int space = must(open(space_of(rank).c_str(), O_RDONLY | O_CLOEXEC), "namespace");
    must(setns(space, CLONE_NEWNET), "setns");
    std::vector<std::size_t> sizes{0};  // a barrier after nothing comes first
    sizes.insert(sizes.end(), s.sizes.begin(), s.sizes.end());
    if (s.as == "gloo") {
#ifdef COLLS_BENCH_GLOO
        gloo::rendezvous::FileStore store("/run/gloo");
        std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(address_of(rank).c_str());
        const auto context = std::make_shared<gloo::rendezvous::Context>(rank, s.ranks);
        context->connectFullMesh(store, device);
        std::uint32_t tag = 0;
        bench::measure_crowd(
            rank, s.ranks, sizes, s.calls,
            [&](std::span<const double> in, std::span<double> out) {
                if (in.empty()) return;
                gloo::AllreduceOptions options(context);
                options.setInput(const_cast<double*>(in.data()), in.size());
                options.setOutput(out.data(), out.size());
                options.setReduceFunction([](void* to, const void* a, const void* b, std::size_t count) {
                    gloo::sum<double>(to, a, b, count);
                });
                options.setTag(++tag);
                gloo::allreduce(options);
            },
            [&] {
                gloo::BarrierOptions options(context);
                options.setTag(++tag);
                gloo::barrier(options);
            });
#endif
        return;
    }
    setenv("COLLS_RANK", std::to_string(rank).c_str(), 1);
    setenv("COLLS_SIZE", std::to_string(s.ranks).c_str(), 1);
    setenv("COLLS_MASTER_ADDR", address_of(0).c_str(), 1);
    setenv("COLLS_MASTER_PORT", "29400", 1);
    setenv("COLLS_HOST", fmt::format("host{}", rank).c_str(), 1);
    colls::communicator comm = colls::world();
    bench::measure_crowd(
        rank, s.ranks, sizes, s.calls,
        [&](std::span<const double> in, std::span<double> out) {
            if (in.empty()) return;
            if (s.as == "ring")
                colls::all_reduce<colls::ring>(comm, in, out, colls::sum);
            else if (s.as == "halving_doubling")
                colls::all_reduce<colls::halving_doubling>(comm, in, out, colls::sum);
            else
                colls::all_reduce(comm, in, out, colls::sum);
        },
        [&] { colls::barrier(comm); });
}

/// Seconds of each size, less those of the barrier.
std::map<std::size_t, double> measured(const settings& s, const std::string& side) {
    std::string command;
    if (side == "openmpi") {
        std::string hosts, sizes;
        for (int r = 0; r < s.ranks; ++r) hosts += (r > 0 ? "," : "") + address_of(r);
        for (const std::size_t bytes : s.sizes) sizes += fmt::format(" {}", bytes);
        // Instead of ssh: the command in the namespace of that address.
        std::ofstream("/run/agent")
            << "#!/bin/bash\nhost=$1; shift\nexec nsenter --net=/run/netns/rank$((${host##*.} - "
               "1)) bash -c \"$*\"\n";
        chmod("/run/agent", 0755);
        command = fmt::format(
            "exec nsenter --net={} timeout 120 {} --allow-run-as-root --bind-to none --mca plm_rsh_agent /run/agent "
            "--mca btl tcp,self --mca btl_tcp_if_include wire0 --mca oob_tcp_if_include wire0 --host {} -n {} "
            "{}crowd_mpi {} 0{}",
            space_of(0), s.mpirun, hosts, s.ranks, s.folder, s.calls, sizes);
    } else {
        std::string sizes;
        for (const std::size_t bytes : s.sizes) sizes += fmt::format(" {}", bytes);
        command = fmt::format(
            "exec timeout 120 {}delayed --as {} -n {} --calls {} --sizes{}", s.folder, side, s.ranks, s.calls, sizes);
    }
    std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr) throw std::runtime_error("cannot start " + command);
    std::map<std::size_t, double> found;
    std::string others;
    char line[512];
    while (std::fgets(line, sizeof line, pipe) != nullptr) {
        double first = 0, later = 0;
        std::size_t bytes = 0;
        if (std::sscanf(line, "call %zu %lf %lf", &bytes, &first, &later) == 3)
            found[bytes] = later;
        else if (std::strncmp(line, "formed", 6) != 0)
            others += line;
    }
    if (pclose(pipe) != 0 || found.size() != s.sizes.size() + 1) throw std::runtime_error(side + ": " + others);
    for (auto& [bytes, seconds] : found)
        if (bytes > 0) seconds -= found.at(0);
    return found;
}

/// What the rounds and bytes of a schedule take at best: 2 (n - 1) rounds, or 2 log2 n; 2 (n - 1) / n of the bytes.
double bound(const settings& s, const std::string& side, std::size_t bytes) {
    const double n = s.ranks, rounds = side == "ring" ? 2 * (n - 1) : 2 * std::ceil(std::log2(n));
    return rounds * s.delay_us * 1e-6 + 2 * (n - 1) / n * static_cast<double>(bytes) * 8 / (s.mbits * 1e6);
}

int run_ranks_of(const settings& s) {
    std::vector<pid_t> ranks;
    for (int r = 0; r < s.ranks; ++r) {
        const pid_t id = must(fork(), "fork");
        if (id == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            try {
                run_rank(s, r);
                std::fflush(stdout);
                _exit(0);
            } catch (const std::exception& e) {
                fmt::print("rank {}: {}\n", r, e.what());
                std::fflush(stdout);
                _exit(1);
            }
        }
        ranks.push_back(id);
    }
    int worst = 0;
    for (const pid_t id : ranks) {
        int status = 0;
        waitpid(id, &status, 0);
        worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    return worst;
}

void compare(const settings& s) {
    // Mounts of its own, so that the names of the namespaces go with this process.
    must(unshare(CLONE_NEWNS), "unshare (root may)");
    must(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), "mount");
    must(mount("none", "/run", "tmpfs", 0, nullptr), "mount");
    must(mkdir("/run/netns", 0755), "mkdir");
    std::vector<int> devices;
    for (int r = 0; r < s.ranks; ++r) devices.push_back(new_host(s, r));
    std::atomic<bool> over = false;
    std::thread carrier([&] { carry(s, devices, over); });
    fmt::print("{} hosts, {} Mb/s in and out of each, {} us one way, packets of {} B\n\n| size |", s.ranks, s.mbits,
        s.delay_us, s.mtu);
    std::map<std::string, std::map<std::size_t, double>> all;
    for (const std::string& side : s.sides) {
        fmt::print(stderr, "delayed: {}          \r", side);
        std::filesystem::remove_all("/run/gloo");
        std::filesystem::create_directory("/run/gloo");
        try {
            all[side] = measured(s, side);
        } catch (const std::exception& e) {
            fmt::print(stderr, "delayed: {}\n", e.what());
        }
    }
    over = true;
    carrier.join();
    for (const auto& [side, of] : all) fmt::print(" {} | of its bound |", side);
    fmt::print("\n|---|");
    for (std::size_t i = 0; i < 2 * all.size(); ++i) fmt::print("---|");
    for (const std::size_t bytes : s.sizes) {
        fmt::print("\n| {} |", bytes);
        for (const auto& [side, of] : all)
            fmt::print(" {:.2f} ms | {:.2f} |", of.at(bytes) * 1e3, of.at(bytes) / bound(s, side, bytes));
    }
    fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
    settings s;
    CLI::App app{
        "all_reduce between hosts with a long and limited way between them: network namespaces, between which this\n"
        "program carries the packets. For each size and side: the median of the calls, less a barrier, and that over\n"
        "the time that the rounds and bytes of the schedule would take (of the others: those of halving-doubling)."};
    app.option_defaults()->always_capture_default();
    app.add_option("-n,--ranks", s.ranks, "hosts")->check(CLI::Range(2, 16));
    app.add_option("--delay", s.delay_us, "us from host to host");
    app.add_option("--mbits", s.mbits, "Mb/s in and out of each host");
    app.add_option("--mtu", s.mtu, "bytes of the largest packet")->check(CLI::Range(1500, 65000));
    app.add_option("--calls", s.calls, "of each size")->check(CLI::Range(1, 1000));
    app.add_option("--sizes", s.sizes, "bytes");
    app.add_option("--sides", s.sides, "ring, halving_doubling, automatic, gloo, openmpi")->delimiter(',');
    app.add_option("--mpirun", s.mpirun, "of Open MPI");
    app.add_option("--as", s.as)->group("");
    CLI11_PARSE(app, argc, argv);
    s.folder = std::filesystem::canonical("/proc/self/exe").parent_path().string() + "/";
    try {
        if (!s.as.empty()) return run_ranks_of(s);
        compare(s);
    } catch (const std::exception& e) {
        fmt::print(stderr, "delayed: {}\n", e.what());
        return 2;
    }
}
