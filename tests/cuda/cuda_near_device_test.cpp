// What a group of GPUs does on the host: threads go to the NUMA node of a GPU, and back; memory is given out and taken
// back; the memory of kernels and their proxy has its parts side by side; a proxy passes on what it hears of failures;
// schedules that no kernel can run are refused.
#include "catch.hpp"

#include "verbs/made_tree.hpp"

#include <colls/cuda/detail/far/domains.hpp>
#include <colls/cuda/detail/far/near_device.hpp>
#include <colls/cuda/detail/far/proxy.hpp>
#include <colls/cuda/detail/group/device_arena.hpp>
#include <colls/cuda/detail/kernel/far_memory.hpp>
#include <colls/cuda/detail/kernel/partition.hpp>
#include <colls/cuda/detail/kernel/slot_map.hpp>
#include <colls/schedules.hpp>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cuda = colls::cuda::detail;
using colls::cuda::detail::near_device;
using colls::detail::rdma::cores_of_list;

namespace {

std::vector<int> numbers(const cpu_set_t& set) {
    std::vector<int> all;
    for (int c = 0; c < CPU_SETSIZE; ++c)
        if (CPU_ISSET(static_cast<std::size_t>(c), &set)) all.push_back(c);
    return all;
}
std::vector<int> own_cores() {
    cpu_set_t set;
    REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
    return numbers(set);
}
std::vector<int> listed(const char* text) { return numbers(cores_of_list(std::istringstream(text))); }

}  // namespace

TEST_CASE("domains of ranks that reach each other's memory") {
    using colls::cuda::detail::domains_of;
    using all = std::vector<int>;
    CHECK(domains_of(4, [](int, int) { return true; }) == all{0, 0, 0, 0});
    CHECK(domains_of(3, [](int, int) { return false; }) == all{0, 1, 2});
    CHECK(domains_of(5, [](int a, int b) { return a % 2 == b % 2; }) == all{0, 1, 0, 1, 0});
    // 1 reaches 0 and 2, which do not reach each other: 2 is alone, and 3, which reaches all but 1, joins it.
    CHECK(domains_of(4, [](int a, int b) { return a + b != 2 && a + b != 4; }) == all{0, 0, 2, 2});
    // A domain has at most as many ranks as a kernel has places for.
    const all many = domains_of(150, [](int, int) { return true; });
    CHECK(std::count(many.begin(), many.end(), 0) == 72);
    CHECK(std::count(many.begin(), many.end(), 72) == 72);
    CHECK(many[149] == 144);
}

TEST_CASE("long division by digits of 16 bits") {
    for (const std::uint64_t count : {std::uint64_t{0xffffffff}, std::uint64_t{1} << 32,
             std::uint64_t{0x123456789abcdef}, ~std::uint64_t{0}, ~std::uint64_t{0} << 16})
        for (const std::uint64_t parts : {1u, 2u, 3u, 255u, 1024u, 65535u}) {
            const cuda::quotient q = cuda::divided(count, parts);
            INFO(count << " by " << parts);
            CHECK((q.whole == count / parts && q.rest == count % parts));
        }
}

TEST_CASE("lists of cores") {
    CHECK(listed("0-2,5,8-9\n") == std::vector<int>{0, 1, 2, 5, 8, 9});
    CHECK(listed("7\n") == std::vector<int>{7});
    CHECK(listed("").empty());
    CHECK(listed("none").empty());
    CHECK(listed("1022-5000").back() == 1023);
    CHECK(listed("3-1,4") == std::vector<int>{4});
}

