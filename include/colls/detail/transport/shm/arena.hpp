// The memory that the processes of one host share, as each of them sees it.
//
// It is one anonymous file (memfd), mapped by all: flags and small messages of the group of all, and a part for each
// rank from which that rank alone allocates. It has no name, and goes with the last process that has it, however that
// process ends.
// IWYU pragma: private, include <colls/transports/shm.hpp>
#pragma once

#include <colls/detail/group/failure.hpp>
#include <colls/detail/support/descriptor.hpp>
#include <colls/detail/support/environment.hpp>
#include <colls/detail/support/futex.hpp>
#include <colls/detail/support/hash.hpp>
#include <colls/detail/support/machine.hpp>
#include <colls/detail/support/process_copy.hpp>
#include <colls/detail/support/wait_hook.hpp>
#include <colls/detail/transport/shm/staging_probe.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace colls::inline v1::processes::detail {

/// Makes SIGUSR1 ask for a dump, unless the program handles that signal itself. A rank prints the dump while it waits.
inline void dump_on_signal() {
    struct sigaction now{};
    if (sigaction(SIGUSR1, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
    now.sa_handler = [](int) { dumps_wanted.fetch_add(1, std::memory_order_relaxed); };
    now.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &now, nullptr);
}

using single_copies = environment::single_copies;

/// How the ranks of one `run` ended: the first exception stands, but a rank's own exception replaces one that another
/// rank's error caused.
struct outcome {
    std::atomic<std::uint32_t> lock;
    std::uint32_t worth;  // 0 nothing, 1 caused by another rank's error, 2 a rank's own
    int code, rank, peer, round;
    char text[480];
};

/// At the beginning of the shared memory, which is zero at first.
struct arena_head {
    machine figures;
    staging_figures staging;
    outcome how;
    std::atomic<std::uint32_t> arrivals;  ///< of ranks, over all phases of assembling: ranks sleep on it
    std::atomic<std::uint64_t> end;       ///< of the file: what ranks withdraw goes behind it
};

/// The shared memory as one process sees it.
class arena {
public:
    /// One process makes it, for `ranks` processes. `inherited`: by fork, which also works without a file. Throws
    /// colls::error.
    explicit arena(int ranks, bool inherited = false) : arena(ranks, create_file(inherited)) {
        head().figures = measured();
        head().staging = measured_staging();
        head().end.store(bytes_, std::memory_order_relaxed);
    }
    /// Maps that file. Throws colls::error.
    arena(int ranks, descriptor file) : ranks_(ranks), file_(std::move(file)) {
        struct stat status{};
        if (file_) fstat(file_.get(), &status);
        const int shared = MAP_SHARED | MAP_NORESERVE | (file_ ? 0 : MAP_ANONYMOUS);
        int why = 0;
        // A new file has no size yet: it gets as much as the system grants. (A file beyond the limit on their sizes
        // would end the process by SIGXFSZ.)
        rlimit files{RLIM_INFINITY, RLIM_INFINITY};
        getrlimit(RLIMIT_FSIZE, &files);
        // /dev/shm may be small: a page beyond its size would end the process by SIGBUS.
        struct statvfs space{};
        const bool bounded = file_ && fstatvfs(file_.get(), &space) == 0 && space.f_blocks > 0;
        const std::uint64_t room = bounded ? space.f_bavail * space.f_frsize : ~std::uint64_t{0};
        for (std::size_t part = most_part_bytes(); base_ == nullptr && part >= std::size_t{1} << 24; part /= 4) {
            if (status.st_size == 0 && size_for(ranks, part) > std::min<std::uint64_t>(files.rlim_cur, room)) {
                why = room < files.rlim_cur ? ENOSPC : EFBIG;
                continue;
            }
            bytes_ = status.st_size > 0 ? static_cast<std::size_t>(status.st_size) : size_for(ranks, part);
            void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, shared, file_.get(), 0);
            why = errno;
            if (at != MAP_FAILED) base_ = static_cast<std::byte*>(at);
        }
        if (base_ != nullptr &&
            (!file_ || status.st_size > 0 || ftruncate(file_.get(), static_cast<off_t>(bytes_)) == 0))
            return;
        if (base_ != nullptr) why = errno, munmap(base_, bytes_);
        refuse("cannot map", why);
    }
    arena(const arena&) = delete;
    arena& operator=(const arena&) = delete;
    ~arena() { munmap(base_, bytes_); }

    arena_head& head() const { return *reinterpret_cast<arena_head*>(base_); }
    std::byte* base() const { return base_; }
    std::size_t bytes() const { return bytes_; }
    int file() const { return file_.get(); }
    int ranks() const { return ranks_; }
    /// Tells it from the other arenas of a process; set before it has groups. 0: a process has this one alone.
    std::uint64_t number = 0;
    /// Called until this rank has assembled, while it waits for others, where that is set: throws if a rank has failed.
    std::function<void()> check_others;
    group_memory whole() const { return {base_ + head_bytes, ranks_}; }
    /// The port on which the rank listens, before there is a group.
    std::atomic<std::uint32_t>& port(int rank) const { return numbers()[rank]; }
    /// 1 + the status with which the rank's process ends, once the rank's function has returned. The parent of a run
    /// reads it.
    std::atomic<std::uint32_t>& ended(int rank) const { return numbers()[ranks_ + rank]; }

    /// From now on this process is that rank, and allocates from its part.
    void become_rank(int rank) {
        dead_ = std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(ranks_));
        watched_ = std::make_unique<descriptor[]>(static_cast<std::size_t>(ranks_));
        followed_.assign(static_cast<std::size_t>(ranks_), 0);
        rank_ = rank;
        rest_ = {part_of(rank), part_bytes()};
    }
    int rank() const { return rank_; }
    /// The process of that rank, once assembled.
    pid_t process(int rank) const {
        return static_cast<pid_t>(whole().state(rank).process.load(std::memory_order_relaxed));
    }

    /// The program's memory grows from the begin of the part, the library's from its end: they have no page in common.
    enum class use { library, program };
    std::byte* take(std::size_t bytes, use of = use::library) {
        const std::lock_guard lock(mutex_);
        pool& from = of == use::program ? program_ : library_;
        bytes = padded(bytes);
        const auto find = [&] {
            std::size_t best = from.free.size();
            for (std::size_t i = 0; i < from.free.size(); ++i)
                if (from.free[i].bytes >= bytes &&
                    (best == from.free.size() || from.free[i].bytes < from.free[best].bytes))
                    best = i;
            return best;
        };
        std::size_t best = find();
        if (best == from.free.size()) {
            const std::size_t pages = (bytes + page - 1) / page * page;
            if (rest_.bytes < pages) throw std::bad_alloc();
            rest_.bytes -= pages;
            from.add({of == use::program ? rest_.at : rest_.at + rest_.bytes, pages});
            if (of == use::program) rest_.at += pages;
            best = find();
        }
        const std::size_t at = from.free[best].at;
        from.free[best].at += bytes;
        from.free[best].bytes -= bytes;
        if (from.free[best].bytes == 0) from.free.drop(best);
        return base_ + at;
    }
    /// A system that cannot do it (Linux before 5.14) gives each page when it is first used.
    void populate(std::byte* at, std::size_t bytes) {
        constexpr int populate_for_writing = 23;  // MADV_POPULATE_WRITE, which older headers do not have
        const std::size_t first = static_cast<std::size_t>(at - base_) / page * page;
        madvise(base_ + first, static_cast<std::size_t>(at - base_) + bytes - first, populate_for_writing);
    }
    void give(std::byte* p, std::size_t bytes) noexcept {
        const std::lock_guard lock(mutex_);
        const auto at = static_cast<std::size_t>(p - base_);
        pool& to = at < rest_.at ? program_ : library_;
        if (to.pinned) return;
        to.add({at, padded(bytes)});
        // Whole pages are given back to the system.
        const std::size_t first = (static_cast<std::size_t>(p - base_) + page - 1) / page * page;
        const std::size_t last = static_cast<std::size_t>(p - base_) + padded(bytes);
        if (last > first + 64 * page) madvise(base_ + first, (last - first) / page * page, MADV_REMOVE);
    }
    /// Memory of this rank's part is used by others as well, until `over` returns true. It is called whenever memory is
    /// lent.
    void lend(std::byte* at, std::size_t bytes, std::function<bool()> over) {
        look();
        const std::lock_guard lock(lending_);
        std::erase_if(lent_, [&](const loan& l) {
            const bool ended = l.over();
            if (ended) give(l.at, l.bytes);
            return ended;
        });
        lent_.push_back({at, bytes, std::move(over)});
    }
    /// Is the address in this rank's part?
    bool owns(const std::byte* at) const {
        const auto first = base_ + part_of(rank_);
        return at >= first && at < first + part_bytes();
    }
    /// A rank that does not answer may yet write: memory that is given back is not taken again.
    void pin() {
        const std::lock_guard lock(mutex_);
        library_.pinned = program_.pinned = true;
    }
    /// Moves the program's memory to other pages, at the same addresses, which `sharers` follow: a rank that may yet
    /// write writes into pages that are not in use. False: nothing has moved, since the system gives no other pages.
    bool withdraw(const std::vector<int>& sharers) {
        const std::lock_guard lock(mutex_);
        const std::size_t first = part_of(rank_), bytes = rest_.at - first;
        moved_part& own = moved(rank_);
        const std::size_t before = own.at.load(std::memory_order_relaxed),
                          moved_before = own.bytes.load(std::memory_order_relaxed);
        const std::size_t to = head().end.fetch_add(bytes, std::memory_order_relaxed);
        if (stays_ || bytes == 0 || !file_ || !grow_to(to + bytes)) return false;
        std::size_t done = 0;
        while (done < bytes && !stays_) {
            const bool again = done < moved_before;
            const std::size_t from = again ? before + done : first + done,
                              n = std::min(std::size_t{4} << 20, (again ? moved_before : bytes) - done);
            stays_ = !copy_pages(from, to + done, first + done, n) || !map_at(first + done, to + done, n);
            if (stays_) break;
            // What was there goes at once: else all would take its memory twice.
            fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                static_cast<off_t>(n));
            done += n;
        }
        if (done == 0) return false;
        own.bytes.store(done, std::memory_order_relaxed);
        own.at.store(to, std::memory_order_release);
        sharers_ = sharers;
        program_.pinned = stays_;
        return true;
    }
    /// Sees the program's memory of that rank where the rank has withdrawn it to. False: the system refuses.
    bool follow(int rank) {
        const moved_part& m = moved(rank);
        const std::size_t at = m.at.load(std::memory_order_acquire);
        std::size_t& known = followed_[static_cast<std::size_t>(rank)];
        if (at == 0 || at == known || rank == rank_) return true;
        known = at;
        return map_at(part_of(rank), at, m.bytes.load(std::memory_order_relaxed));
    }
    /// Do all these ranks see the program's memory of this rank?
    bool is_seen_by(const std::vector<int>& ranks) const {
        const std::lock_guard lock(mutex_);
        return sharers_.empty() || is_within(ranks, sharers_);
    }
    static bool is_within(const std::vector<int>& ranks, const std::vector<int>& others) {
        return std::all_of(ranks.begin(), ranks.end(),
            [&](int r) { return std::find(others.begin(), others.end(), r) != others.end(); });
    }

    /// Finds out, at most once a millisecond, or 10 where they are many, which ranks' processes have ended.
    void look() {
        const std::unique_lock lock(looking_, std::try_to_lock);
        if (!lock) return;  // another thread of this process looks, for a group of its own
        const double now = seconds_now();
        if (now < looked_at_ + (ranks_ <= 32 ? 1e-3 : 10e-3)) return;
        looked_at_ = now;
        list<pollfd> all;
        list<int> ranks;
        for (int r = 0; r < ranks_; ++r)
            if (watched(r) && !dead(r)) {
                all.push_back({watched(r).get(), POLLIN, 0});
                ranks.push_back(r);
            }
        if (all.empty() || poll(all.data(), all.size(), 0) <= 0) return;
        for (std::size_t i = 0; i < all.size(); ++i)
            if (all[i].revents != 0) mark_dead(ranks[i]);
    }
    bool dead(int rank) const { return dead_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire); }

    static constexpr std::uint32_t phases = 3;  // of assembling
    /// Returns when all ranks have come, and each watches the process of every other. A descriptor of a process is sure
    /// to be that of the rank, and not of a later process with its number, if the rank is alive after it was opened.
    /// `single_copy`: whether this rank wants copies by the kernel; then it tries whether it may make them. Throws
    /// colls::error.
    void assemble(double timeout, single_copies single_copy = single_copies::never) {
        const group_memory m = whole();
        m.state(rank_).process.store(getpid(), std::memory_order_relaxed);
        share(rank_) = own_share();
        expose_probe();
        const double until = seconds_now() + timeout;
        for (std::uint32_t phase = 1; phase <= phases; ++phase) {
            m.state(rank_).arrived.store(phase, std::memory_order_release);
            wait_for_all(phase, until);
            if (phase > 1) continue;
            watch_processes();
            // All others are there: none gets beyond the next phase before this rank comes to it.
            const bool may = single_copy != single_copies::never && may_copy_between_all();
            trial(rank_).result.store(may ? single_copy : single_copies::never, std::memory_order_relaxed);
        }
        bool may = true, asked = false;
        for (int r = 0; r < ranks_; ++r) {
            const single_copies result = trial(r).result.load(std::memory_order_relaxed);
            may = may && result != single_copies::never;
            asked = asked || result == single_copies::always;
        }
        copies_between_ = may;
        copies_always_ = may && asked;
        cores_together cores;
        for (int r = 0; r < ranks_; ++r) cores.add(share(r));
        figures_ = head().figures;
        figures_.cores = cores.cores();
        check_others = nullptr;
    }
    /// Once assembled: those of the machine, with the cores that the ranks have together. All ranks agree on them.
    const machine& figures() const { return figures_; }
    bool crowded() const { return ranks_ > figures_.cores; }
    /// Once assembled: may the kernel copy between the processes of any two ranks, and does a rank want it always? All
    /// ranks agree on it.
    bool copies_between() const { return copies_between_; }
    bool copies_always() const { return copies_always_; }

