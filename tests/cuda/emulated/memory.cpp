// The table of live allocations, and the program's variables.
#include "memory.hpp"

#include "block.hpp"

#include <sys/mman.h>
#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

namespace emulated {
namespace {

struct entry {
    allocation a;
    std::vector<u64> copies;  ///< of multicast memory
    std::map<int, bool> access;
};
struct table {
    std::mutex lock;
    std::map<u64, std::unique_ptr<entry>> live;
    std::map<u64, allocation> freed;  ///< by address; the last of each
    bool (*may_access)(int, const allocation&) = nullptr;
    std::atomic<u64> changes{1};
    std::vector<std::unique_ptr<entry>> retired;
};
table& the_table() {
    static table& t = *new table;  // outlives all other static objects
    return t;
}

entry* find(table& t, u64 address) {
    auto i = t.live.upper_bound(address);
    if (i == t.live.begin()) return nullptr;
    --i;
    return i->second->a.contains(address, 1) ? i->second.get() : nullptr;
}
u64 number_of(const void* p) { return reinterpret_cast<u64>(p); }

std::size_t cell_bytes(const allocation& a) {
    return ((a.address + a.bytes + 15) / 16 - a.address / 16) * sizeof(cell);
}

void add(const void* address, std::size_t bytes, int device, memory_kind kind, std::vector<u64> copies) {
    table& t = the_table();
    auto e = std::make_unique<entry>();
    e->a = {number_of(address), bytes, device, kind};
    e->copies = std::move(copies);
    if (machine().weak && kind != memory_kind::multicast && bytes > 0) {
        void* cells =
            mmap(nullptr, cell_bytes(e->a), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (cells != MAP_FAILED) e->a.cells = static_cast<cell*>(cells);
    }
    const std::lock_guard hold(t.lock);
    const auto next = t.live.lower_bound(number_of(address));
    if (find(t, number_of(address)) || (next != t.live.end() && next->first - number_of(address) < bytes))
        throw std::invalid_argument(
            "emulated: this memory is in an allocation already: " + describe(number_of(address)));
    t.live[number_of(address)] = std::move(e);
    ++t.changes;
}

}  // namespace

void add_allocation(const void* address, std::size_t bytes, int device, memory_kind kind) {
    add(address, bytes, device, kind, {});
}

void add_multicast(const void* address, std::size_t bytes, std::span<void* const> copies) {
    std::vector<u64> at;
    for (void* c : copies) at.push_back(number_of(c));
    add(address, bytes, -1, memory_kind::multicast, std::move(at));
}

bool remove_allocation(const void* address) {
    table& t = the_table();
    const std::lock_guard hold(t.lock);
    const auto i = t.live.find(number_of(address));
    if (i == t.live.end()) return false;
    allocation& a = i->second->a;
    t.freed[a.address] = a;
    if (a.cells) munmap(a.cells, cell_bytes(a));
    a.cells = nullptr;
    a.bytes = 0;  // a pointer to it that the machine keeps until it sees the change matches nothing
    t.retired.push_back(std::move(i->second));
    t.live.erase(i);
    ++t.changes;
    return true;
}

void share_allocation(const void* address) {
    table& t = the_table();
    const std::lock_guard hold(t.lock);
    if (entry* e = find(t, number_of(address))) e->a.shared_out = true;
}

std::optional<allocation> find_allocation(const void* address) {
    table& t = the_table();
    const std::lock_guard hold(t.lock);
    if (const entry* e = find(t, number_of(address))) return e->a;
    return std::nullopt;
}

bool is_freed(const void* address) {
    table& t = the_table();
    const std::lock_guard hold(t.lock);
    if (find(t, number_of(address))) return false;
    auto i = t.freed.upper_bound(number_of(address));
    return i != t.freed.begin() && (--i)->second.contains(number_of(address), 1);
}

void unmap_for_good(void* address, std::size_t bytes) {
    mmap(address, bytes, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

void set_access_rule(bool (*rule)(int, const allocation&)) {
    table& t = the_table();
    const std::lock_guard hold(t.lock);
    t.may_access = rule;
    for (auto& [at, e] : t.live) e->access.clear();
    ++t.changes;
}
void forget_access() {
    table& t = the_table();
    const std::lock_guard hold(t.lock);
    for (auto& [at, e] : t.live) e->access.clear();
    ++t.changes;
}

/// The live allocation of all these bytes, or null. Only for the thread that runs kernels: it remembers the last ones.
const allocation* lookup(u64 address, u32 bytes) {
    struct remembered {
        u64 page = ~u64{0};
        const allocation* a = nullptr;
    };
    static std::array<remembered, 1024> cache;
    static u64 seen = 0;
    table& t = the_table();
    if (const u64 now = t.changes.load(std::memory_order_acquire); now != seen) {
        cache.fill({});
        seen = now;
    }
    remembered& r = cache[address >> 12 & 1023];
    if (r.page == address >> 12 && r.a->contains(address, bytes)) return r.a;
    const std::lock_guard hold(t.lock);
    entry* e = find(t, address);
    if (!e || !e->a.contains(address, bytes)) return nullptr;
    r = {address >> 12, &e->a};
    return &e->a;
}

bool may_access(int device, const allocation& a) {
    table& t = the_table();
    if (a.device == device || !t.may_access) return true;
    static std::map<std::pair<int, const allocation*>, bool> answers;
    static u64 seen = 0;
    if (const u64 now = t.changes.load(std::memory_order_acquire); now != seen) {
        answers.clear();
        seen = now;
    }
    const auto [i, is_new] = answers.try_emplace({device, &a}, false);
    if (is_new) i->second = t.may_access(device, a);
    return i->second;
}

std::vector<u64> multicast_copies(u64 address, u32 bytes) {
    table& t = the_table();
    const std::lock_guard hold(t.lock);
    const entry* e = find(t, address);
    std::vector<u64> at;
    if (!e || e->a.kind != memory_kind::multicast || !e->a.contains(address, bytes)) return at;
    for (const u64 c : e->copies) at.push_back(c + (address - e->a.address));
    return at;
}

/// What is at or near `address`: for messages. The table may be locked.
std::string describe(u64 address) {
    table& t = the_table();
    const auto text = [](const allocation& a) {
        static const char* const kinds[] = {"device", "managed", "pinned host", "another process's", "multicast"};
        char line[120];
        std::snprintf(line, sizeof line, "%zu bytes of %s memory at %#lx (device %d)", a.bytes,
            kinds[static_cast<int>(a.kind)], static_cast<unsigned long>(a.address), a.device);
        return std::string(line);
    };
    auto f = t.freed.upper_bound(address);
    if (f != t.freed.begin() && (--f)->second.contains(address, 1))
        return "use after free: it was in " + text(f->second);
    const auto after = t.live.upper_bound(address);
    std::string near = "out of bounds: no allocation is near";
    if (after != t.live.end())
        near = "out of bounds: " + std::to_string(after->first - address) + " bytes before " + text(after->second->a);
    if (after != t.live.begin()) {
        const allocation& before = std::prev(after)->second->a;
        const u64 past = address - before.address;
        if (after == t.live.end() || past - before.bytes < after->first - address)
            near = "out of bounds: at byte " + std::to_string(past) + " of " + text(before);
    }
    return near;
}

// ---- variables

namespace {
struct variables {
    std::mutex lock;
    std::map<std::string, variable, std::less<>> all;
    std::map<std::pair<std::string, int>, void*> on_device;
};
variables& the_variables() {
    static variables& v = *new variables;
    return v;
}
}  // namespace

void add_variable(const variable& v) { the_variables().all[v.name] = v; }

void* find_variable(std::string_view name, int device, std::size_t* bytes) {
    variables& v = the_variables();
    const std::lock_guard hold(v.lock);
    const auto i = v.all.find(name);
    if (i == v.all.end()) return nullptr;
    if (bytes) *bytes = i->second.bytes;
    void*& at = v.on_device[{std::string(name), device}];
    if (!at) {
        const std::size_t room = (i->second.bytes + 255) / 256 * 256;
        at = std::aligned_alloc(256, std::max<std::size_t>(room, 256));
        if (i->second.initial)
            std::memcpy(at, i->second.initial, i->second.bytes);
        else
            std::memset(at, 0, i->second.bytes);
        add_allocation(at, i->second.bytes, device, memory_kind::device);
    }
    return at;
}

}  // namespace emulated
