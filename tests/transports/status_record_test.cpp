// The record in which a process shows its ranks (status/), read while groups come and go, and read where it holds
// whatever bytes.
#include "../catch.hpp"
#include "../support/launch.hpp"
#include "../support/random.hpp"

#include <colls/detail/group/wait_site.hpp>
#include <colls/status/detail/reader.hpp>

#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>

namespace {

using namespace colls::detail;
using namespace colls::detail::status;

std::string text_of(const char* text) { return text; }

/// This process's own, which has had a group.
int own_record() {
    char name[64] = {};
    for (int fd = 3; fd < 1000; ++fd)
        if (readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name - 1) > 0 &&
            std::string(name).rfind(std::string("/memfd:") + file_name, 0) == 0)
            return fd;
    FAIL("there is no record");
    return -1;
}

}  // namespace

TEST_CASE("what is read of a group is of one group, while others are made and dropped in its place") {
    // Colors are the sizes of the parts, so the label of each group says how large it is.
    std::atomic<bool> over{false};
    std::thread ranks([&] {
        colls::threads::run(6, [&](colls::communicator& comm) {
            for (int turn = 0;; ++turn) {
                int last = over;
                colls::all_reduce(comm, std::span(&last, 1), colls::max);
                if (last) return;
                const int size = turn % 2 == 0 ? (comm.rank() < 4 ? 4 : 2) : (comm.rank() < 5 ? 5 : 1);
                auto part = comm.split(size, 0);
                colls::barrier(part);
            }
        });
    });
    std::size_t parts = 0, whole = 0, several = 0;
    for (int look = 0; look < 20'000 && (look < 2'000 || parts < 1'000); ++look) {
        std::vector<seen_rank> all;
        try {
            all = ranks_of_process(getpid());
        } catch (const colls::error&) {
            continue;  // before the first group
        }
        for (const seen_rank& r : all) {
            const std::string label = text_of(r.label);
            if (const std::size_t color = label.find(':'); color != label.npos) {
                ++parts;
                if (std::to_string(r.size) != label.substr(color + 1)) ++several;
            } else if (label.find('.') == label.npos) {
                ++whole;
                if (r.size != 6) ++several;
            }
        }
    }
    over = true;
    ranks.join();
    CHECK(parts > 0);
    CHECK(whole > 0);
    CHECK(several == 0);
    CHECK(ranks_of_process(getpid()).empty());  // all places are free again
}

TEST_CASE("what is read of a place is of one use of it, however short") {
    take_status().reset();
    const int fd = own_record();
    std::atomic<bool> over{false};
    std::thread writes([&] {
        support::random_source random(2);
        for (int turn = 0; !over; ++turn) {
            const status_place p = take_status();
            const int n = 1 + turn % 7;
            const std::string text(20, static_cast<char>('a' + n));
            p->show(static_cast<std::uint64_t>(n), n - 1, n, rank_status::memory_of_threads, text.c_str());
            p->add_error(text.c_str());
            for (std::size_t i = random.below(200); i > 0; --i) colls::detail::pause();
        }
    });
    int found = 0, with_error = 0, wrong = 0;
    for (int look = 0; look < 1'000'000 && (look < 200'000 || found < 1'000); ++look) {
        std::vector<seen_rank> all;
        add_record(all, fd, getpid(), getpid());
        for (const seen_rank& r : all) {
            const std::string text(20, static_cast<char>('a' + r.size));
            ++found;
            with_error += r.errors == 1;
            wrong += r.rank != r.size - 1 || r.group != static_cast<std::uint64_t>(r.size) ||
                     text_of(r.label) != text || (r.error[0] != '\0' && text_of(r.error) != text);
        }
    }
    over = true;
    writes.join();
    CHECK(found > 0);
    CHECK(with_error > 0);
    CHECK(wrong == 0);
}

