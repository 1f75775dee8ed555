// The tests over MPI: a program for each MPI that is installed, run by that MPI's own launcher (see `check`).
//     program SEED CALLS
// Each rank checks its own results. Rank 0 prints how many checks there were, and the exit status is 0 if all were
// right.
#include "calls.hpp"

#include "support/message_transports.hpp"

#include <colls/colls.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/mpi/detail/mpi_transport.hpp>
#include <colls/transports/mpi.hpp>

#include <execinfo.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace mpi_tests;

namespace {

constexpr colls::mpi::options by_messages{.shared_memory = false};

/// Messages of the user's, on the user's communicator, with the tags that the library uses on its own one.
class own_messages {
public:
    void begin() {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &size_);
        ++turn_;
        for (int tag = 0; tag < tags; ++tag) {
            in_[tag].assign(5000, -1);
            out_[tag].assign(5000, number(rank_, tag));
            MPI_Irecv(
                in_[tag].data(), 5000, MPI_INT, (rank_ + size_ - 1) % size_, tag, MPI_COMM_WORLD, &requests_[tag]);
            MPI_Isend(
                out_[tag].data(), 5000, MPI_INT, (rank_ + 1) % size_, tag, MPI_COMM_WORLD, &requests_[tags + tag]);
        }
    }
    void end(tally& t) {
        MPI_Waitall(2 * tags, requests_, MPI_STATUSES_IGNORE);
        for (int tag = 0; tag < tags; ++tag)
            t.check(std::count(in_[tag].begin(), in_[tag].end(), number((rank_ + size_ - 1) % size_, tag)) == 5000,
                "the user's own messages");
        MPI_Barrier(MPI_COMM_WORLD);
    }

private:
    static constexpr int tags = 6;
    int number(int rank, int tag) const { return turn_ * 1000 + rank * 10 + tag; }
    std::vector<int> in_[tags], out_[tags];
    MPI_Request requests_[2 * tags];
    int rank_ = 0, size_ = 1, turn_ = 0;
};

