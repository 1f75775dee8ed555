// How data move best between two processes of this machine: measured with two threads on two of its cores.
// IWYU pragma: private, include <colls/transports/shm.hpp>
#pragma once

#include <colls/detail/support/copy.hpp>
#include <colls/detail/support/machine.hpp>
#include <colls/detail/support/process_copy.hpp>
#include <colls/detail/support/process_lock.hpp>

#include <exception>
#include <memory>

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
        int good = 0;
        while (good < turns && !threads_.late())
            good += seconds_of([&] {
                for (const copying how : {plain, streamed, kernel}) exchange(how);
            }) < undisturbed;
        if (good < 3) return {};
        const double staged = least_[plain] < least_[streamed] ? least_[plain] : least_[streamed];
        return {least_[streamed] < 0.9 * least_[plain], least_[kernel] < 0.95 * staged};
    }

private:
    enum copying { plain, streamed, kernel };
    static constexpr std::size_t bytes = std::size_t{64} << 10;
    static constexpr int turns = 10;
    static constexpr double undisturbed = 1e-3;  // seconds

    struct side {
        std::unique_ptr<unsigned char[]> in{new unsigned char[bytes]()}, staged{new unsigned char[bytes]()},
            out{new unsigned char[bytes]()};
    };
    side sides_[2];
    double least_[3] = {1, 1, 1};  // seconds: more than any exchange takes
    two_threads threads_{};

    /// Both threads call f, with their own side and the other's.
    template <class F>
    void both(F f) {
        threads_.together([&] { f(sides_[1], sides_[0]); }, [&] { f(sides_[0], sides_[1]); });
    }
    void exchange(copying how) {
        // As between two calls: the input is written, the output read.
        both([](side& own, side&) {
            for (std::size_t i = 0; i < bytes; ++i) own.in[i] = static_cast<unsigned char>(i + own.out[i]);
        });
        least(least_[how], seconds_of([&] {
            if (how == kernel)
                return both(
                    [](side& own, side& peer) { copy_from_process(getpid(), own.out.get(), peer.in.get(), bytes); });
            both([how](side& own, side&) {
                how == streamed ? stream_bytes(own.staged.get(), own.in.get(), bytes)
                                : copy_bytes(own.staged.get(), own.in.get(), bytes);
            });
            both([](side& own, side& peer) { copy_bytes(own.out.get(), peer.staged.get(), bytes); });
        }));
    }
};

/// The figures of this machine, measured at the first call in a process, which takes a millisecond or two.
inline const staging_figures& measured_staging() {
    const process_lock lock;
    static const staging_figures found = [] {
        if (!second_core()) return staging_figures{};
        try {
            return staging_probe().run();
        } catch (const std::exception&) {  // no second thread, or no memory
            return staging_figures{};
        }
    }();
    return found;
}

}  // namespace colls::inline v1::processes::detail