private:
    descriptor& watched(int r) { return watched_[static_cast<std::size_t>(r)]; }
    // Release: whatever the process wrote is seen by a rank that finds it dead.
    void mark_dead(int r) { dead_[static_cast<std::size_t>(r)].store(true, std::memory_order_release); }
    /// Waits until all ranks have come to that phase. The last one wakes the others.
    void wait_for_all(std::uint32_t phase, double until) {
        const group_memory m = whole();
        std::atomic<std::uint32_t>& arrivals = head().arrivals;
        const auto missing = [&](int r) { return m.state(r).arrived.load(std::memory_order_acquire) < phase; };
        const auto n = static_cast<std::uint32_t>(ranks_);
        if (arrivals.fetch_add(1, std::memory_order_acq_rel) + 1 == phase * n) wake_at(arrivals);
        int r = 0;  // those before it have come
        for (double nap = 1e-3;; nap = nap < 16e-3 ? 2 * nap : nap) {
            const std::uint32_t come = arrivals.load(std::memory_order_acquire);
            while (r < ranks_ && !missing(r)) ++r;
            if (r == ranks_) return;
            look();
            const std::uint32_t broken = m.poison().state.load(std::memory_order_acquire);
            const bool late = seconds_now() > until;
            // A report that is being written (1) is complete in a moment. And the rank may have come, seen all others,
            // gone on and ended since the first look.
            for (int q = r; q < ranks_; ++q)
                if ((broken == 2 || dead(q) || late) && missing(q)) fail_to_assemble(q, broken == 2);
            const bool hooked = call_wait_hook();
            if (check_others) check_others();
            sleep_on(arrivals, come, hooked ? 50e-6 : nap);
        }
    }
    [[noreturn]] void fail_to_assemble(int r, bool reported) const {
        error_text text;
        text << "colls: rank " << rank_ << ": ";
        const poison_state& p = whole().poison();
        if (reported) {
            text << "the group was not formed: " << report_in(p);
            throw error(errc::peer_failed, text.text(), rank_, p.peer == none ? p.rank : p.peer);
        }
        text << "rank " << r << " did not join the group" << (dead(r) ? ": its process has ended" : "");
        throw error(dead(r) ? errc::peer_failed : errc::timeout, text.text(), rank_, r);
    }
    void expose_probe() {
        probe_.value = hash_mix(static_cast<std::uint64_t>(getpid()),
            hash_mix(static_cast<std::uint64_t>(rank_), static_cast<std::uint64_t>(seconds_now() * 1e9)));
        trial(rank_).at.store(reinterpret_cast<std::uintptr_t>(&probe_), std::memory_order_relaxed);
        trial(rank_).value.store(probe_.value, std::memory_order_relaxed);
    }
    bool may_copy_between_all() const {
        for (int r = 0; r < ranks_; ++r) {
            const copy_trial& t = trial(r);
            const std::uint64_t at = t.at.load(std::memory_order_relaxed);
            if (r != rank_ && !may_copy(process(r), at, t.value.load(std::memory_order_relaxed))) return false;
        }
        return true;
    }
    void watch_processes() {
        for (int r = 0; r < ranks_; ++r) {
            if (r == rank_) continue;
            watched(r) = opened([&] { return static_cast<int>(syscall(SYS_pidfd_open, process(r), 0)); });
            if (!watched(r) && errno == ESRCH) mark_dead(r);
        }
    }

    /// One for each rank: where its copy_probe is and what value it has, and, if the rank reached those of all others,
    /// what it wants.
    struct copy_trial {
        std::atomic<std::uint64_t> at, value;
        std::atomic<single_copies> result;
    };
    /// Where in the file a rank's memory of the program is since the rank has withdrawn it, and how much; 0: it has
    /// not.
    struct moved_part {
        std::atomic<std::uint64_t> at, bytes;
    };
    struct extent {
        std::size_t at, bytes;
    };
    struct pool {
        list<extent> free;
        bool pinned = false;  // what is given back is not taken again
        void add(extent back) {
            for (std::size_t i = 0; i < free.size();)
                if (free[i].at + free[i].bytes == back.at || back.at + back.bytes == free[i].at) {
                    back = {free[i].at < back.at ? free[i].at : back.at, free[i].bytes + back.bytes};
                    free.drop(i);
                } else {
                    ++i;
                }
            free.push_back(back);
        }
    };
    /// The file grows to that size, also while other processes make it grow. False: a limit, or the system, is against
    /// it.
    bool grow_to(std::size_t bytes) const {
        rlimit files{RLIM_INFINITY, RLIM_INFINITY};
        getrlimit(RLIMIT_FSIZE, &files);
        return bytes <= files.rlim_cur && fallocate(file_.get(), 0, static_cast<off_t>(bytes - page), page) == 0;
    }
    /// Copies what is at `from` in the file, and at `where` in memory, to another place of the file. Holes stay holes.
    bool copy_pages(std::size_t from, std::size_t to, std::size_t where, std::size_t bytes) const {
        const auto end = static_cast<off_t>(from + bytes);
        for (auto next = static_cast<off_t>(from);;) {
            const off_t data = lseek(file_.get(), next, SEEK_DATA);
            if (data < 0 || data >= end) return data >= 0 || errno == ENXIO;
            const off_t hole = std::min(lseek(file_.get(), data, SEEK_HOLE), end);
            for (next = data; next < hole;) {
                const auto skip = static_cast<std::size_t>(next) - from;
                const ssize_t n = pwrite(file_.get(), base_ + where + skip, static_cast<std::size_t>(hole - next),
                    static_cast<off_t>(to + skip));
                if (n < 0 && errno == EINTR) continue;
                if (n <= 0) return false;
                next += n;
            }
        }
    }
    bool map_at(std::size_t where, std::size_t in_file, std::size_t bytes) const {
        return mmap(base_ + where, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file_.get(),
                   static_cast<off_t>(in_file)) != MAP_FAILED;
    }
    struct loan {
        std::byte* at;
        std::size_t bytes;
        std::function<bool()> over;
    };
    static constexpr std::size_t page = 4096, head_bytes = 4096;
    static_assert(sizeof(arena_head) <= head_bytes);
    std::atomic<std::uint32_t>* numbers() const {
        return reinterpret_cast<std::atomic<std::uint32_t>*>(base_ + head_bytes + group_memory::bytes(ranks_));
    }
    copy_trial& trial(int rank) const {
        return reinterpret_cast<copy_trial*>(numbers() + 2 * static_cast<std::ptrdiff_t>(ranks_))[rank];
    }
    core_share& share(int rank) const { return reinterpret_cast<core_share*>(&trial(ranks_))[rank]; }
    moved_part& moved(int rank) const { return reinterpret_cast<moved_part*>(&share(ranks_))[rank]; }
    static constexpr std::size_t padded(std::size_t bytes) { return bytes == 0 ? 128 : (bytes + 127) / 128 * 128; }
    static std::size_t control_bytes(int ranks) {
        return (group_memory::bytes(ranks) +
                   (8 + sizeof(copy_trial) + sizeof(core_share) + sizeof(moved_part)) *
                       static_cast<std::size_t>(ranks) +
                   page - 1) /
               page * page;
    }
    /// A rank may allocate as much as the machine has: a page takes memory only once it is used.
    static std::size_t most_part_bytes() {
        static const std::size_t all = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * page;
        constexpr std::size_t least = std::size_t{1} << 30, most = std::size_t{1} << 36;
        return all < least ? least : all > most ? most : all;
    }
    static std::size_t size_for(int ranks, std::size_t part) {
        return head_bytes + control_bytes(ranks) + part * static_cast<std::size_t>(ranks);
    }
    std::size_t part_bytes() const {
        return (bytes_ - head_bytes - control_bytes(ranks_)) / static_cast<std::size_t>(ranks_) / page * page;
    }
    std::size_t part_of(int rank) const {
        return head_bytes + control_bytes(ranks_) + part_bytes() * static_cast<std::size_t>(rank);
    }
    [[noreturn]] static void refuse(const char* what, int why) {
        error_text text;
        text << "colls: " << what << " shared memory: " << system_text(why);
        if (why == EFBIG) text << ": raise the limit on the size of files (ulimit -f)";
        if (is_forbidden(why))
            text << ", neither by memfd_create nor in /dev/shm; with COLLS_TRANSPORT=tcp ranks pass messages instead";
        if (why == ENOMEM) text << "; is there a limit on address space (ulimit -v)?";
        throw error(errc::unsupported, text.text());
    }
    static descriptor create_file(bool inherited) {
        descriptor file = opened([] { return memfd_create("colls", MFD_CLOEXEC); });
        const int why = errno;
        if (file || (inherited && is_forbidden(why))) return file;
        if (is_forbidden(why))  // a sandbox, or an old kernel
            file = opened([] { return ::open("/dev/shm", O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600); });
        if (!file) refuse("cannot make", why);
        return file;
    }

    const int ranks_;
    const descriptor file_;
    std::size_t bytes_ = 0;
    std::byte* base_ = nullptr;
    int rank_ = none;
    mutable std::mutex mutex_;  // of the allocator: any thread may give memory back
    std::mutex lending_;        // of lent_
    std::mutex looking_;        // of looked_at_: threads of a process may each have a group here
    pool library_, program_;
    extent rest_{};                      // between the program's and the library's memory
    bool stays_ = false;                 // the program's memory: the system has refused to move it
    std::vector<int> sharers_;           // of the program's memory, once it was withdrawn
    std::vector<std::size_t> followed_;  // of each rank, as moved_part::at
    std::vector<loan> lent_;
    std::unique_ptr<std::atomic<bool>[]> dead_;  // by rank
    std::unique_ptr<descriptor[]> watched_;      // the ranks' processes
    double looked_at_ = 0;
    copy_probe probe_;
    bool copies_between_ = false, copies_always_ = false;
    machine figures_;
};

}  // namespace colls::inline v1::processes::detail
