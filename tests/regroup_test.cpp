// New groups where ranks fail meanwhile: no rank waits, in whatever group, for one that has gone to shrink another, and
// all hear of the cause.
#include "catch.hpp"

#include "support/batch.hpp"
#include "support/every_transport.hpp"
#include "support/says.hpp"

#include <colls/detail/group/backoff.hpp>

#include <array>
#include <csignal>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>

using namespace support;

namespace {

/// A link that cannot make the end of a new group, as where there is no more memory.
class without_room : public colls::detail::group_backend {
    using rank_context = colls::detail::rank_context;

public:
    explicit without_room(colls::detail::shared_backend whole) : of_(std::move(whole)) {}
    std::unique_ptr<rank_context> attach(
        rank_context& from, std::uint64_t place, int rank, const colls::detail::list<int>& members) override {
        if (!from.by_messages)
            of_->attach(from, place, rank, members);  // whose end is lost; over messages it would say that it leaves
        throw std::bad_alloc();
    }

    void look(rank_context& e, const colls::detail::wait_site* at, double s) override { of_->look(e, at, s); }
    void idle(rank_context& e, double waited) override { of_->idle(e, waited); }
    void broke(rank_context& e) override { of_->broke(e); }
    void absent(rank_context& e, std::uint64_t group) override { of_->absent(e, group); }
    void refused(rank_context& e) override { of_->refused(e); }
    void ask_for_messages(rank_context& e) override { of_->ask_for_messages(e); }
    bool announced(rank_context& e, int rank) override { return of_->announced(e, rank); }
    void abandon(rank_context& e) override { of_->abandon(e); }
    void close() override { of_->close(); }
    void begin(rank_context& e, colls::detail::operation_state& o) override { of_->begin(e, o); }
    bool advance(rank_context& e, colls::detail::operation_state& o) override { return of_->advance(e, o); }
    bool dead(int rank) const override { return of_->dead(rank); }
    void pin() override { of_->pin(); }
    std::byte* take(std::size_t bytes) override { return of_->take(bytes); }
    void give(std::byte* at, std::size_t bytes) noexcept override { of_->give(at, bytes); }
    std::uint64_t create(int n) override { return of_->create(n); }
    void discard(std::uint64_t place, int n) override { of_->discard(place, n); }
    std::unique_ptr<rank_context> shrink(rank_context& e) override { return of_->shrink(e); }
    const colls::detail::machine& figures() override { return of_->figures(); }
    colls::detail::shared_backend whole() { return of_; }

private:
    const colls::detail::shared_backend of_;
};

/// f on n ranks of a kind of group; what a rank throws at the end is no failure where ranks are killed.
template <class F>
void on(const std::string& transport, int n, F f) {
    try {
        run_over(transport, n, f);
    } catch (const std::exception&) {}
}

}  // namespace

TEST_CASE("a rank that cannot join the group that is split off is not waited for there", "[regroup]") {
    for (const std::string& transport : every_transport())
        for (const int n : {2, 3, 5}) {
            common<std::array<std::atomic<int>, 6>> counted;
            auto& heard = *counted;
            on(transport, n, [&](colls::communicator& comm) {
                const int failing = n - 1;
                auto& backend = comm.context().backend;
                if (comm.rank() == failing) backend = std::make_shared<without_room>(backend);
                try {
                    colls::communicator part = comm.split(0, comm.rank());
                    heard[3] += 1;
                } catch (const std::bad_alloc&) {
                    heard[0] += comm.rank() == failing;
                } catch (const colls::error& e) {
                    const bool right = e.code() == colls::errc::peer_failed && e.peer() == failing &&
                                       says(e.what(), "no more memory") &&
                                       !says(e.what() + 1, "colls: ");  // a text quotes another without its opening
                    heard[right ? 1 : 3] += 1;
                    if (!right) std::fprintf(stderr, "%s\n", e.what());
                }
                if (comm.rank() == failing) backend = static_cast<without_room&>(*backend).whole();
                colls::communicator left = comm.shrink();
                colls::barrier(left);
                heard[2] += left.size() == n;
            });
            INFO(transport << ", " << n << " ranks");
            CHECK(heard[0] == 1);
            CHECK(heard[1] == n - 1);
            CHECK(heard[2] == n);
            CHECK(heard[3] == 0);
        }
}

TEST_CASE("a rank that waits in one group for another that shrinks a second group of both hears of it", "[regroup]") {
    for (const std::string& transport : every_transport())
        for (const bool message : {false, true}) {
            common<std::array<std::atomic<int>, 6>> counted;
            auto& heard = *counted;
            on(transport, 4, [&](colls::communicator& comm) {
                colls::communicator part = comm.split(comm.rank() < 3 ? 0 : 1, comm.rank());
                colls::communicator pair = comm.split(comm.rank() < 2 ? 0 : 1, comm.rank());
                colls::barrier(comm);
                heard[5] += 1;
                while (heard[5] < 4) std::this_thread::yield();  // all are out of that barrier
                if (comm.rank() == 3) {
                    if (transport == "threads") throw std::runtime_error("rank 3 gives up");
                    raise(SIGKILL);
                }
                if (comm.rank() == 0) {
                    // It hears of rank 3 in the whole group, and shrinks that; the others wait for it in the part.
                    try {
                        colls::barrier(comm);
                        colls::barrier(comm);
                    } catch (const colls::error&) {}
                } else {
                    try {
                        std::vector<int> x(1);
                        if (message)
                            colls::recv(part, x, comm.rank() - 1);
                        else
                            colls::barrier(part);
                        heard[1] += 1;
                    } catch (const colls::error& e) {
                        const bool right = e.code() == colls::errc::peer_failed && says(e.what(), "rank 3");
                        heard[right ? 0 : 2] += 1;
                        if (!right) std::fprintf(stderr, "%s\n", e.what());
                    }
                }
                colls::communicator left = comm.shrink();
                colls::barrier(left);
                heard[3] += left.size() == 3;
                // A group in which no rank waited is none the worse.
                if (left.rank() < 2) {
                    colls::barrier(pair);
                    heard[4] += 1;
                }
            });
            INFO(transport << (message ? ", a message" : ", a collective"));
            CHECK(heard[0] == 2);
            CHECK(heard[1] == 0);
            CHECK(heard[2] == 0);
            CHECK(heard[3] == 3);
            CHECK(heard[4] == 2);
        }
}

TEST_CASE("a group that breaks as soon as it has come about leaves the one that it is split from whole", "[regroup]") {
    for (const std::string& transport : every_transport()) {
        common<std::array<std::atomic<int>, 6>> counted;
        auto& heard = *counted;
        on(transport, 5, [&](colls::communicator& comm) {
            for (int turn = 0; turn < 60; ++turn) {
                colls::communicator part = comm.split(0, comm.rank());
                try {
                    if (comm.rank() == turn % 5) part.abort("at once");
                    for (;;) colls::barrier(part);
                } catch (const colls::error& e) {
                    heard[0] += says(e.what(), "at once");
                }
            }
            colls::barrier(comm);
            ++heard[1];
        });
        INFO(transport);
        CHECK(heard[0] == 300);
        CHECK(heard[1] == 5);
    }
}
