// Training by a parameter server: one run with its delays, and with workers that join, leave and die.
#pragma once

#include "../../common/fashion_mnist.hpp"
#include "../../common/network.hpp"
#include "../../common/program.hpp"
#include "server.hpp"

#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

namespace example {

inline constexpr std::array widths{784, 64, 10};
inline constexpr std::int64_t unbounded = 1 << 30;

/// One training run. Workers are given by number; `none`: no worker.
struct setup {
    int servers = 1, batch = 32;
    std::int64_t staleness = 0, pushes = 100;  // the run ends when so many pushes are applied
    double rate = 0.1;
    int slow = colls::none;      // sleeps `delay` in each step
    bool random_delays = false;  // every worker sleeps `delay` in one step of four
    int delay = 10;              // milliseconds
    int late = colls::none, early = colls::none, dying = colls::none;
    std::int64_t late_after = 0, early_after = 0;  // pushes of all; own pushes
    bool killed = false;  // the dying worker: its process is killed; else it breaks the group and leaves
};

template <class T>
struct outcome {
    bool died = false;             // this rank has left the group
    std::vector<T> parameters;     // on rank 0
    std::vector<request> applied;  // on servers: the pushes in the order of their application
    std::vector<long> staleness =
        std::vector<long>(1000);  // how many pulls found the slowest worker so many clocks behind
    long broken = 0;              // pulls that saw a worker more than `staleness` clocks behind or ahead
    double seconds = 0;
};

/// A worker's gradient in its step i, of the batch that worker and step decide.
template <class T>
void compute(network<T>& net, const dataset& data, const setup& how, std::int64_t worker, std::int64_t i) {
    std::mt19937_64 random(static_cast<std::uint64_t>(worker * 1'000'003 + i));
    std::vector<int> samples;
    std::vector<std::uint8_t> labels;
    for (int k = 0; k < how.batch; ++k) {
        samples.push_back(static_cast<int>(random() % static_cast<std::uint64_t>(data.size())));
        labels.push_back(data.labels[static_cast<std::size_t>(samples.back())]);
    }
    net.backward(batch_of<T>(data, samples), labels, how.batch, 1 << 20, [](std::size_t) {});
}

/// A worker's life: founds or joins, steps, leaves.
template <class T>
class worker_loop {
public:
    worker_loop(const setup& how, int worker, int workers, outcome<T>& result)
        : how_(how), worker_(worker), client_(worker, workers, how.servers), net_(widths, 1), result_(result) {}