bool same_everywhere(std::span<const std::byte> own) {
    std::vector<std::byte> first(own.begin(), own.end());
    MPI_Bcast(first.data(), static_cast<int>(first.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
    return std::equal(own.begin(), own.end(), first.begin());
}

/// The transport alone; both sides divide a message into pieces differently.
void transports(std::uint64_t seed, tally& t) {
    using namespace support;
    MPI_Comm own;
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    const auto context = std::make_shared<mpi_context>(own);
    const int n = context->size(), rank = context->rank();
    mpi_transport a(context, 0), b(context, 1);
    const random_traffic small{seed, n > 8 ? 12 : 60, 30, std::size_t{100} << 10},
        large{seed + 1, n > 8 ? 2 : 6, 3, std::size_t{n > 4 ? 1u : 40u} << 20};
    for (const auto& [traffic, w] : {std::pair{&small, &a}, std::pair{&large, &b}}) {
        const std::string wrong = exchange(*traffic, rank, n, *w);
        t.check(wrong.empty(), "messages: " + wrong);
        t.checked += static_cast<std::uint64_t>(n - 1) * static_cast<std::uint64_t>(traffic->messages);
    }
}

/// The contract of message transports. Each process drives its own rank. `contexts`, of all groups, are to be kept: MPI
/// uses the contexts of freed communicators again, and messages that were abandoned may still lie in them.
void contract(std::vector<std::shared_ptr<colls::detail::mpi_context>>& contexts, tally& t) {
    using namespace support;
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < 2) return;
    const auto make = [&](int n) {
        MPI_Comm own;
        MPI_Comm_dup(MPI_COMM_WORLD, &own);
        // On a machine that is busy, a rank may not run for a second.
        contexts.push_back(std::make_shared<mpi_context>(own, 4));
        colls::testing::message_transports_of_group all(static_cast<std::size_t>(n));
        all[static_cast<std::size_t>(rank)] = std::make_unique<mpi_transport>(contexts.back(), 0);
        return all;
    };
    const auto meet = []() -> std::function<bool()> {
        const auto under_way = std::make_shared<MPI_Request>();
        MPI_Ibarrier(MPI_COMM_WORLD, under_way.get());
        return [under_way] {
            int over = 0;
            MPI_Test(under_way.get(), &over, MPI_STATUS_IGNORE);
            return over != 0;
        };
    };
    const auto report = colls::testing::message_transports(make, {.deadline = 60, .groups = {size}, .meet = meet});
    t.check(report.ok(), report.text());
    // The others wait for this rank in steps that it has left out, and would do so for ever.
    if (!report.ok()) MPI_Abort(MPI_COMM_WORLD, 3);
}

/// The end of a transport, between ranks 0 and 1. In the first part rank 0 calls MPI itself, and stops within a
/// message.
void ends_of_transports(tally& t) {
    using namespace support;
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm own = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, &own);
    const auto meet = [] { MPI_Barrier(MPI_COMM_WORLD); };
    if (rank >= 2) {
        for (int i = 0; i < 5; ++i) meet();
        return;
    }
    const auto context = std::make_shared<mpi_context>(own);
    if (size < 2) return;
    const message_label label{11, 22, 33};
    std::vector<std::byte> data(3u << 20, static_cast<std::byte>(rank + 1));
    const auto untouched = [&] {
        return std::count(data.begin(), data.end(), static_cast<std::byte>(rank + 1)) == std::ssize(data);
    };
    const piece all{data.data(), data.size()}, part{data.data(), 100};

    // The payload arrives when the receiver has abandoned its messages.
    if (rank == 0) {
        struct {
            std::uint64_t fingerprint, sequence, bytes;
            std::uint32_t part, unused;
        } const header{11, 22, data.size(), 33, 0};
        MPI_Send(&header, sizeof header, MPI_BYTE, 1, 0, own);
        meet();
        meet();
        MPI_Send(data.data(), static_cast<int>(data.size()), MPI_BYTE, 1, 1,
            own);  // which completes, since the receiver takes it
        struct {
            std::uint64_t a, b, c, sent;
            control_kind what;
            char text[1];
        } const leave{1, 0, 0, 0, control_kind::leave, ""};
        MPI_Send(&leave, sizeof leave, MPI_BYTE, 1, 2, own);
        // An unread message would reach a later communicator: MPI uses the contexts of freed ones again.
        std::byte theirs[1024];
        MPI_Recv(theirs, sizeof theirs, MPI_BYTE, 1, 2, own, MPI_STATUS_IGNORE);
    } else {
        mpi_transport w(context, 0);
        ear e;
        w.listening = &e;
        w.receive(0, label, &all, 1);
        meet();
        idle(w, 0.05);
        w.abandon();
        meet();
        t.check(until(w, [&] { return e.count(said_leave) == 1; }), "a peer's leave, after abandon");
        t.check(untouched(), "memory written after abandon");
    }
    meet();

    // Both ranks abandon, one of them before it has posted a receive for the other's message: the send completes
    // anyway.
    {
        mpi_transport w(context, 1);
        ear e;
        w.listening = &e;
        if (rank == 0) {
            w.send(1, label, &all, 1);
            w.abandon();
            t.check(until(w, [&] { return w.sent(1) == 1; }), "a send that abandon could not cancel completes");
            w.tell(1, control_message{control_kind::board, 1, 2, 3, ""});
        } else {
            w.abandon();
            t.check(until(w, [&] { return e.count(said_board) == 1; }), "a control message after abandon");
            t.check(untouched(), "memory written after abandon");
        }
    }
    meet();

    // Messages that were sent before the peer left arrive, before its leave is reported.
    {
        const auto w = std::make_unique<mpi_transport>(context, 2);
        ear e;
        w->listening = &e;
        if (rank == 0) {
            for (int i = 0; i < 3; ++i) w->send(1, label, &part, 1);
            w->tell(1, control_message{control_kind::board, 1, 2, 3, ""});
        } else {
            t.check(until(*w, [&] { return e.count(said_board) == 1; }), "a control message without a posted receive");
            idle(*w, 0.05);
            for (int i = 0; i < 3; ++i) {
                t.check(e.count(said_leave) == 0, "a leave is reported behind the messages before it");
                w->receive(0, label, &part, 1);
                t.check(until(*w, [&] { return w->received(0) == static_cast<std::uint64_t>(i + 1); }),
                    "a message of a rank that has left");
            }
            t.check(until(*w, [&] { return e.count(said_leave) == 1; }), "a peer's leave");
            t.check(e.count("lost") == 0 && data[99] == std::byte{1} && data[100] == std::byte{2},
                "messages of a rank that has left");
        }
    }
    meet();
}