TEST_CASE("a thread near a device, the threads that it starts, and its way back") {
    const std::vector<int> before = own_cores();
    const int last = before.back();
    made_sysfs::made_tree t;
    t.gpu("pci0000:15/0000:15:01.0", "0000:1b:00.0", 1);
    t.gpu("pci0000:15/0000:15:01.0", "0000:1c:00.0", 2);
    t.gpu("pci0000:15/0000:15:01.0", "0000:1d:00.0", 3);
    t.gpu("pci0000:15/0000:15:01.0", "0000:1e:00.0", -1);
    t.node(0, "0-1023");
    t.node(1, std::to_string(last) + ",1000-1023\n");
    t.node(2, std::to_string(last + 1) + "\n");
    for (const char* const address : {"0000:1b:00.0", "00000000:1B:00.0"}) {
        std::vector<int> inside;
        std::thread started;
        {
            const near_device there(address, t.root());
            CHECK(own_cores() == std::vector<int>{last});
            started = std::thread([&] {
                cpu_set_t set;
                if (sched_getaffinity(0, sizeof set, &set) == 0) inside = numbers(set);
            });
        }
        started.join();
        CHECK(inside == std::vector<int>{last});
        CHECK(own_cores() == before);
    }
    // No core of that node is the thread's; there is no list; no node; no such device.
    for (const char* const address : {"0000:1c:00.0", "0000:1d:00.0", "0000:1e:00.0", "0000:1f:00.0", "x"}) {
        const near_device there(address, t.root());
        CHECK(own_cores() == before);
    }
}

