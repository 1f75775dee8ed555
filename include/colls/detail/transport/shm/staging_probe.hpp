// How data move best between two processes of this machine: measured with two threads on two of its cores.
// IWYU pragma: private, include <colls/transports/shm.hpp>
#pragma once

#include <colls/detail/support/copy.hpp>
#include <colls/detail/support/machine.hpp>
#include <colls/detail/support/process_copy.hpp>

#include <exception>
#include <memory>
#include <thread>

namespace colls::inline v1::processes::detail {

using namespace colls::detail;

/// Usual values where nothing can be measured.
struct staging_figures {
    bool streams = false;     ///< staged data are stored past the caches
    bool single_copy = true;  ///< a copy by the kernel takes less time than staging, for data that are not reduced
};

/// Two threads exchange buffers, in each of the three ways in turn: a copy to memory that both have mapped and one out
/// of it, by plain stores or past the caches; or a single copy by the kernel. The threads of one process have the same
/// caches between them as two processes, and the kernel copies between them just as well.
class staging_probe {
public:
    staging_figures run() {
        if (!second_core()) return {};
        std::thread other([this, here = sched_getcpu()] {
            stay_off(here);
            take_turns(1);
        });
        take_turns(0);
        other.join();
        if (good_ < 3) return {};
        const double staged = least_[plain] < least_[streamed] ? least_[plain] : least_[streamed];
        return {least_[streamed] < 0.9 * least_[plain], least_[kernel] < 0.95 * staged};
    }

private:
    enum copying { plain, streamed, kernel };
    static constexpr std::size_t bytes = std::size_t{64} << 10;
    static constexpr int turns = 10;
    // Seconds. Where other programs use the cores a turn may take milliseconds.
    static constexpr double undisturbed = 1e-3, most = 60e-3;

    struct alignas(128) side {
        std::atomic<int> at{0};
        std::unique_ptr<unsigned char[]> in{new unsigned char[bytes]()}, staged{new unsigned char[bytes]()},
            out{new unsigned char[bytes]()};
    };
    side sides_[2];
    int good_ = 0;                 // undisturbed turns
    bool over_ = false;            // written by side 0 before the two meet
    double least_[3] = {1, 1, 1};  // seconds: more than any exchange takes

    void meet(int me) {
        const int here = sides_[me].at.load(std::memory_order_relaxed) + 1;
        sides_[me].at.store(here, std::memory_order_release);
        for (int spins = 0; sides_[1 - me].at.load(std::memory_order_acquire) < here; ++spins)
            if (spins > 10'000) sched_yield();
    }
    void exchange(int me, copying how) {
        side &own = sides_[me], &peer = sides_[1 - me];
        if (how == kernel) {
            copy_from_process(getpid(), own.out.get(), peer.in.get(), bytes);
            return;
        }
        if (how == streamed)
            stream_bytes(own.staged.get(), own.in.get(), bytes);
        else
            copy_bytes(own.staged.get(), own.in.get(), bytes);
        meet(me);
        copy_bytes(own.out.get(), peer.staged.get(), bytes);
    }
    void take_turns(int me) {
        const double begun = seconds_now();
        double at = 0;
        for (;;) {
            if (me == 0) {
                const double now = seconds_now();
                good_ += now - at < undisturbed;
                at = now;
                over_ = good_ == turns || now - begun > most;
            }
            meet(me);
            if (over_) return;
            for (const copying how : {plain, streamed, kernel}) {
                // As between two calls: the input is written, the output read.
                for (std::size_t i = 0; i < bytes; ++i)
                    sides_[me].in[i] = static_cast<unsigned char>(i + sides_[me].out[i]);
                meet(me);
                const double from = seconds_now();
                exchange(me, how);
                meet(me);
                if (me != 0) continue;
                const double took = seconds_now() - from;
                if (took < least_[how]) least_[how] = took;
            }
        }
    }
};

/// The figures of this machine, measured at the first call in a process, which takes a millisecond or two.
inline const staging_figures& measured_staging() {
    static const staging_figures found = [] {
        try {
            return std::make_unique<staging_probe>()->run();
        } catch (const std::exception&) {  // no second thread, or no memory
            return staging_figures{};
        }
    }();
    return found;
}

}  // namespace colls::inline v1::processes::detail