/// A sender is ahead of its receiver by fewer than 16 messages, and a message that MPI cannot deliver loses its sender.
/// Between ranks 0 and 1.
void limits(tally& t) {
    using namespace support;
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm own = MPI_COMM_NULL, other = MPI_COMM_NULL;
    for (MPI_Comm* const c : {&own, &other}) MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, c);
    const auto meet = [] { MPI_Barrier(MPI_COMM_WORLD); };
    if (rank >= 2) {
        for (int i = 0; i < 3; ++i) meet();
        return;
    }
    const auto context = std::make_shared<mpi_context>(own), of_other = std::make_shared<mpi_context>(other);
    if (size < 2) return;
    const message_label label{11, 22, 33};
    constexpr std::uint64_t most = 15, all = 40;
    std::byte data[8]{};
    const piece p{data, sizeof data};
    {
        mpi_transport w(context, 0);
        ear e;
        w.listening = &e;
        if (rank == 0) {
            for (std::uint64_t i = 0; i < all; ++i) w.send(1, label, &p, 1);
            t.check(until(w, [&] { return w.sent(1) >= most; }), "the first messages leave without their receives");
            for (int i = 0; i < 1000; ++i) w.progress();
            t.check(w.sent(1) == most, "one message waits for its receive");
            meet();
            t.check(until(w, [&] { return w.sent(1) == all; }), "all messages leave");
        } else {
            meet();
            for (std::uint64_t i = 0; i < all; ++i) w.receive(0, label, &p, 1);
            t.check(until(w, [&] { return w.received(0) == all; }), "all messages arrive");
        }
        t.check(e.count("lost") == 0, "no rank is lost");
    }
    meet();
#if defined(OPEN_MPI)
    constexpr bool cuts = false;  // it writes all of such a message, past the end of the receive's memory
#else
    constexpr bool cuts = true;
#endif
    if (rank == 0 && cuts) {
        // Longer than what is sent with a header.
        const std::vector<std::byte> long_one(mpi_transport::packed_bytes + 100);
        MPI_Request r = MPI_REQUEST_NULL;
        MPI_Isend(long_one.data(), static_cast<int>(long_one.size()), MPI_BYTE, 1, 0, other, &r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        of_other->keep();  // as the other rank does
    } else if (cuts) {
        // MPI asks the program's handler, too, when it tests several requests.
        MPI_Errhandler usual = MPI_ERRHANDLER_NULL;
        MPI_Comm_get_errhandler(MPI_COMM_WORLD, &usual);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        const std::shared_ptr<void> as_before(nullptr, [&](void*) {
            MPI_Comm_set_errhandler(MPI_COMM_WORLD, usual);
            MPI_Errhandler_free(&usual);
        });
        mpi_transport w(of_other, 0);
        ear e;
        w.listening = &e;
        w.receive(0, label, &p, 1);
        t.check(until(w, [&] { return e.count("lost 0") == 1; }), "a message that is cut loses its sender");
        t.check(e.reasons.size() == 1 && !e.reasons[0].empty(), "MPI says why");
        t.check(!w.tell(0, control_message{control_kind::board, 1, 2, 3, ""}), "nothing is told a rank that is lost");
        w.send(0, label, &p, 1);
        idle(w, 0.01);
        t.check(w.received(0) == 0 && w.sent(0) == 0 && e.events.size() == 1, "it is reported once");
    }
    meet();
}

