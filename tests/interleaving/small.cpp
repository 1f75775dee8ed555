// Compiled with instrumentation: see scheduler.hpp.
#include "small.hpp"

#include <atomic>
#include <cstring>
#include <stdexcept>

namespace interleaving {
namespace {

struct state {
    std::atomic<std::uint32_t> flags[4];
    std::uint64_t data;
};

void raise(std::atomic<std::uint32_t>& flag) { flag.store(1, std::memory_order_release); }
void wait(const std::atomic<std::uint32_t>& flag, std::memory_order order = std::memory_order_acquire) {
    while (flag.load(order) == 0) {}
}
void expect(bool right) {
    if (!right) fail("wrong");
}

class small final : public program {
public:
    explicit small(small_program which) : program(2), which_(which) {}
    void begin() override { std::memset(memory().at, 0, sizeof(state)); }
    void run(int rank) override {
        state& s = *reinterpret_cast<state*>(memory().at);
        auto& flags = s.flags;
        switch (which_) {
            case small_program::handed_over:
            case small_program::wait_relaxed:
                if (rank == 0) {
                    s.data = 7;
                    raise(flags[0]);
                } else {
                    wait(flags[0],
                        which_ == small_program::wait_relaxed ? std::memory_order_relaxed : std::memory_order_acquire);
                    expect(s.data == 7);
                }
                return;
            case small_program::flag_first:
                if (rank == 0) {
                    raise(flags[0]);
                    s.data = 7;
                } else {
                    wait(flags[0]);
                    expect(s.data == 7 || s.data == 0);  // the race is what is found
                }
                return;
            case small_program::flag_relaxed:
                if (rank == 0) {
                    s.data = 7;
                    flags[0].store(1, std::memory_order_relaxed);
                } else {
                    wait(flags[0]);
                    expect(s.data == 7);
                }
                return;
            case small_program::fenced:
                if (rank == 0) {
                    s.data = 7;
                    std::atomic_thread_fence(std::memory_order_release);
                    flags[0].store(1, std::memory_order_relaxed);
                } else {
                    wait(flags[0], std::memory_order_relaxed);
                    std::atomic_thread_fence(std::memory_order_acquire);
                    expect(s.data == 7);
                }
                return;
            case small_program::lost_update:
            case small_program::added:
                if (which_ == small_program::added)
                    flags[0].fetch_add(1);
                else
                    flags[0].store(flags[0].load() + 1);
                raise(flags[1 + rank]);
                wait(flags[2 - rank]);
                expect(flags[0].load() == 2);
                return;
            case small_program::crossed:
                wait(flags[1 - rank]);
                raise(flags[rank]);
                return;
            case small_program::late_by_two:
                // Rank 1 must come between the first and the second step of rank 0, and rank 0 between two of its own.
                if (rank == 0) {
                    flags[0].store(1);
                    flags[1].store(1);
                    flags[0].store(2);
                } else {
                    const std::uint32_t second = flags[1].load(), first = flags[0].load();
                    expect(!(second == 0 && first == 2));
                }
                return;
            case small_program::polls_two:
                if (rank == 0) {
                    raise(flags[0]);
                    raise(flags[1]);
                } else {
                    while (flags[0].load() == 0 || flags[1].load() == 0) {}
                }
                return;
            case small_program::throws_while_held:
                try {
                    throw std::runtime_error(std::to_string(rank));
                } catch (const std::exception&) {
                    raise(flags[rank]);
                    wait(flags[1 - rank]);
                    try {
                        throw;
                    } catch (const std::exception& held) {
                        expect(held.what() == std::to_string(rank));
                    }
                }
                return;
        }
    }

private:
    const small_program which_;
};

}  // namespace

outcome explore_small(small_program which, int delays) {
    small p(which);
    return explore(p, delays);
}

}  // namespace interleaving
