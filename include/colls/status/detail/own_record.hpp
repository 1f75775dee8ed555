// This process's record: made with its first group, and written by its calls, where they are (rank_status).
// IWYU pragma: private
#pragma once

#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/support/descriptor.hpp>
#include <colls/detail/support/process_lock.hpp>
#include <colls/status/detail/record.hpp>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <new>

namespace colls::inline v1::detail {
namespace status {

class record {
public:
    static constexpr std::size_t bytes = record_head::bytes + record_head::most * sizeof(rank_status);

    /// This process's: a forked child begins one of its own.
    static record& of_process() {
        const process_lock lock;
        static record* own = nullptr;  // never destroyed: threads may outlive main
        if (own == nullptr || own->born_ != count_forks()) {
            if (own != nullptr) own->file_.close();
            own = new record;
        }
        return *own;
    }
    /// Null: there is no file, or no place in it.
    rank_status* take() {
        const process_lock lock;
        if (head_ == nullptr) return nullptr;
        if (!free_.empty()) {
            rank_status& p = place(free_.back());
            free_.pop_back();
            return &p;
        }
        const std::uint32_t at = head_->used.load(std::memory_order_relaxed);
        if (at == record_head::most) return nullptr;
        head_->used.store(at + 1, std::memory_order_release);
        return &place(at);
    }
    /// `p` shows nothing any more, and is of this process.
    void give(rank_status& p) {
        const process_lock lock;
        free_.push_back(static_cast<std::uint32_t>(&p - &place(0)));
    }
    bool has(const rank_status* p) const {
        return head_ != nullptr && p >= &place(0) && p < &place(0) + record_head::most;
    }

private:
    record() {
        rlimit files{};  // beyond it the process would be ended by SIGXFSZ
        if (getrlimit(RLIMIT_FSIZE, &files) == 0 && files.rlim_cur < bytes) return;
        file_ = opened([] { return memfd_create(file_name, MFD_CLOEXEC); });
        void* const at = file_ && ftruncate(file_.get(), static_cast<off_t>(bytes)) == 0
                             ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_.get(), 0)
                             : MAP_FAILED;
        if (at == MAP_FAILED) {
            file_.close();
            return;
        }
        head_ = new (at) record_head{};
        head_->form = format;
        head_->version = library;
        head_->place_bytes = sizeof(rank_status);
        head_->process = getpid();
        std::memcpy(head_->magic, record_head::begin, sizeof head_->magic);
    }
    rank_status& place(std::uint32_t i) const {
        return reinterpret_cast<rank_status*>(reinterpret_cast<std::byte*>(head_) + record_head::bytes)[i];
    }

    const unsigned born_ = count_forks();
    descriptor file_;
    record_head* head_ = nullptr;  // null: there is none
    list<std::uint32_t> free_;
};

}  // namespace status

COLLS_INLINE status_place take_status() {
    rank_status* const p = status::record::of_process().take();
    if (p == nullptr) return {new rank_status{}, [](rank_status* own) { delete own; }};
    const std::uint64_t uses = p->uses;
    std::memset(static_cast<void*>(p), 0, sizeof *p);
    p->uses = uses;
    return {p, [](rank_status* own) {
                // In a forked child it is the parent's.
                if (status::record& r = status::record::of_process(); r.has(own)) {
                    own->shown.store(0, std::memory_order_relaxed);
                    std::atomic_thread_fence(std::memory_order_release);  // before its next use
                    r.give(*own);
                }
            }};
}

}  // namespace colls::inline v1::detail