/// The last rank leaves the group while rank 0 expects two messages of it: the one that it has sent arrives, the other
/// is an error.
void leaves(tally& t) {
    colls::communicator comm = colls::mpi::communicator_of(MPI_COMM_WORLD, by_messages);
    const int n = comm.size(), last = n - 1;
    if (n < 2) return;
    std::vector<int> data(30'000, comm.rank());
    if (comm.rank() == last) {
        colls::send(comm, data, 0);
        comm = colls::communicator();
    } else if (comm.rank() == 0) {
        std::vector<int> got(data.size());
        colls::recv(comm, got, last);
        t.check(std::count(got.begin(), got.end(), last) == 30'000, "a message of a rank that has left");
        std::string said = "nothing";
        try {
            colls::recv(comm, got, last);
        } catch (const colls::error& failure) {
            said = failure.what();
            t.check(failure.code() == colls::errc::peer_failed && failure.peer() == last,
                "an error that says that the rank has left: " + said);
        }
        t.check(said.find("has left") != std::string::npos, "an error that says that the rank has left: " + said);
    }
}

void sub_communicators(tally& t) {
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    int place = 0, members = 0;
    MPI_Comm_rank(half, &place);
    MPI_Comm_size(half, &members);
    colls::communicator world = colls::mpi::communicator_of(MPI_COMM_WORLD, by_messages),
                        first = colls::mpi::communicator_of(half, by_messages),
                        second = colls::mpi::communicator_of(half, by_messages);
    t.check(first.rank() == place && first.size() == members, "a sub-communicator's ranks");
    works(first, t);
    works(second, t);
    // The user's communicators may be freed first, and work until then.
    int sum = 0;
    MPI_Allreduce(&members, &sum, 1, MPI_INT, MPI_SUM, half);
    t.check(sum == members * members, "the user's own call");
    MPI_Comm_free(&half);
    works(world, t);
    works(first, t);
    works(second, t);
    second = colls::communicator();
    works(first, t);
}

/// Two groups of one process, whose operations are waited for in different orders: a wait makes progress for all
/// groups.
void two_groups(tally& t) {
    colls::communicator a = colls::mpi::communicator_of(MPI_COMM_WORLD, by_messages),
                        b = colls::mpi::communicator_of(MPI_COMM_WORLD, by_messages);
    for (int turn = 0; turn < 5; ++turn) {
        std::vector<int> x(200'000, 1), y(200'000, 2);
        auto first = colls::start::all_reduce<colls::ring>(a, x, colls::sum),
             second = colls::start::all_reduce<colls::ring>(b, y, colls::sum);
        if (t.rank % 2) second.wait();
        first.wait();
        second.wait();
        t.check(std::count(x.begin(), x.end(), a.size()) == 200'000 &&
                    std::count(y.begin(), y.end(), 2 * a.size()) == 200'000,
            "two groups");
        if (turn == 2) b = colls::mpi::communicator_of(MPI_COMM_WORLD, by_messages);
        if (turn == 3) a = b.split(0, 0);
    }
}

/// More groups, one after another, than MPI can have communicators at once.
void many(tally& t) {
    int size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < (size == 2 ? 3000 : 10); ++i) {
        colls::communicator comm = colls::mpi::communicator_of(MPI_COMM_WORLD, by_messages);
        if (i % 5 == 0) works(comm, t);
        colls::communicator part = i % 10 == 0 ? comm.split(0, 0) : colls::communicator();
    }
}

/// Groups over shared memory, which all ranks of this test have: more of them at once than MPI can have communicators;
/// ended in opposite orders; waited for in opposite orders; and a rank that waits in one makes progress for MPI.
void shared_memory(tally& t) {
    const auto refuse = [](MPI_Comm, int, void*, void*, void*, int*) { return static_cast<int>(MPI_ERR_OTHER); };
    int key = MPI_KEYVAL_INVALID, size = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_create_keyval(refuse, MPI_COMM_NULL_DELETE_FN, &key, nullptr);
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, &key);
    {
        colls::communicator comm = colls::mpi::communicator_of(MPI_COMM_WORLD);
        t.check(!comm.context().by_messages, "ranks of one host share memory");
        works(comm, t);
        std::vector<int> large(4'000'000, t.rank);  // by rendezvous: it needs the receiver's progress
        MPI_Request received = MPI_REQUEST_NULL;
        if (size > 1 && t.rank == 0)
            MPI_Irecv(large.data(), static_cast<int>(large.size()), MPI_INT, 1, 0, MPI_COMM_WORLD, &received);
        if (t.rank == 1) MPI_Send(large.data(), static_cast<int>(large.size()), MPI_INT, 0, 0, MPI_COMM_WORLD);
        colls::barrier(comm);
        MPI_Wait(&received, MPI_STATUS_IGNORE);
        t.check(large.back() == (t.rank == 0 && size > 1 ? 1 : t.rank), "a message that is sent before a barrier");
        std::vector<colls::communicator> all;
        for (int i = 0; i < (size == 2 ? 2500 : 20); ++i) {
            all.push_back(colls::mpi::communicator_of(MPI_COMM_WORLD));
            if (i % 100 == 0) works(all.back(), t);
        }
        std::vector<int> x(100'000, 1), y(100'000, 2);
        auto first = colls::start::all_reduce(all[0], x, colls::sum),
             second = colls::start::all_reduce(all[1], y, colls::sum);
        if (t.rank % 2) second.wait();
        first.wait();
        second.wait();
        t.check(x.back() == size && y.back() == 2 * size, "operations of two groups");
        while (!all.empty()) all.erase(t.rank % 2 ? all.begin() : all.end() - 1);
        works(comm, t);
    }
    works(*std::make_unique<colls::communicator>(colls::mpi::communicator_of(MPI_COMM_WORLD, by_messages)), t);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, key);
    MPI_Comm_free_keyval(&key);
}

