// Groups of threads.
// IWYU pragma: private, include <colls/transports/threads.hpp>
#pragma once

#include <colls/detail/support/machine.hpp>
#include <colls/extend/memory_group.hpp>

#include <sys/mman.h>
#include <atomic>
#include <memory>
#include <new>

namespace colls::inline v1::threads {

namespace detail {

using extend::memory_member;

/// The memory of one group, shared by its communicators; the last of them frees it.
class threads_group : public extend::memory_group {
public:
    threads_group(int n, bool crowded) : n_(n), crowded_(crowded), bytes_(extend::control_bytes(n)) {
        // Fresh pages are zero, and cost nothing until they are used.
        void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
        base_ = static_cast<std::byte*>(at);
    }
    ~threads_group() override { munmap(base_, bytes_); }

    static memory_member member_of(const std::shared_ptr<threads_group>& g) {
        return {.group = g,
            .control = g->base_,
            .crowded = g->crowded_,
            .number = reinterpret_cast<std::uintptr_t>(g->base_)};
    }
    [[gnu::cold]] static communicator join_whole(const std::shared_ptr<threads_group>& g, int rank) {
        return extend::join(member_of(g), rank, g->n_);
    }

    // A place is a reference to the group, kept until all members have taken theirs.
    std::uint64_t create(int n) override {
        return reinterpret_cast<std::uintptr_t>(new new_group{{n}, std::make_shared<threads_group>(n, crowded_)});
    }
    memory_member join(const extend::formation& f) override {
        auto* const made = reinterpret_cast<new_group*>(f.place);
        const memory_member m = member_of(made->made);
        if (made->missing.fetch_sub(1, std::memory_order_acq_rel) == 1) delete made;
        return m;
    }
    void discard(std::uint64_t place, int) override { delete reinterpret_cast<new_group*>(place); }

    std::byte* allocate(std::size_t bytes) override { return static_cast<std::byte*>(operator new(bytes, align)); }
    void deallocate(std::byte* at, std::size_t) noexcept override { operator delete(at, align); }
    const extend::machine& figures() const override { return colls::detail::measured(); }

private:
    static constexpr std::align_val_t align{128};
    struct new_group {
        std::atomic<int> missing;
        std::shared_ptr<threads_group> made;
    };
    const int n_;
    const bool crowded_;
    const std::size_t bytes_;
    std::byte* base_ = nullptr;
};

}  // namespace detail
}  // namespace colls::inline v1::threads