TEST_CASE("what an arena gives out has its own bytes, and what it gets back is whole again") {
    constexpr std::size_t all = 10 * 256;
    alignas(256) static std::byte memory[all];
    colls::cuda::detail::device_arena arena(memory, all);
    CHECK(arena.take(all + 1) == nullptr);
    std::vector<int> order = {0, 1, 2, 3};
    do {  // given back in every order
        const std::size_t bytes[] = {1, 256, 257, 6 * 256};
        std::byte* at[4];
        std::size_t next = 0;
        for (std::size_t i = 0; i < 4; ++i) {
            at[i] = arena.take(bytes[i]);
            CHECK(at[i] == memory + next);
            next += (bytes[i] + 255) / 256 * 256;
        }
        CHECK(next == all);
        CHECK(arena.take(1) == nullptr);
        for (const int i : order) arena.give(at[i], bytes[i]);
        // Where something is taken in between, the others do not join over it.
        std::byte* const first = arena.take(300);
        std::byte* const second = arena.take(256);
        arena.give(first, 300);
        CHECK(arena.take(8 * 256) == nullptr);
        CHECK(arena.take(7 * 256) == memory + 3 * 256);
        CHECK(arena.take(2 * 256) == memory);
        arena.give(memory, 2 * 256);
        arena.give(second, 256);
        arena.give(memory + 3 * 256, 7 * 256);
        CHECK(arena.take(all) == memory);
        CHECK(arena.take(1) == nullptr);
        arena.give(memory, all);
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("the parts of the memory of kernels and their proxy share no byte, and fill it") {
    for (const int ranks : {2, 3, 17, 200}) {
        const colls::cuda::detail::far_layout layout{ranks, 3, 1 << 16, 16};
        std::vector<std::byte> memory(layout.bytes() + 128);
        const colls::cuda::detail::far_memory m{memory.data(), layout, nullptr};
        std::vector<std::pair<const std::byte*, std::uint64_t>> parts;
        const auto add = [&](const auto* at, std::uint64_t bytes) {
            parts.emplace_back(reinterpret_cast<const std::byte*>(at), bytes);
        };
        for (int r = 0; r < ranks; ++r) add(m.shadow(r), m.layout.shadow_bytes);
        for (int c = 0; c < m.layout.channels; ++c) {
            add(m.posted(c), 128);
            add(m.done(c), 128);
            for (int r = 0; r < ranks; ++r) add(m.arrived(c, r), 8);
            for (const std::uint64_t number : {6U, 7U}) {
                add(&m.post(c, number), sizeof(colls::cuda::detail::far_post));
                for (const bool receives : {false, true}) {
                    add(m.pieces(c, number, receives), m.layout.pieces * sizeof(colls::cuda::detail::far_piece));
                    add(m.window(c, number, receives), m.layout.window_bytes);
                }
            }
            add(m.mailed(c), 128);
            for (std::uint32_t i = 0; i < m.layout.mail_entries; ++i)
                add(&m.mail(c, m.layout.mail_entries + i), sizeof(colls::cuda::detail::far_mail));
            for (const bool receives : {false, true})
                for (std::uint32_t i = 0; i < m.layout.moved_entries; ++i) add(m.moved(c, receives, i), 8);
        }
        std::sort(parts.begin(), parts.end());
        const std::byte* end = m.base;
        int apart = 0;
        for (const auto& [at, bytes] : parts) {
            apart += at >= end && at - end < 128;
            end = at + bytes;
        }
        INFO(ranks);
        CHECK(apart == static_cast<int>(parts.size()));
        CHECK(end == m.base + m.layout.bytes());
    }
    using colls::cuda::detail::far_layout;
    CHECK(far_layout{2, 1}.groups() == 1);
    CHECK(far_layout{2, 2}.groups() == 1);
    CHECK(far_layout{2, 5}.groups() == 3);
}

namespace {

using colls::extend::control_kind;
using colls::extend::message_label;

/// Runs in its `progress` what a test gives it, and keeps what it is told.
struct scripted_transport final : colls::extend::message_transport {
    struct told {
        int peer;
        control_kind what;
        std::uint64_t a, b;
        std::string text;
    };
    struct script {
        std::mutex mutex;
        std::deque<std::function<void(listener&)>> next;
        std::vector<told> all;
        std::atomic<int> steps{0}, messages{0}, abandoned{0};
    };
    explicit scripted_transport(script& s) : s_(s) {}
    std::uint64_t send(int, const message_label&, const colls::extend::piece*, int) override {
        return static_cast<std::uint64_t>(s_.messages++);
    }
    std::uint64_t receive(int, const message_label&, const colls::extend::piece*, int) override {
        return static_cast<std::uint64_t>(s_.messages++);
    }
    std::uint64_t sent(int) const override { return 0; }
    std::uint64_t received(int) const override { return 0; }
    void abandon() override { ++s_.abandoned; }
    bool tell(int peer, const colls::extend::control_message& m) override {
        const std::lock_guard lock(s_.mutex);
        s_.all.push_back({peer, m.what, m.a, m.b, m.text});
        return true;
    }
    void tell_all(const colls::extend::control_message&) override {}
    void progress() override {
        std::function<void(listener&)> step;
        {
            const std::lock_guard lock(s_.mutex);
            if (s_.next.empty()) return;
            step = std::move(s_.next.front());
            s_.next.pop_front();
        }
        step(*listening);
        ++s_.steps;
    }
    void idle(double) override {}

private:
    script& s_;
};

}  // namespace

TEST_CASE("a proxy passes on what it hears of failures, and what its own rank says of one") {
    using cuda::failure;
    using cuda::poison_word;
    const cuda::far_layout layout{3, 1, 1 << 14, 16};
    alignas(128) static std::byte memory[1 << 19];
    REQUIRE(layout.bytes() <= sizeof memory);
    const std::uint8_t places[] = {0, cuda::far_memory::elsewhere, cuda::far_memory::elsewhere};
    const cuda::far_memory far{memory, layout, places};
    scripted_transport::script script;
    std::mutex mutex;
    std::vector<cuda::proxy::notice> found;
    std::atomic<bool> gives_up{false};
    std::vector<std::unique_ptr<colls::extend::message_transport>> transports;
    transports.push_back(std::make_unique<scripted_transport>(script));
    cuda::proxy proxy(
        far, std::move(transports),
        [&](const cuda::proxy::notice& n) {
            const std::lock_guard lock(mutex);
            found.push_back(n);
        },
        [&](cuda::proxy::notice& n) {
            if (gives_up) n = {failure::late, 2, "no answer"};
            return gives_up.load();
        });
    // Returns when the proxy has done all that follows from f.
    const auto after = [&](std::function<void(colls::extend::message_transport::listener&)> f) {
        const int before = script.steps;
        {
            const std::lock_guard lock(script.mutex);
            script.next.push_back(std::move(f));
            for (int i = 0; i < 2; ++i) script.next.emplace_back([](auto&) {});
        }
        proxy.wake(false);
        while (script.steps < before + 3) std::this_thread::yield();
    };
    const auto says = [&](int peer, control_kind what, failure why, int blamed, const char* text) {
        after([=](auto& l) {
            l.heard(peer, {what, static_cast<std::uint64_t>(why), static_cast<std::uint64_t>(blamed + 1), 0, text});
        });
    };
    const auto word = [&](int peer, std::uint64_t at) {
        return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(far.shadow(peer) + at)).load();
    };
    const auto text = [&](int peer) {
        return std::string(reinterpret_cast<const char*>(far.shadow(peer) + cuda::workspace_layout::text_begin));
    };
    constexpr std::uint64_t refusal = cuda::workspace_layout::refusal_begin;

    says(1, control_kind::refused, failure::refused, 1, "its buffer is null");
    CHECK(word(1, refusal) == poison_word(failure::refused, 1));
    CHECK(text(1) == "its buffer is null");
    says(1, control_kind::refused, failure::nothing, colls::none, "");  // it has made the call since
    CHECK(word(1, refusal) == 0);
    says(1, control_kind::leave, failure::nothing, colls::none, "");
    CHECK(word(1, refusal) == poison_word(failure::left, 1));
    CHECK(text(1) == "left");
    CHECK((word(1, 0) == 0 && word(2, 0) == 0 && word(2, refusal) == 0));
    CHECK(found.empty());
    says(2, control_kind::broken, failure::died, 1, "rank 1 is gone");
    CHECK(word(2, 0) == poison_word(failure::died, 1));
    CHECK(text(2) == "rank 1 is gone");
    after([](auto& l) { l.lost(1, "its connection ended"); });
    CHECK(word(1, 0) == poison_word(failure::died, 1));
    constexpr std::uint32_t mail = 0xffffffffu;
    const message_label call{5, 1, 3}, other_call{6, 1, 3}, message{100, 1, mail}, longer{200, 1, mail};
    after([&](auto& l) { l.unexpected(1, call, message, 8, 8); });
    after([&](auto& l) { l.unexpected(1, message, call, 8, 8); });
    after([&](auto& l) { l.unexpected(1, message, longer, 8, 8); });
    after([&](auto& l) { l.unexpected(1, call, call, 8, 16); });
    after([&](auto& l) { l.unexpected(1, call, other_call, 8, 8); });
    {
        const std::lock_guard lock(mutex);
        REQUIRE(found.size() == 7);
        CHECK((found[0].why == failure::died && found[0].peer == 1 && found[0].told_by == 2));
        CHECK(found[0].text == "rank 1 is gone");
        CHECK((found[1].why == failure::died && found[1].peer == 1 && found[1].told_by == 1));
        CHECK(found[1].text == "its connection ended");
        for (std::size_t i = 2; i < 7; ++i) CHECK((found[i].why == failure::mismatch && found[i].told_by == 1));
        CHECK(found[2].text == "it sends a message, and a collective call is expected");
        CHECK(found[3].text == "it makes a collective call, and a message is expected");
        CHECK(found[4].text == "its message has 200 bytes, and 100 are expected");
        CHECK(found[5].text == "it sends 16 bytes where 8 are expected");
        CHECK(found[6].text.empty());  // the kernels compare the calls
    }
    CHECK(word(1, 0) == poison_word(failure::mismatch, 1));

    // Its own rank: a refusal, and then that it has given up. Ranks of other hosts hear of both.
    const auto heard = [&](std::size_t from, control_kind what, failure why, int blamed, const char* said) {
        const std::lock_guard lock(script.mutex);
        REQUIRE(script.all.size() == from + 2);
        for (const int r : {1, 2}) {
            const scripted_transport::told& t = script.all[from + static_cast<std::size_t>(r) - 1];
            CHECK((t.peer == r && t.what == what && t.a == static_cast<std::uint64_t>(why)));
            CHECK((t.b == static_cast<std::uint64_t>(blamed + 1) && t.text == said));
        }
    };
    proxy.refuse({failure::refused, 0, "count 3 and 4"});
    after([](auto&) {});
    heard(0, control_kind::refused, failure::refused, 0, "count 3 and 4");
    CHECK(script.abandoned == 0);
    gives_up = true;
    after([](auto&) {});
    heard(2, control_kind::broken, failure::late, 2, "no answer");
    CHECK(script.abandoned == 1);
    // From then on it moves nothing, and finds nothing; kernels that still run read why a rank has failed.
    cuda::far_post& post = far.post(0, 0);
    post.ports = 1;
    post.sends[0] = post.receives[0] = {1, 0, 0};
    std::atomic_ref(*far.posted(0)).store(1);
    after([](auto& l) { l.lost(2, "it is gone, too"); });
    CHECK(word(2, 0) == poison_word(failure::died, 2));
    CHECK(text(2) == "it is gone, too");
    CHECK(script.messages == 0);
    {
        const std::lock_guard lock(mutex);
        CHECK(found.size() == 7);
    }
    heard(2, control_kind::broken, failure::late, 2, "no answer");
}

namespace {

/// A broadcast that is wrong in one way.
struct wrong_broadcast {
    static constexpr colls::collective implements = colls::collective::broadcast;
    enum way { right, lone_receiver, wrong_block, negative_block } how = right;
    constexpr int rounds(int) const { return 1; }
    constexpr colls::step at(int rank, int n, int) const {
        const int block = how == wrong_block ? 7 : how == negative_block ? -3 : 0;
        colls::step s;
        if (rank == 0 && how != lone_receiver) s.send = {n - 1, colls::block(block)};
        if (rank == n - 1) s.recv = {0, colls::block(block), colls::action::copy};
        return s;
    }
};
/// A scatter whose slots have no rank as their home.
struct wrong_homes : colls::direct::scatter {
    int home_of_all = 0;
    constexpr int home(int, int) const { return home_of_all; }
};
/// An all_to_all whose slots hold blocks that there are not.
struct wrong_inputs : colls::direct::all_to_all {
    int of_all = 0;
    constexpr int input(int, int, int) const { return of_all; }
};
/// Copies and reduces into one block in one round.
struct copies_and_reduces {
    static constexpr colls::collective implements = colls::collective::all_reduce;
    static constexpr int rounds(int) { return 1; }
    static constexpr int ports(int) { return 2; }
    static constexpr colls::step at(int rank, int n, int, int port) {
        const colls::action how = port == 0 ? colls::action::reduce : colls::action::copy;
        return {.send = {(rank + 1) % n, colls::block(0)}, .recv = {(rank + n - 1) % n, colls::block(0), how}};
    }
};

}  // namespace

TEST_CASE("slot maps: schedules that kernels cannot run, or that are wrong, are refused before they are read") {
    const auto refusal = [](const auto& s, int n) {
        try {
            static_cast<void>(cuda::proven_slot_map(s, n));
        } catch (const colls::error& e) {
            return std::pair(e.code(), std::string(e.what()));
        }
        return std::pair(colls::errc{}, std::string("none"));
    };
    const auto refused = [&](colls::errc code, const std::string& words, const auto& s, int n) {
        const auto [got, text] = refusal(s, n);
        INFO(text);
        CHECK(got == code);
        CHECK(text.find(words) != std::string::npos);
    };
    using colls::errc;
    refused(errc{}, "none", colls::ring::reduce_scatter{}, 5);
    refused(errc::unsupported, "reduce_scatter at 6 ranks: the schedule does not support this group size",
        colls::halving_doubling::reduce_scatter{}, 6);
    refused(errc::unsupported, "1024 ranks at most", colls::ring::reduce_scatter{}, 1025);
    refused(errc::unsupported, "more ports than a kernel takes", colls::direct::all_to_all{}, 74);
    refused(errc{}, "none", colls::direct::all_to_all{}, 73);
    refused(errc::wrong_schedule, "at 3 ranks: ", wrong_broadcast{wrong_broadcast::right}, 3);  // rank 1 has nothing
    refused(errc{}, "none", wrong_broadcast{wrong_broadcast::right}, 2);
    refused(errc::wrong_schedule, "at 2 ranks: ", wrong_broadcast{wrong_broadcast::lone_receiver}, 2);
    refused(errc::wrong_schedule, "at 2 ranks: ", wrong_broadcast{wrong_broadcast::wrong_block}, 2);
    refused(errc::wrong_schedule, "at 2 ranks: ", wrong_broadcast{wrong_broadcast::negative_block}, 2);
    for (const int far : {-2, 4, 1 << 20}) {
        wrong_homes homes;
        homes.home_of_all = far;
        refused(errc::wrong_schedule, "at 4 ranks: ", homes, 4);
        wrong_inputs inputs;
        inputs.of_all = far;
        refused(errc::wrong_schedule, "at 4 ranks: ", inputs, 4);
    }
    const auto [code, text] = refusal(copies_and_reduces{}, 2);
    INFO(text);
    CHECK((code == errc::wrong_schedule || code == errc::unsupported));
}