void refusals(tally& t) {
    const auto refused = [&](MPI_Comm c, const char* said) {
        std::string text = "nothing";
        try {
            colls::mpi::communicator_of(c);
        } catch (const colls::error& failure) {
            text = failure.what();
            t.check(failure.code() == colls::errc::invalid_argument, text);
        }
        t.check(text.find(said) != std::string::npos, "instead of \"" + std::string(said) + "\": " + text);
    };
    refused(MPI_COMM_NULL, "MPI_COMM_NULL");
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > 1) {
        MPI_Comm half, between;
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 3, &between);
        refused(between, "intercommunicator");
        MPI_Comm_free(&between);
        MPI_Comm_free(&half);
    }
    colls::communicator comm = colls::mpi::communicator_of(MPI_COMM_WORLD, by_messages);
    int code = 0;
    try {
        comm.shrink();
    } catch (const colls::error& failure) {
        code = static_cast<int>(failure.code());
    }
    t.check(code == static_cast<int>(colls::errc::unsupported), "shrink");
}

/// Where this rank stands, for `check`, when the program does not end.
void print_stack(int) {
    void* frames[64];
    backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
}

}  // namespace

int main(int argc, char** argv) {
    std::signal(SIGUSR1, print_stack);
    const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 1;
    const std::uint64_t calls = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 500;
    tally t;
    try {
        colls::mpi::communicator_of(MPI_COMM_WORLD, by_messages);
        t.check(false, "a communicator before MPI_Init");
    } catch (const colls::error& failure) {
        t.check(failure.code() == colls::errc::invalid_argument, failure.what());
    }
    int given = MPI_THREAD_SINGLE;
    if (seed % 2 == 0)
        MPI_Init(&argc, &argv);
    else
        MPI_Init_thread(&argc, &argv, seed % 4 == 1 ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &given);
    int size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &t.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const auto section = [&, begin = MPI_Wtime()](const char* name) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (t.rank == 0) std::printf("%6.1f s: %s\n", MPI_Wtime() - begin, name);
        std::fflush(stdout);
    };
    try {
        section("transports");
        transports(seed, t);
        section("contract of transports");
        std::vector<std::shared_ptr<colls::detail::mpi_context>> contexts;
        contract(contexts, t);
        section("ends of transports");
        ends_of_transports(t);
        section("limits of transports");
        limits(t);
        {
            section("random calls");
            colls::communicator comm = colls::mpi::communicator_of(MPI_COMM_WORLD, by_messages);
            t.check(comm.rank() == t.rank && comm.size() == size, "ranks");
            own_messages own;
            random_calls(comm, seed, calls, {[&] { own.begin(); }, [&] { own.end(t); }, same_everywhere}, t);
            section("reproducible bits");
            reproducible_bits(comm, seed, t);
            section("exact bits");
            exact_bits(comm, seed, t);
            section("messages");
            messages(comm, seed, t);
            section("splits");
            splits(comm, seed, t);
            section("several threads");
            if (given >= MPI_THREAD_SERIALIZED) several_threads(comm, t);
        }
        section("sub-communicators");
        sub_communicators(t);
        section("two groups");
        two_groups(t);
        section("leaving");
        leaves(t);
        section("shared memory");
        shared_memory(t);
        section("refusals");
        refusals(t);
        section("disagreements");
        for (int how = 0; size > 1 && how < disagreements; ++how) {
            colls::communicator comm = colls::mpi::communicator_of(MPI_COMM_WORLD, by_messages);
            disagree(
                comm, how, how == 10 ? 0 : static_cast<int>(seed + static_cast<unsigned>(how)) % size,
                [] { MPI_Barrier(MPI_COMM_WORLD); }, t);
        }
        section("many");
        many(t);
    } catch (const std::exception& failure) {
        std::printf("rank %d: %s\n", t.rank, failure.what());
        std::fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    unsigned long long own[2] = {t.checked, t.wrong}, all[2] = {};
    MPI_Allreduce(own, all, 2, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    section("end");
    if (t.rank == 0)
        std::printf("mpi_test: seed %llu, %d ranks, %llu calls checked, %llu wrong\n",
            static_cast<unsigned long long>(seed), size, all[0], all[1]);
    MPI_Finalize();
    return all[1] == 0 ? 0 : 1;
}