    /// Returns when the worker has left, or false when it must die.
    bool work(colls::communicator& comm, const dataset& data) {
        if (left_) return true;
        if (where() == presence::not_yet) {
            while (client_.progress(comm) < how_.late_after) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            clock_ = client_.join(comm);
            joined_ = true;
        }
        for (;; ++clock_, ++step_) {
            // example-begin worker
            client_.pull(comm, clock_, net_.parameters());
            record();
            if (client_.status()[0].back() >= how_.pushes || (worker_ == how_.early && step_ == how_.early_after))
                break;
            if (worker_ == how_.dying && step_ == 5) return false;
            compute(net_, data, how_, worker_, step_);
            if (delayed()) std::this_thread::sleep_for(std::chrono::milliseconds(how_.delay));
            client_.push(comm, clock_, net_.gradient());
            // example-end
        }
        client_.leave(comm);
        left_ = true;
        return true;
    }
    void restart(std::int64_t clock) { clock_ = clock; }
    presence where() const {
        if (left_) return presence::gone;
        return worker_ == how_.late && !joined_ ? presence::not_yet : presence::here;
    }

private:
    /// The pushes of the run are applied, and the late worker, if there is one, has made some.
    bool over() {
        const auto& seen = client_.status()[0];
        if (how_.late == colls::none) return seen.back() >= how_.pushes;
        late_seen_ = late_seen_ || seen[static_cast<std::size_t>(how_.late)] != not_here;
        return seen.back() >= how_.pushes && late_seen_ && (worker_ != how_.late || step_ >= 5);
    }
    bool delayed() {
        return worker_ == how_.slow || (how_.random_delays && (worker_ * 7919 + step_ * 104'729) % 64 / 16 == 0);
    }
    void record() {
        std::int64_t behind = 0;
        bool broken = false;
        for (const auto& of_server : client_.status())
            for (std::size_t w = 0; w + 1 < of_server.size(); ++w) {
                if (of_server[w] == not_here) continue;
                behind = std::max(behind, clock_ - of_server[w]);
                broken = broken || std::abs(clock_ - of_server[w]) > how_.staleness;
            }
        ++result_.staleness[std::min(static_cast<std::size_t>(behind), result_.staleness.size() - 1)];
        result_.broken += broken;
    }

    const setup& how_;
    int worker_;
    parameter_client<T> client_;
    network<T> net_;
    outcome<T>& result_;
    std::int64_t clock_ = 0, step_ = 0;
    bool joined_ = false, left_ = false, late_seen_ = false;
};

/// Runs one training. The first ranks are servers. Where a worker dies `comm` becomes the group of the others.
template <class T>
outcome<T> train(colls::communicator& comm, const setup& how, const dataset& data) {
    const int workers = comm.size() - how.servers, worker = comm.rank() - how.servers;
    network<T> start(widths, 1);
    const auto total = start.parameters().size();
    std::vector<bool> founders(static_cast<std::size_t>(workers), true);
    if (how.late != colls::none) founders[static_cast<std::size_t>(how.late)] = false;
    const auto own = worker < 0 ? colls::block_of(total, how.servers, comm.rank()) : colls::buffer_block{};
    parameter_server<T> server(
        start.parameters().subspan(own.offset, own.size), founders, how.staleness, static_cast<T>(how.rate / workers));
    outcome<T> result;
    worker_loop<T> loop(how, worker, workers, result);

    colls::barrier(comm);
    const auto begin = std::chrono::steady_clock::now();
    for (bool done = false; !done;) {
        // example-begin recover
        try {
            if (worker < 0) {
                server.serve(comm);
            } else if (!loop.work(comm, data)) {
                if (how.killed) raise(SIGKILL);
                comm.abort("a worker fails");
                comm = {};
                result.died = true;
                return result;
            }
            colls::barrier(comm);
            done = true;
        } catch (const colls::error& e) {
            if (e.code() != colls::errc::peer_failed) throw;
            comm = comm.shrink();
            std::int32_t servers = worker < 0 ? 1 : 0;
            std::int64_t clock = worker < 0 ? server.next_clock() : 0;
            std::vector<presence> where(static_cast<std::size_t>(workers), presence::gone);
            if (worker >= 0) where[static_cast<std::size_t>(worker)] = loop.where();
            colls::all_reduce(comm, std::span(&servers, 1), colls::sum);
            colls::all_reduce(comm, std::span(&clock, 1), colls::max);
            colls::all_reduce(comm, where, colls::max);
            if (servers < how.servers) throw std::runtime_error("a server died, and its parameters with it");
            server.restart(where, clock);
            loop.restart(clock);
        }
        // example-end
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    result.applied = server.applied();
    std::vector<std::size_t> counts(static_cast<std::size_t>(comm.size()));
    for (int k = 0; k < how.servers; ++k)
        counts[static_cast<std::size_t>(k)] = colls::block_of(total, how.servers, k).size;
    result.parameters.resize(comm.rank() == 0 ? total : 0);
    colls::gather_v(comm, server.shard(), result.parameters, counts, 0);
    colls::all_reduce(comm, result.staleness, colls::sum);
    colls::all_reduce(comm, std::span(&result.broken, 1), colls::sum);
    return result;
}

/// Synchronous training by one rank with the same steps: the pushes of a clock are summed, then applied.
template <class T>
std::vector<T> serial(const std::vector<request>& pushes, const setup& how, int workers, const dataset& data) {
    network<T> net(widths, 1);
    std::map<std::int64_t, std::set<int>> clocks;
    std::map<int, std::int64_t> first;
    for (const request& p : pushes) {
        clocks[p.clock].insert(p.worker);
        first.try_emplace(p.worker, p.clock);
    }
    std::vector<T> sum(net.parameters().size());
    for (const auto& [clock, who] : clocks) {
        std::ranges::fill(sum, T(0));
        for (const int w : who) {
            compute(net, data, how, w, clock - first[w]);
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += net.gradient()[i];
        }
        for (std::size_t i = 0; i < sum.size(); ++i) net.parameters()[i] -= static_cast<T>(how.rate / workers) * sum[i];
    }
    return {net.parameters().begin(), net.parameters().end()};
}

}  // namespace example