TEST_CASE("calls, messages, bytes and errors are counted") {
    colls::threads::run(2, [](colls::communicator& comm) {
        std::vector<std::int64_t> x(100, 1), y(100);
        const auto own = [&] {
            for (const seen_rank& r : ranks_of_process(getpid()))
                if (r.rank == comm.rank() && r.size == 2) return r;
            throw std::runtime_error("this rank is not there");
        };
        const seen_rank first = own();
        bool right = first.calls == 0 && first.bytes == 0 && first.messages == 0 && !first.in_call && first.errors == 0;
        colls::all_reduce(comm, std::span(x), colls::sum);                  // by the eager path
        colls::all_reduce<colls::ring>(comm, std::span(x), colls::sum);     // by a plan
        auto o = colls::start::all_reduce(comm, std::span(x), colls::sum);  // started
        o.wait();
        seen_rank now = own();
        right = right && now.calls == 3 && now.bytes == 2400 &&
                now.latest == static_cast<std::uint64_t>(colls::collective::all_reduce);
        if (comm.rank() == 0)
            colls::send(comm, std::span(x), 1);
        else
            colls::recv(comm, std::span(y), 0);
        now = own();
        right = right && now.calls == 3 && now.messages == 1 && now.bytes == 3200;
        right = right && now.latest == (comm.rank() == 0 ? long_wait::send : long_wait::recv) && !now.in_call;
        try {
            colls::broadcast(comm, std::span(x), 7);  // there is no such root
            right = false;
        } catch (const colls::error&) {}
        now = own();
        right = right && now.errors == 1 && text_of(now.error).find("root 7") != std::string::npos;
        if (!right) throw std::runtime_error("a count is wrong");
    });
}

TEST_CASE("whatever a record holds, what is read of it is sound") {
    support::random_source random(1);
    const int fd = memfd_create("any", MFD_CLOEXEC);
    constexpr std::uint32_t places = 5;
    for (int turn = 0; turn < 2'000; ++turn) {
        std::vector<unsigned char> bytes(record_head::bytes + places * sizeof(rank_status));
        for (unsigned char& b : bytes) b = static_cast<unsigned char>(random.next());
        record_head h{};
        std::memcpy(h.magic, record_head::begin, sizeof h.magic);
        h.form = format;
        h.place_bytes = sizeof(rank_status);
        h.process = 1;
        h.used = places;
        std::memcpy(bytes.data(), static_cast<void*>(&h), sizeof h);
        for (std::uint32_t i = 0; i < places; ++i) {  // some of them are possible
            unsigned char* const p = &bytes[record_head::bytes + i * sizeof(rank_status)];
            const auto by = static_cast<std::uint32_t>(random.below(i % 2 == 0 ? 3 : 5));
            std::memcpy(p + offsetof(rank_status, by), &by, 4);
            if (i % 2 != 0) continue;
            const std::int32_t rank = random.between(0, 3), size = 4;
            std::memcpy(p + offsetof(rank_status, rank), &rank, 4);
            std::memcpy(p + offsetof(rank_status, size), &size, 4);
        }
        REQUIRE(pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
        std::vector<seen_rank> all;
        REQUIRE(add_record(all, fd, 1, 1));
        REQUIRE(all.size() >= 3);
        for (const seen_rank& r : all) {
            REQUIRE(r.rank >= 0);
            REQUIRE(r.rank < r.size);
            for (const char* text : {r.label, r.error, r.host})
                for (; *text; ++text) REQUIRE((static_cast<unsigned char>(*text) >= ' ' && *text != 127));
        }
    }
    close(fd);
}

TEST_CASE("groups beyond the places of a record, and without a record, work and are not shown") {
    std::vector<colls::communicator> many;
    colls::threads::run(1, [&](colls::communicator& comm) {
        for (std::uint32_t i = 0; i < record_head::most + 10; ++i) many.push_back(comm.split(0, 0));
        int x = 1;
        colls::all_reduce(many.back(), std::span(&x, 1), colls::sum);
        CHECK(ranks_of_process(getpid()).size() == record_head::most);
        many.clear();
        CHECK(ranks_of_process(getpid()).size() == 1);
    });
    // A child may make no file of that size: it shows nothing, and its groups work.
    const pid_t child = fork();
    if (child == 0) {
        const rlimit small{4096, 4096};
        setrlimit(RLIMIT_FSIZE, &small);
        int status = 1;
        colls::threads::run(2, [&](colls::communicator& comm) {
            int x = 1;
            colls::all_reduce(comm, std::span(&x, 1), colls::sum);
            if (comm.rank() == 0 && x == 2) try {
                    ranks_of_process(getpid());
                } catch (const colls::error&) {
                    status = 0;
                }
        });
        _exit(status);
    }
    int status = 1;
    waitpid(child, &status, 0);
    CHECK(status == 0);
}
