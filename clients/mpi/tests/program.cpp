// An MPI program that knows nothing of colls: it calls every collective, blocking and not, and compares each result,
// and every byte around it, with what it computes itself.
//
//     program [COMMUNICATORS] [threads] [types] [derived] [extremes] [failures]
//
// How many communicators are made and freed; with MPI_THREAD_MULTIPLE; with reductions of every predefined datatype,
// else of one of each kind; also with datatypes that have gaps, operators of the program, and MPI_Reduce in place, on
// which MPICH 4.0 itself fails; also with a datatype whose extent is below 0, with another datatype on each rank, with
// MPI_Alltoallv in place, and with a communicator or a request that is freed while a call is under way, with the status
// of a call, and with one that is to be cancelled, on which Open MPI 4.1 or MPICH 4.0 fail; with calls that do not
// match on two ranks, both of which are to report it, and with calls from and to one buffer, of which MPICH refuses
// some.
//
// Rank 0 prints how often it has called each function on an intracommunicator of several ranks, and otherwise, so that
// it can be compared with what a profiling library has seen.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>
#if defined(OPEN_MPI) && MPI_VERSION < 4
#include <mpi-ext.h>
#endif

#include <sched.h>
#include <sys/mman.h>
#include <algorithm>
#include <atomic>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

// COLLS_TEST_LARGE: the functions that take counts as MPI_Count, in all calls.
#ifdef COLLS_TEST_LARGE
#include "large_counts.hpp"
#else
#define COUNT_SUFFIX ""
using count_type = int;
using place_type = int;
using address_type = MPI_Aint;
#endif

// Persistent collectives, which Open MPI 4 has as an extension.
#if MPI_VERSION >= 4
#define HAS_PERSISTENT 1
#define PERSISTENT(name) (&MPI_##name##_init)
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ) && OMPI_HAVE_MPI_EXT_PCOLLREQ
#define HAS_PERSISTENT 1
#define PERSISTENT(name) (&MPIX_##name##_init)
#else
#define HAS_PERSISTENT 0
#define PERSISTENT(name) nullptr
#endif
#ifdef OPEN_MPI
constexpr bool refuses_null = false;  // of a buffer that is not significant
#else
constexpr bool refuses_null = true;
#endif
// The blocking, the non-blocking and the persistent form of a call.
#define FORMS(name, started) \
    "MPI_" #name, "MPI_" #started, "MPI_" #name "_init", &MPI_##name, &MPI_##started, PERSISTENT(name)

namespace {

// ---- what is counted ------------------------------------------------------------------------------------------------

std::atomic<long> checked = 0, wrong = 0;
struct calls {
    long of_several = 0, others = 0;
};
std::map<std::string, calls> made;
std::mutex made_mutex;

void expect(bool right, const char* what) {
    ++checked;
    if (right || ++wrong > 20) return;
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::printf("rank %d: wrong: %s\n", rank, what);
    std::fflush(stdout);
}
// 4, or 0: it is another MPI.
int mpich_version() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
    int length = 0, version = 0;
    MPI_Get_library_version(text, &length);
    return std::sscanf(text, "MPICH Version: %d", &version) == 1 ? version : 0;
}
int rank_in(MPI_Comm comm) {
    int rank = 0;
    MPI_Comm_rank(comm, &rank);
    return rank;
}
int size_of(MPI_Comm comm) {
    int size = 0;
    MPI_Comm_size(comm, &size);
    return size;
}
// The program names a function without the suffix of those that take counts as MPI_Count.
std::string counted_name(std::string name) {
    return name.find("arrier") == std::string::npos ? name + COUNT_SUFFIX : name;
}
// Before each collective call.
void calling(const char* function, MPI_Comm comm) {
    int between = 0;
    MPI_Comm_test_inter(comm, &between);
    const std::lock_guard lock(made_mutex);
    calls& c = made[counted_name(function)];
    ++(between == 0 && size_of(comm) > 1 ? c.of_several : c.others);
}

/// That on a communicator without other calls, which needs no group of colls.
void first_barrier(MPI_Comm comm) {
    {
        const std::lock_guard lock(made_mutex);
        ++made["MPI_Barrier"].others;
    }
    MPI_Barrier(comm);
}

enum class form { blocking, started, persistent };
form calls_are = form::blocking;
int completions = 0;

/// Looks until `over` is set. Ranks may share cores: those that have nothing to do leave them to the others.
template <class Look>
void look_until(const int& over, const Look& look) {
    look();
    while (over == 0) {
        sched_yield();
        look();
    }
}

// What a request is before a function waits for it: a persistent one stays, and may be one that has not been started.
enum class request_is { started_once, persistent, inactive };

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
constexpr int functions_that_complete = 12;
#else
constexpr int functions_that_complete = 9;
#endif
// By each of the functions in turn.
void complete(MPI_Request request, request_is kind = request_is::started_once) {
    const int which = kind == request_is::inactive ? MPI_UNDEFINED : 0;
    const int how_many = kind == request_is::inactive ? MPI_UNDEFINED : 1;
    int over = 0, index = -1;
    MPI_Status status;
    std::memset(&status, 0, sizeof status);
    switch (completions++ % functions_that_complete) {
        case 0:
            MPI_Wait(&request, &status);
            break;
        case 1:
            look_until(over, [&] { MPI_Test(&request, &over, &status); });
            break;
        case 2:
            MPI_Waitall(1, &request, &status);
            break;
        case 3:
            look_until(over, [&] { MPI_Testall(1, &request, &over, MPI_STATUSES_IGNORE); });
            break;
        case 4:
            MPI_Waitany(1, &request, &index, &status);
            expect(index == which, "MPI_Waitany of one request");
            break;
        case 5:
            look_until(over, [&] { MPI_Testany(1, &request, &index, &over, &status); });
            expect(index == which, "MPI_Testany of one request");
            break;
        case 6:
            MPI_Waitsome(1, &request, &over, &index, &status);
            expect(over == how_many && (over != 1 || index == 0), "MPI_Waitsome of one request");
            break;
        case 7:
            look_until(over, [&] { MPI_Testsome(1, &request, &over, &index, &status); });
            expect(over == how_many && (over != 1 || index == 0), "MPI_Testsome of one request");
            break;
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
        case 9:
            look_until(over, [&] { MPI_Request_get_status_all(1, &request, &over, MPI_STATUSES_IGNORE); });
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            break;
        case 10:
            look_until(over, [&] { MPI_Request_get_status_any(1, &request, &index, &over, &status); });
            expect(index == which, "MPI_Request_get_status_any of one request");
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            break;
        case 11:
            look_until(over, [&] { MPI_Request_get_status_some(1, &request, &over, &index, &status); });
            expect(over == how_many && (over != 1 || index == 0), "MPI_Request_get_status_some of one request");
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            break;
#endif
        default:
            look_until(over, [&] { MPI_Request_get_status(request, &over, &status); });
            expect(request != MPI_REQUEST_NULL, "MPI_Request_get_status keeps the request");
            MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    expect((request != MPI_REQUEST_NULL) == (kind != request_is::started_once),
        "a request that is complete is null, but a persistent one");
}

template <class Blocking, class Starting, class Preparing, class... A>
void call(const char* name, const char* name_of_started, [[maybe_unused]] const char* name_of_persistent,
    Blocking* blocking, Starting* starting, [[maybe_unused]] Preparing preparing, MPI_Comm comm,
    const A&... arguments) {
    MPI_Request request = MPI_REQUEST_NULL;
    switch (calls_are) {
        case form::blocking:
            calling(name, comm);
            blocking(arguments..., comm);
            break;
        case form::started:
            calling(name_of_started, comm);
            starting(arguments..., comm, &request);
            complete(request);
            break;
        default:
            if constexpr (HAS_PERSISTENT) {
                preparing(arguments..., comm, MPI_INFO_NULL, &request);
                calling(name_of_persistent, comm);
                MPI_Start(&request);
                complete(request, request_is::persistent);
                MPI_Request_free(&request);
                expect(request == MPI_REQUEST_NULL, "MPI_Request_free of a persistent call");
            }
    }
}

// ---- data that is moved ---------------------------------------------------------------------------------------------

/// Bytes by chance, of which each message is a part.
const std::vector<std::byte>& noise() {
    static const std::vector<std::byte> all = [] {
        std::vector<std::byte> bytes(1 << 19);
        std::uint64_t x = 0x9e3779b97f4a7c15u;
        for (std::byte& b : bytes) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            b = static_cast<std::byte>(x >> 56);
        }
        return bytes;
    }();
    return all;
}
// What rank `from` sends to rank `to` in the call `salt`.
const std::byte* sent_bytes(int from, int to, int salt, std::size_t length) {
    auto x = static_cast<std::uint64_t>(from) * 0xbf58476d1ce4e5b9u +
             static_cast<std::uint64_t>(to) * 0x94d049bb133111ebu +
             static_cast<std::uint64_t>(salt) * 0x2545f4914f6cdd1du;
    x ^= x >> 31;
    x *= 0xd6e8feb86659fd93u;
    const std::size_t begin = x >> 48;
    if (begin + length > noise().size()) std::abort();
    return noise().data() + begin;
}

/// A datatype, and where its data lies, in the order of the signature.
struct shape {
    const char* name;
    MPI_Datatype type;
    int each;  ///< elements of the type that make one unit of the family
    std::vector<std::pair<std::ptrdiff_t, std::size_t>> places;
    std::ptrdiff_t extent;

    std::size_t bytes() const {
        std::size_t all = 0;
        for (const auto& [at, length] : places) all += length;
        return all;
    }
};

std::vector<MPI_Datatype> to_free;
MPI_Datatype committed(MPI_Datatype type) {
    MPI_Type_commit(&type);
    to_free.push_back(type);
    return type;
}
MPI_Datatype resized(MPI_Datatype type, MPI_Aint lower, MPI_Aint extent) {
    MPI_Datatype made_type = MPI_DATATYPE_NULL;
    MPI_Type_create_resized(type, lower, extent, &made_type);
    to_free.push_back(type);
    return committed(made_type);
}

struct padded {
    char c;
    double d;
    int i;
};
MPI_Datatype type_of_padded() {
    const count_type lengths[] = {1, 1, 1};
    const address_type at[] = {offsetof(padded, c), offsetof(padded, d), offsetof(padded, i)};
    const MPI_Datatype types[] = {MPI_CHAR, MPI_DOUBLE, MPI_INT};
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_create_struct(3, lengths, at, types, &type);
    return resized(type, 0, sizeof(padded));
}

// Units of six ints, in ways that a rank may choose among: their signatures are the same.
std::vector<shape> shapes_of_six_ints(bool extremes_too) {
    std::vector<shape> all;
    all.push_back({"MPI_INT", MPI_INT, 6, {{0, 4}}, 4});
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_vector(3, 2, 4, MPI_INT, &type);
    all.push_back({"vector", resized(type, 0, 48), 1, {{0, 8}, {16, 8}, {32, 8}}, 48});
    const count_type one[] = {1, 1, 1, 1, 1, 1}, backwards[] = {5, 4, 3, 2, 1, 0};
    MPI_Type_indexed(6, one, backwards, MPI_INT, &type);
    all.push_back({"backwards", committed(type), 1, {{20, 4}, {16, 4}, {12, 4}, {8, 4}, {4, 4}, {0, 4}}, 24});
    const count_type three[] = {3, 3};
    const address_type around[] = {-16, 8};
    MPI_Type_create_hindexed(2, three, around, MPI_INT, &type);
    all.push_back({"lower bound below 0", resized(type, -16, 40), 1, {{-16, 12}, {8, 12}}, 40});
    MPI_Type_contiguous(3, MPI_INT, &type);
    all.push_back({"contiguous", committed(type), 2, {{0, 12}}, 12});
    if (extremes_too) {
        MPI_Type_vector(2, 3, 6, MPI_INT, &type);
        all.push_back({"towards lower addresses", resized(type, 0, -48), 1, {{0, 12}, {24, 12}}, -48});
    }
    return all;
}

/// Memory for `units` units of a shape, with 64 bytes on both sides that nothing may touch.
class area {
public:
    area(const shape& s, int units) : shape_(s), elements_(units * s.each) {
        std::ptrdiff_t low = 0, high = 0;
        for (const auto& [at, length] : s.places)
            for (const std::ptrdiff_t e : {std::ptrdiff_t{0}, std::ptrdiff_t{std::max(0, elements_ - 1)}}) {
                low = std::min(low, at + e * s.extent);
                high = std::max(high, at + e * s.extent + static_cast<std::ptrdiff_t>(length));
            }
        zero_ = 64 + (-low + 15) / 16 * 16;
        memory_.assign(static_cast<std::size_t>(zero_ + high + 64), std::byte{0xa5});
        expected_ = memory_;
    }
    void* base() { return memory_.data() + zero_; }
    MPI_Datatype type() const { return shape_.type; }
    /// In elements of the type.
    int count(int units) const { return units * shape_.each; }

    /// The rank has `units` units at `unit`, or is to receive them: those that `from` sends to `to`.
    void put(int unit, int units, int from, int to, int salt) {
        write(memory_, unit, units, from, to, salt);
        write(expected_, unit, units, from, to, salt);
    }
    void expect_data(int unit, int units, int from, int to, int salt) { write(expected_, unit, units, from, to, salt); }
    void check(const char* what) const {
        expect(memory_ == expected_, (std::string(what) + ", " + shape_.name).c_str());
    }

private:
    void write(std::vector<std::byte>& memory, int unit, int units, int from, int to, int salt) const {
        const int first = unit * shape_.each, count = units * shape_.each;
        const std::byte* data = sent_bytes(from, to, salt, static_cast<std::size_t>(count) * shape_.bytes());
        for (int e = first; e < first + count; ++e) {
            for (const auto& [at, length] : shape_.places) {
                std::memcpy(memory.data() + zero_ + e * shape_.extent + at, data, length);
                data += length;
            }
        }
    }

    const shape& shape_;
    const int elements_;
    std::ptrdiff_t zero_ = 0;
    std::vector<std::byte> memory_, expected_;
};

int salts = 0;
bool derived = false, extremes = false;

/// All calls that move data, on one communicator. `of(rank)` is the shape that a rank uses.
template <class ShapeOf>
void move_data(MPI_Comm comm, const ShapeOf& of, int units) {
    const int rank = rank_in(comm), size = size_of(comm), salt = ++salts;
    const shape& mine = of(rank);
    const shape& other = of(rank + 1);
    const int everyone = size;  // as a receiver
    // With gaps between blocks, which lie in reverse order; rank r's has r % 3 * units units.
    const auto length = [&](int r) { return r % 3 * units; };
    const auto place = [&](int r) { return (size - 1 - r) * (2 * units + 1) + 1; };
    const int all_places = size * (2 * units + 1) + 1;

    for (int root = 0; root < size; ++root) {
        {
            area a(mine, units);
            if (rank == root)
                a.put(0, units, root, everyone, salt);
            else
                a.expect_data(0, units, root, everyone, salt);
            call(FORMS(Bcast, Ibcast), comm, a.base(), a.count(units), a.type(), root);
            a.check("MPI_Bcast");
        }
        for (const bool in_place : {false, true}) {
            const bool here = in_place && rank == root;
            area in(mine, units), out(other, units * size);
            in.put(0, units, rank, root, salt);
            if (rank == root)
                for (int r = 0; r < size; ++r) {
                    if (here && r == rank)
                        out.put(r * units, units, r, root, salt);
                    else
                        out.expect_data(r * units, units, r, root, salt);
                }
            call(FORMS(Gather, Igather), comm, here ? MPI_IN_PLACE : in.base(), in.count(units), in.type(),
                rank == root ? out.base() : nullptr, out.count(units), out.type(), root);
            in.check("MPI_Gather, input");
            out.check("MPI_Gather");

            area from(mine, units * size), to(other, units);
            if (rank == root)
                for (int r = 0; r < size; ++r) from.put(r * units, units, root, r, salt);
            if (!here) to.expect_data(0, units, root, rank, salt);
            call(FORMS(Scatter, Iscatter), comm, rank == root ? from.base() : nullptr, from.count(units), from.type(),
                here ? MPI_IN_PLACE : to.base(), to.count(units), to.type(), root);
            from.check("MPI_Scatter, input");
            to.check("MPI_Scatter");

            std::vector<count_type> counts;
            std::vector<place_type> displacements;
            area in_v(mine, length(rank)), out_v(other, all_places);
            in_v.put(0, length(rank), rank, root, salt);
            if (rank == root)
                for (int r = 0; r < size; ++r) {
                    counts.push_back(out_v.count(length(r)));
                    displacements.push_back(out_v.count(place(r)));
                    if (here && r == rank)
                        out_v.put(place(r), length(r), r, root, salt);
                    else
                        out_v.expect_data(place(r), length(r), r, root, salt);
                }
            call(FORMS(Gatherv, Igatherv), comm, here ? MPI_IN_PLACE : in_v.base(), in_v.count(length(rank)),
                in_v.type(), out_v.base(), counts.data(), displacements.data(), out_v.type(), root);
            in_v.check("MPI_Gatherv, input");
            out_v.check("MPI_Gatherv");

            area from_v(mine, all_places), to_v(other, length(rank));
            counts.clear();
            displacements.clear();
            if (rank == root)
                for (int r = 0; r < size; ++r) {
                    counts.push_back(from_v.count(length(r)));
                    displacements.push_back(from_v.count(place(r)));
                    from_v.put(place(r), length(r), root, r, salt);
                }
            if (!here) to_v.expect_data(0, length(rank), root, rank, salt);
            call(FORMS(Scatterv, Iscatterv), comm, from_v.base(), counts.data(), displacements.data(), from_v.type(),
                here ? MPI_IN_PLACE : to_v.base(), to_v.count(length(rank)), to_v.type(), root);
            from_v.check("MPI_Scatterv, input");
            to_v.check("MPI_Scatterv");
        }
    }

    for (const bool in_place : {false, true}) {
        area in(mine, units), out(other, units * size);
        in.put(0, units, rank, everyone, salt);
        for (int r = 0; r < size; ++r)
            if (in_place && r == rank)
                out.put(r * units, units, r, everyone, salt);
            else
                out.expect_data(r * units, units, r, everyone, salt);
        call(FORMS(Allgather, Iallgather), comm, in_place ? MPI_IN_PLACE : in.base(), in.count(units), in.type(),
            out.base(), out.count(units), out.type());
        in.check("MPI_Allgather, input");
        out.check("MPI_Allgather");

        // Once with gaps, once in a row.
        for (const bool gaps : {false, true}) {
            std::vector<count_type> counts;
            std::vector<place_type> displacements;
            area in_v(mine, length(rank)), out_v(other, all_places);
            in_v.put(0, length(rank), rank, everyone, salt);
            for (int r = 0, behind = 0; r < size; behind += length(r++)) {
                const int at = gaps ? place(r) : behind;
                counts.push_back(out_v.count(length(r)));
                displacements.push_back(out_v.count(at));
                if (in_place && r == rank)
                    out_v.put(at, length(r), r, everyone, salt);
                else
                    out_v.expect_data(at, length(r), r, everyone, salt);
            }
            call(FORMS(Allgatherv, Iallgatherv), comm, in_place ? MPI_IN_PLACE : in_v.base(), in_v.count(length(rank)),
                in_v.type(), out_v.base(), counts.data(), displacements.data(), out_v.type());
            in_v.check("MPI_Allgatherv, input");
            out_v.check("MPI_Allgatherv");
        }

        area sent(mine, units * size), received(other, units * size);
        for (int r = 0; r < size; ++r) {
            sent.put(r * units, units, rank, r, salt);
            if (in_place) received.put(r * units, units, rank, r, salt);
            received.expect_data(r * units, units, r, rank, salt);
        }
        call(FORMS(Alltoall, Ialltoall), comm, in_place ? MPI_IN_PLACE : sent.base(), sent.count(units), sent.type(),
            received.base(), received.count(units), received.type());
        sent.check("MPI_Alltoall, input");
        received.check("MPI_Alltoall");

        // Between ranks a and b as many units both ways, as in place demands.
        const bool replace = in_place && extremes;
        const auto between = [&](int a, int b) { return length(a + b); };
        area sent_v(mine, all_places), received_v(other, all_places), received_w(other, all_places);
        std::vector<count_type> sent_counts, counts;
        std::vector<place_type> sent_at, at, sent_bytes_at, bytes_at;
        std::vector<MPI_Datatype> sent_types, types;
        for (int r = 0; r < size; ++r) {
            const int n = between(rank, r);
            sent_counts.push_back(sent_v.count(n));
            sent_at.push_back(sent_v.count(place(r)));
            sent_bytes_at.push_back(static_cast<int>(sent_v.count(place(r)) * mine.extent));
            sent_types.push_back(mine.type);
            counts.push_back(received_v.count(n));
            at.push_back(received_v.count(place(size - 1 - r)));
            bytes_at.push_back(static_cast<int>(received_v.count(place(size - 1 - r)) * other.extent));
            types.push_back(other.type);
            sent_v.put(place(r), n, rank, r, salt);
            for (area* const a : {&received_v, &received_w}) {
                if (replace) a->put(place(size - 1 - r), n, rank, r, salt);
                a->expect_data(place(size - 1 - r), n, r, rank, salt);
            }
        }
        call(FORMS(Alltoallv, Ialltoallv), comm, replace ? MPI_IN_PLACE : sent_v.base(), sent_counts.data(),
            sent_at.data(), sent_v.type(), received_v.base(), counts.data(), at.data(), received_v.type());
        sent_v.check("MPI_Alltoallv, input");
        received_v.check("MPI_Alltoallv");
        call(FORMS(Alltoallw, Ialltoallw), comm, replace ? MPI_IN_PLACE : sent_v.base(), sent_counts.data(),
            sent_bytes_at.data(), sent_types.data(), received_w.base(), counts.data(), bytes_at.data(), types.data());
        sent_v.check("MPI_Alltoallw, input");
        received_w.check("MPI_Alltoallw");
    }
    call(FORMS(Barrier, Ibarrier), comm);
}

// ---- data that neighbours exchange ----------------------------------------------------------------------------------

/// A block between neighbours. `edge` tells those between two ranks apart: in a Cartesian topology where it leaves,
/// else its number among them.
struct neighbour {
    int rank, edge;
};
struct neighbour_list {
    std::vector<neighbour> from, to;
};
// What MPI says of the communicator's topology.
neighbour_list neighbours_in(MPI_Comm comm) {
    neighbour_list all;
    int topology = MPI_UNDEFINED;
    MPI_Topo_test(comm, &topology);
    if (topology == MPI_CART) {
        int dimensions = 0;
        MPI_Cartdim_get(comm, &dimensions);
        for (int d = 0; d < dimensions; ++d) {
            int below = 0, above = 0;
            MPI_Cart_shift(comm, d, 1, &below, &above);
            // What comes from below has left upwards.
            for (const auto& [rank, upwards] : {std::pair(below, 0), std::pair(above, 1)}) {
                all.to.push_back({rank, 2 * d + upwards});
                all.from.push_back({rank, 2 * d + 1 - upwards});
            }
        }
        return all;
    }
    std::vector<int> from, to;
    if (topology == MPI_GRAPH) {
        int count = 0;
        MPI_Graph_neighbors_count(comm, rank_in(comm), &count);
        from.resize(static_cast<std::size_t>(count));
        MPI_Graph_neighbors(comm, rank_in(comm), count, from.data());
        to = from;
    } else {
        int in = 0, out = 0, weighted = 0;
        MPI_Dist_graph_neighbors_count(comm, &in, &out, &weighted);
        from.resize(static_cast<std::size_t>(in));
        to.resize(static_cast<std::size_t>(out));
        std::vector<int> in_weights(from), out_weights(to);
        MPI_Dist_graph_neighbors(comm, in, from.data(), in_weights.data(), out, to.data(), out_weights.data());
    }
    const auto numbered = [](const std::vector<int>& ranks, std::vector<neighbour>& list) {
        for (const int r : ranks) {
            const auto before = [r](const neighbour& n) { return n.rank == r; };
            list.push_back({r, static_cast<int>(std::count_if(list.begin(), list.end(), before))});
        }
    };
    numbered(from, all.from);
    numbered(to, all.to);
    return all;
}

/// False: the calls are those of MPICH 4.0 itself, which matches several blocks between two ranks in other orders,
/// fails in MPI_Neighbor_alltoallw on distributed graphs, and takes milliseconds for a call where ranks share cores.
bool all_is_right() { return mpich_version() == 0 || (extremes && size_of(MPI_COMM_WORLD) > 1); }
/// An array without elements. MPI refuses null, which a rank without neighbours may have.
template <class T>
std::vector<T> none() {
    std::vector<T> list;
    if (!extremes || size_of(MPI_COMM_WORLD) == 1) list.reserve(1);
    return list;
}
/// All neighbourhood collectives, on one communicator. `of(rank)` is the shape that a rank uses.
template <class ShapeOf>
void move_among_neighbours(MPI_Comm comm, const ShapeOf& of, int units, const char* topology) {
    const int rank = rank_in(comm), salt = ++salts, everyone = size_of(comm);
    const shape &mine = of(rank), &other = of(rank + 1);
    const neighbour_list all = neighbours_in(comm);
    const int in = static_cast<int>(all.from.size()), out = static_cast<int>(all.to.size());
    const auto length = [&](int from, int to, int edge) { return (from + 2 * to + edge) % 3 * units; };
    // With gaps, in reverse order.
    const auto place = [&](int i, int blocks) { return (blocks - 1 - i) * (2 * units + 1) + 1; };
    const auto all_places = [&](int blocks) { return blocks * (2 * units + 1) + 1; };
    const auto check = [&](const area& sent, const area& received, const char* name) {
        sent.check((std::string(name) + ", input, " + topology).c_str());
        received.check((std::string(name) + ", " + topology).c_str());
    };
    {
        area sent(mine, units), received(other, units * in);
        sent.put(0, units, rank, everyone, salt);
        for (int i = 0; i < in; ++i)
            if (const int r = all.from[static_cast<std::size_t>(i)].rank; r != MPI_PROC_NULL)
                received.expect_data(i * units, units, r, everyone, salt);
        call(FORMS(Neighbor_allgather, Ineighbor_allgather), comm, sent.base(), sent.count(units), sent.type(),
            received.base(), received.count(units), received.type());
        check(sent, received, "MPI_Neighbor_allgather");
    }
    {
        std::vector<count_type> counts = none<count_type>();
        std::vector<place_type> at = none<place_type>();
        area sent(mine, length(rank, 0, 0)), received(other, all_places(in));
        sent.put(0, length(rank, 0, 0), rank, everyone, salt);
        for (int i = 0; i < in; ++i) {
            const int r = all.from[static_cast<std::size_t>(i)].rank, n = r == MPI_PROC_NULL ? units : length(r, 0, 0);
            counts.push_back(received.count(n));
            at.push_back(received.count(place(i, in)));
            if (r != MPI_PROC_NULL) received.expect_data(place(i, in), n, r, everyone, salt);
        }
        call(FORMS(Neighbor_allgatherv, Ineighbor_allgatherv), comm, sent.base(), sent.count(length(rank, 0, 0)),
            sent.type(), received.base(), counts.data(), at.data(), received.type());
        check(sent, received, "MPI_Neighbor_allgatherv");
    }
    {
        area sent(mine, units * out), received(other, units * in);
        for (int i = 0; i < out; ++i)
            if (const auto [r, edge] = all.to[static_cast<std::size_t>(i)]; r != MPI_PROC_NULL)
                sent.put(i * units, units, rank, r, salt + 1000 * edge);
        for (int i = 0; i < in; ++i)
            if (const auto [r, edge] = all.from[static_cast<std::size_t>(i)]; r != MPI_PROC_NULL)
                received.expect_data(i * units, units, r, rank, salt + 1000 * edge);
        call(FORMS(Neighbor_alltoall, Ineighbor_alltoall), comm, sent.base(), sent.count(units), sent.type(),
            received.base(), received.count(units), received.type());
        check(sent, received, "MPI_Neighbor_alltoall");
    }
    area sent(mine, all_places(out)), received(other, all_places(in)), received_w(other, all_places(in));
    std::vector<count_type> sent_counts = none<count_type>(), counts = none<count_type>();
    std::vector<place_type> sent_at = none<place_type>(), at = none<place_type>();
    std::vector<MPI_Aint> sent_bytes_at = none<MPI_Aint>(), bytes_at = none<MPI_Aint>();
    std::vector<MPI_Datatype> sent_types = none<MPI_Datatype>(), types = none<MPI_Datatype>();
    sent_types.insert(sent_types.end(), all.to.size(), mine.type);
    types.insert(types.end(), all.from.size(), other.type);
    for (int i = 0; i < out; ++i) {
        const auto [r, edge] = all.to[static_cast<std::size_t>(i)];
        const int n = r == MPI_PROC_NULL ? units : length(rank, r, edge);
        sent_counts.push_back(sent.count(n));
        sent_at.push_back(sent.count(place(i, out)));
        sent_bytes_at.push_back(sent.count(place(i, out)) * mine.extent);
        if (r != MPI_PROC_NULL) sent.put(place(i, out), n, rank, r, salt + 1000 * edge);
    }
    for (int i = 0; i < in; ++i) {
        const auto [r, edge] = all.from[static_cast<std::size_t>(i)];
        const int n = r == MPI_PROC_NULL ? units : length(r, rank, edge);
        counts.push_back(received.count(n));
        at.push_back(received.count(place(i, in)));
        bytes_at.push_back(received.count(place(i, in)) * other.extent);
        for (area* const a : {&received, &received_w})
            if (r != MPI_PROC_NULL) a->expect_data(place(i, in), n, r, rank, salt + 1000 * edge);
    }
    call(FORMS(Neighbor_alltoallv, Ineighbor_alltoallv), comm, sent.base(), sent_counts.data(), sent_at.data(),
        sent.type(), received.base(), counts.data(), at.data(), received.type());
    check(sent, received, "MPI_Neighbor_alltoallv");
    int kind = MPI_UNDEFINED;
    MPI_Topo_test(comm, &kind);
    if (kind == MPI_DIST_GRAPH && !all_is_right()) return;
    call(FORMS(Neighbor_alltoallw, Ineighbor_alltoallw), comm, sent.base(), sent_counts.data(), sent_bytes_at.data(),
        sent_types.data(), received_w.base(), counts.data(), bytes_at.data(), types.data());
    check(sent, received_w, "MPI_Neighbor_alltoallw");
}

/// Calls use(communicator, name, number) for topologies of each kind, some of them by chance, the same on all ranks.
template <class Use>
void with_topologies(const Use& use) {
    const int size = size_of(MPI_COMM_WORLD), rank = rank_in(MPI_COMM_WORLD);
    int number = 0;
    const auto use_and_free = [&](MPI_Comm comm, const char* name) {
        const int behind = salts + 100;  // also on ranks that are not in it
        if (comm != MPI_COMM_NULL) {
            use(comm, name, number);
            MPI_Comm_free(&comm);
        }
        ++number;
        salts = behind;
    };
    MPI_Comm comm = MPI_COMM_NULL;
    // Lines and circles, also of two ranks and of one, where a rank is its own neighbour.
    for (int periods = 0; periods < 4; ++periods)
        for (int length = 1; length <= size; ++length) {
            const int lengths[] = {length, size / length}, around[] = {periods & 1, periods >> 1};
            if (!all_is_right() && ((around[0] != 0 && lengths[0] <= 2) || (around[1] != 0 && lengths[1] <= 2)))
                continue;
            MPI_Cart_create(MPI_COMM_WORLD, 2, lengths, around, periods & 1, &comm);
            use_and_free(comm, "a grid");
        }
    std::uint32_t x = 12345;
    const auto chance = [&x](std::uint32_t of) { return static_cast<int>((x = x * 1664525 + 1013904223) / 7 % of); };
    for (int round = 0; round < 6; ++round) {
        // How many edges there are from each rank to each other one. The last rank has no neighbours once.
        const auto n = static_cast<std::size_t>(size);
        std::vector<std::vector<int>> edges(n, std::vector<int>(n));
        for (std::size_t a = 0; a < n; ++a)
            for (std::size_t b = 0; b < n; ++b)
                edges[a][b] = round == 2 && std::max(a, b) + 1 == n ? 0 : chance(round < 3 ? 2 : 4);
        // The neighbours of a rank, by chance in another order on each, but from a node of MPI_Graph_create.
        const auto listed = [&](const auto& edges_to) {
            std::vector<int> list;
            list.reserve(1);
            for (int r = 0; r < size; ++r)
                list.insert(list.end(), static_cast<std::size_t>(edges_to(static_cast<std::size_t>(r))), r);
            for (std::size_t i = list.size(); i > 1; --i)
                std::swap(list[i - 1], list[static_cast<std::size_t>(chance(static_cast<std::uint32_t>(i)))]);
            return list;
        };
        std::vector<std::vector<int>> from, to;
        for (std::size_t own = 0; own < n; ++own) {
            from.push_back(listed([&](std::size_t r) { return edges[r][own]; }));
            to.push_back(listed([&](std::size_t r) { return edges[own][r]; }));
        }
        if (round < 3 || all_is_right()) {
            const std::vector<int>&own_from = from[static_cast<std::size_t>(rank)],
                  &own_to = to[static_cast<std::size_t>(rank)];
            MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, static_cast<int>(own_from.size()), own_from.data(),
                MPI_UNWEIGHTED, static_cast<int>(own_to.size()), own_to.data(), MPI_UNWEIGHTED, MPI_INFO_NULL,
                round & 1, &comm);
            use_and_free(comm, "a distributed graph of neighbours");
            // The edges from this rank, with weights.
            const int degree = static_cast<int>(own_to.size());
            const std::vector<int> weights(own_to.size() + 1, 3);
            MPI_Dist_graph_create(
                MPI_COMM_WORLD, 1, &rank, &degree, own_to.data(), weights.data(), MPI_INFO_NULL, round & 1, &comm);
            use_and_free(comm, "a distributed graph");
        }
        if (round < 3) {
            std::vector<int> ends, all;
            all.reserve(1);
            for (std::size_t a = 0; a < n; ++a) {
                const std::vector<int> own = listed([&](std::size_t b) { return std::max(edges[a][b], edges[b][a]); });
                all.insert(all.end(), own.begin(), own.end());
                ends.push_back(static_cast<int>(all.size()));
            }
            MPI_Graph_create(MPI_COMM_WORLD, size, ends.data(), all.data(), 0, &comm);
            use_and_free(comm, "a graph");
        }
    }
}
void use_neighbours(const std::vector<shape>& family, const shape& wide) {
    // A quarter of these for calls that do not block. Open MPI 4 itself confuses several blocks between two ranks in
    // them, and gets a line alone.
    const bool by_mpi = !extremes || size_of(MPI_COMM_WORLD) == 1;
    with_topologies([&](MPI_Comm comm, const char* name, int number) {
        if (calls_are != form::blocking && (by_mpi ? number > 0 : number % 4 != 1)) return;
        first_barrier(comm);
        calling("MPI_Barrier", comm);  // before calls that do not block: it makes colls' group
        MPI_Barrier(comm);
        const bool all = all_is_right() && calls_are == form::blocking;
        for (const int units : all ? std::vector<int>{0, 1, 5, 400} : std::vector<int>{5}) {
            move_among_neighbours(comm, [&](int) -> const shape& { return wide; }, units, name);
            if (derived) move_among_neighbours(comm, [&](int) -> const shape& { return family[1]; }, units, name);
            if (extremes)
                move_among_neighbours(
                    comm,
                    [&](int r) -> const shape& { return family[static_cast<std::size_t>(r + units) % family.size()]; },
                    units, name);
        }
        if (all_is_right()) move_among_neighbours(comm, [&](int) -> const shape& { return wide; }, 20000, name);
        calling("MPI_Barrier", comm);
        MPI_Barrier(comm);
    });
}

// ---- reductions -----------------------------------------------------------------------------------------------------

/// Elements as the program lays them out, between guards.
template <class T>
class guarded {
public:
    explicit guarded(std::size_t count) : count_(count), memory_((count + 2) * sizeof(T) + 128, std::byte{0xa5}) {}
    T* data() { return reinterpret_cast<T*>(memory_.data() + before()); }
    T& operator[](std::size_t i) { return data()[i]; }
    bool guards_are_whole() const {
        const auto good = [](std::byte b) { return b == std::byte{0xa5}; };
        return std::all_of(memory_.begin(), memory_.begin() + before(), good) &&
               std::all_of(
                   memory_.begin() + before() + static_cast<std::ptrdiff_t>(count_ * sizeof(T)), memory_.end(), good);
    }

private:
    // One element at least: that of a type with a lower bound below 0.
    static constexpr std::ptrdiff_t before() { return (sizeof(T) + 63) / 64 * 64; }
    const std::size_t count_;
    std::vector<std::byte> memory_;
};

/// Reduces by each call and compares with folds from the left in rank order. `make(rank, i)` is a contribution,
/// `fold(a, b)` is a op b, `same(a, b)` compares. `scale` elements of T are one of the datatype.
template <class T, class Make, class Fold, class Same>
void reduce_data(MPI_Comm comm, MPI_Datatype type, MPI_Op op, int count, const char* what, const Make& make,
    const Fold& fold, const Same& same) {
    const int rank = rank_in(comm), size = size_of(comm);
    const auto n = static_cast<std::size_t>(count);
    const auto folded = [&](int ranks, std::size_t i) {
        T x = make(0, i);
        for (int r = 1; r < ranks; ++r) x = fold(x, make(r, i));
        return x;
    };
    const auto fill = [&](guarded<T>& x, std::size_t length) {
        for (std::size_t i = 0; i < length; ++i) x[i] = make(rank, i);
    };
    const auto compare = [&](guarded<T>& x, int ranks, std::size_t first, std::size_t length, const char* call) {
        bool good = x.guards_are_whole();
        for (std::size_t i = 0; i < length; ++i) good = good && same(x[i], folded(ranks, first + i));
        expect(good, (std::string(call) + ", " + what).c_str());
    };

    for (const bool in_place : {false, true}) {
        for (int root = 0; root < size; ++root) {
            const bool here = in_place && derived && rank == root;
            guarded<T> in(n), out(n);
            fill(here ? out : in, n);
            call(FORMS(Reduce, Ireduce), comm, here ? MPI_IN_PLACE : in.data(), rank == root ? out.data() : nullptr,
                count, type, op, root);
            if (rank == root) compare(out, size, 0, n, "MPI_Reduce");
        }
        {
            guarded<T> in(n), out(n);
            fill(in_place ? out : in, n);
            call(FORMS(Allreduce, Iallreduce), comm, in_place ? MPI_IN_PLACE : in.data(), out.data(), count, type, op);
            compare(out, size, 0, n, "MPI_Allreduce");
        }
        {
            guarded<T> in(n), out(n);
            fill(in_place ? out : in, n);
            call(FORMS(Scan, Iscan), comm, in_place ? MPI_IN_PLACE : in.data(), out.data(), count, type, op);
            compare(out, rank + 1, 0, n, "MPI_Scan");
        }
        {
            guarded<T> in(n), out(n);
            fill(in_place ? out : in, n);
            const bool none = !refuses_null && rank == 0 && !in_place;  // the standard asks for no buffer there
            call(FORMS(Exscan, Iexscan), comm, in_place ? MPI_IN_PLACE : in.data(), none ? nullptr : out.data(), count,
                type, op);
            if (rank > 0) compare(out, rank, 0, n, "MPI_Exscan");
        }
        {
            const std::size_t all = n * static_cast<std::size_t>(size);
            guarded<T> in(all), out(in_place ? all : n);
            fill(in_place ? out : in, all);
            call(FORMS(Reduce_scatter_block, Ireduce_scatter_block), comm, in_place ? MPI_IN_PLACE : in.data(),
                out.data(), count, type, op);
            compare(out, size, n * static_cast<std::size_t>(rank), n, "MPI_Reduce_scatter_block");
        }
        {
            std::vector<count_type> counts;
            for (int r = 0; r < size; ++r) counts.push_back(r % 3 == 1 ? 0 : count + r);
            const auto all = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), count_type{0}));
            const auto own = static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]);
            guarded<T> in(all), out(in_place ? all : own);
            fill(in_place ? out : in, all);
            call(FORMS(Reduce_scatter, Ireduce_scatter), comm, in_place ? MPI_IN_PLACE : in.data(), out.data(),
                counts.data(), type, op);
            compare(out, size,
                static_cast<std::size_t>(std::accumulate(counts.begin(), counts.begin() + rank, count_type{0})), own,
                "MPI_Reduce_scatter");
        }
    }
}

// Small numbers, so that floating-point results are exact in any order.
int number(int rank, std::size_t i) { return static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 5 + 3) % 11); }

template <class T>
void reduce_numbers(
    MPI_Comm comm, MPI_Datatype type, const char* name, const std::vector<int>& counts, int large_sum_of = 0) {
    const auto run = [&](MPI_Op op, const char* operation, auto fold, int large = 0) {
        const auto make = [](int rank, std::size_t i) {
            if constexpr (requires { typename T::value_type; })
                return T(static_cast<typename T::value_type>(number(rank, i)),
                    static_cast<typename T::value_type>(number(rank, i + 1)));
            else if constexpr (std::is_same_v<T, bool>)
                return number(rank, i) % 2 == 0;
            else
                return static_cast<T>(number(rank, i));
        };
        const auto by_each_call = [&](int count) {
            reduce_data<T>(comm, type, op, count, (std::string(operation) + " of " + name).c_str(), make, fold,
                [](const T& a, const T& b) { return a == b; });
        };
        for (const int count : counts) by_each_call(count);
        if (large > 0) by_each_call(large);
    };
    constexpr bool complex = requires { typename T::value_type; };
    if constexpr (!std::is_same_v<T, bool>) {
        run(MPI_SUM, "MPI_SUM", [](T a, T b) { return static_cast<T>(a + b); }, large_sum_of);
        run(MPI_PROD, "MPI_PROD", [](T a, T b) { return static_cast<T>(a * b); });
        if constexpr (!complex) {
            run(MPI_MIN, "MPI_MIN", [](T a, T b) { return std::min(a, b); });
            run(MPI_MAX, "MPI_MAX", [](T a, T b) { return std::max(a, b); });
        }
    }
    if constexpr (std::is_integral_v<T>) {
        run(MPI_LAND, "MPI_LAND", [](T a, T b) { return static_cast<T>(a && b); });
        run(MPI_LOR, "MPI_LOR", [](T a, T b) { return static_cast<T>(a || b); });
        run(MPI_LXOR, "MPI_LXOR", [](T a, T b) { return static_cast<T>(!a != !b); });
    }
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        run(MPI_BAND, "MPI_BAND", [](T a, T b) { return static_cast<T>(a & b); });
        run(MPI_BOR, "MPI_BOR", [](T a, T b) { return static_cast<T>(a | b); });
        run(MPI_BXOR, "MPI_BXOR", [](T a, T b) { return static_cast<T>(a ^ b); });
    }
}

template <class V>
void reduce_pairs(MPI_Comm comm, MPI_Datatype type, const char* name) {
    struct pair {
        V value;
        int index;
    };
    const auto make = [](int rank, std::size_t i) {
        pair p{};
        p.value = static_cast<V>(number(rank, i) % 3);
        p.index = 100 - rank * 3;
        return p;
    };
    const auto same = [](const pair& a, const pair& b) { return a.value == b.value && a.index == b.index; };
    for (const int count : {1, 40}) {
        reduce_data<pair>(
            comm, type, MPI_MINLOC, count, (std::string("MPI_MINLOC of ") + name).c_str(), make,
            [](const pair& a, const pair& b) {
                return a.value < b.value || (a.value == b.value && a.index < b.index) ? a : b;
            },
            same);
        reduce_data<pair>(
            comm, type, MPI_MAXLOC, count, (std::string("MPI_MAXLOC of ") + name).c_str(), make,
            [](const pair& a, const pair& b) {
                return a.value > b.value || (a.value == b.value && a.index < b.index) ? a : b;
            },
            same);
    }
}

// Operators of the program's own. x -> a x + b, modulo 2^32: composition is associative, and does not commute.
struct affine {
    std::uint32_t a, b;
    friend bool operator==(const affine&, const affine&) = default;
};
affine composed(const affine& f, const affine& g) { return {f.a * g.a, f.a * g.b + f.b}; }
struct affine_in_gaps {
    std::uint32_t a;
    double unused;
    std::uint32_t b;
};
affine composed_in_gaps(const affine_in_gaps& f, const affine_in_gaps& g) { return composed({f.a, f.b}, {g.a, g.b}); }

MPI_Datatype type_seen = MPI_DATATYPE_NULL;
std::atomic<long> elements_folded = 0;

void note(const count_type* count, const MPI_Datatype* type) {
    elements_folded += *count;
    if (*type != type_seen) expect(false, "an operator gets another datatype than the call");
}
void compose(void* in, void* inout, count_type* count, MPI_Datatype* type) {
    note(count, type);
    const auto* f = static_cast<const affine*>(in);
    auto* g = static_cast<affine*>(inout);
    for (count_type i = 0; i < *count; ++i) g[i] = composed(f[i], g[i]);
}
void compose_in_gaps(void* in, void* inout, count_type* count, MPI_Datatype* type) {
    note(count, type);
    const auto* f = static_cast<const affine_in_gaps*>(in);
    auto* g = static_cast<affine_in_gaps*>(inout);
    for (count_type i = 0; i < *count; ++i) {
        const affine h = composed_in_gaps(f[i], g[i]);
        g[i].a = h.a;
        g[i].b = h.b;
    }
}
// One int, 8 bytes before the address of the element.
struct int_before {
    int value;
    int unused[3];
};
void first_before(void* in, void* inout, count_type* count, MPI_Datatype* type) {
    note(count, type);
    for (count_type i = 0; i < *count; ++i)
        std::memcpy(static_cast<char*>(inout) + 16 * i - 8, static_cast<char*>(in) + 16 * i - 8, sizeof(int));
}
void add_modulo(void* in, void* inout, count_type* count, MPI_Datatype* type) {
    note(count, type);
    for (count_type i = 0; i < *count; ++i)
        static_cast<int*>(inout)[i] = (static_cast<int*>(in)[i] + static_cast<int*>(inout)[i]) % 7;
}

// An operator that expects all elements at once, as one that takes them for a record does.
int all_elements = 0;
std::atomic<int> parts{0};
void add_all(void* in, void* inout, count_type* count, MPI_Datatype*) {
    parts += *count != all_elements;
    for (count_type i = 0; i < *count; ++i) static_cast<long*>(inout)[i] += static_cast<long*>(in)[i];
}
void reduce_whole_operands(MPI_Comm comm) {
    const int rank = rank_in(comm), size = size_of(comm);
    MPI_Op op = MPI_OP_NULL;
    MPI_Op_create(&add_all, 1, &op);
    for (const int count : {1, 7, 20'000}) {
        const auto n = static_cast<std::size_t>(count);
        std::vector<long> in(n), all(n), first(n), before(n);
        for (std::size_t i = 0; i < n; ++i) in[i] = static_cast<long>(i) + rank;
        all_elements = count;
        calling("MPI_Allreduce", comm);
        MPI_Allreduce(in.data(), all.data(), count, MPI_LONG, op, comm);
        calling("MPI_Reduce", comm);
        MPI_Reduce(in.data(), first.data(), count, MPI_LONG, op, size - 1, comm);
        calling("MPI_Scan", comm);
        MPI_Scan(in.data(), before.data(), count, MPI_LONG, op, comm);
        bool good = true;
        for (std::size_t i = 0; i < n; ++i) {
            const auto at = static_cast<long>(i);
            good = good && all[i] == size * at + size * (size - 1) / 2 &&
                   before[i] == (rank + 1) * at + rank * (rank + 1) / 2 && (rank != size - 1 || first[i] == all[i]);
        }
        expect(good, "an operator that expects all elements: results");
    }
    const char* const preloaded = std::getenv("LD_PRELOAD");
    const char* const on = std::getenv("COLLS_MPI");
    const bool is_ours = preloaded != nullptr && std::strstr(preloaded, "colls") != nullptr &&
                         (on == nullptr || std::strcmp(on, "off") != 0);
    expect(parts == 0 || !is_ours, "an operator that expects all elements: it got a part");
    MPI_Op_free(&op);
}

void reduce_by_own_operators(MPI_Comm comm) {
    reduce_whole_operands(comm);
    if (!derived) return;
    const auto make = [](int rank, std::size_t i) {
        return affine{static_cast<std::uint32_t>(2 * number(rank, i) + 3), static_cast<std::uint32_t>(rank + 1) * 17u};
    };
    MPI_Op op = MPI_OP_NULL;
    MPI_Datatype type = MPI_DATATYPE_NULL;

    MPI_Op_create(&compose, 0, &op);
    MPI_Type_contiguous(2, MPI_UINT32_T, &type);
    MPI_Type_commit(&type);
    type_seen = type;
    for (const int count : {0, 1, 9, 5000})
        reduce_data<affine>(comm, type, op, count, "an operator that does not commute", make, &composed,
            [](const affine& a, const affine& b) { return a == b; });
    MPI_Type_free(&type);
    MPI_Op_free(&op);

    MPI_Op_create(&compose_in_gaps, 0, &op);
    const count_type lengths[] = {1, 1};
    const address_type at[] = {offsetof(affine_in_gaps, a), offsetof(affine_in_gaps, b)};
    const MPI_Datatype types[] = {MPI_UINT32_T, MPI_UINT32_T};
    MPI_Datatype bare = MPI_DATATYPE_NULL;
    MPI_Type_create_struct(2, lengths, at, types, &bare);
    MPI_Type_create_resized(bare, 0, sizeof(affine_in_gaps), &type);
    MPI_Type_free(&bare);
    MPI_Type_commit(&type);
    type_seen = type;
    for (const int count : {0, 1, 9, 20000})
        reduce_data<affine_in_gaps>(
            comm, type, op, count, "an operator on a struct with gaps",
            [&](int rank, std::size_t i) {
                const affine f = make(rank, i);
                return affine_in_gaps{f.a, 0.5, f.b};
            },
            [](const affine_in_gaps& f, const affine_in_gaps& g) {
                const affine h = composed_in_gaps(f, g);
                return affine_in_gaps{h.a, 0.5, h.b};
            },
            [](const affine_in_gaps& x, const affine_in_gaps& y) { return x.a == y.a && x.b == y.b; });
    MPI_Type_free(&type);
    MPI_Op_free(&op);

    MPI_Op_create(&add_modulo, 1, &op);
    type_seen = MPI_INT;
    for (const int count : {1, 300})
        reduce_data<int>(
            comm, MPI_INT, op, count, "an operator that commutes", &number, [](int a, int b) { return (a + b) % 7; },
            [](int a, int b) { return a % 7 == b % 7; });
    MPI_Op_free(&op);

    // The address of an element is behind its data: the first element of `guarded` is passed as the one 8 bytes on.
    MPI_Op_create(&first_before, 0, &op);
    const address_type before[] = {-8};
    const count_type one[] = {1};
    MPI_Type_create_hindexed(1, one, before, MPI_INT, &bare);
    MPI_Type_create_resized(bare, -8, sizeof(int_before), &type);
    MPI_Type_free(&bare);
    MPI_Type_commit(&type);
    type_seen = type;
    const int rank = rank_in(comm), size = size_of(comm);
    guarded<int_before> in(50), out(50);
    for (std::size_t i = 0; i < 50; ++i) {
        in[i] = {number(rank, i), {1, 2, 3}};
        out[i] = {-1, {4, 5, 6}};
    }
    calling("MPI_Allreduce", comm);
    MPI_Allreduce(reinterpret_cast<char*>(in.data()) + 8, reinterpret_cast<char*>(out.data()) + 8, 50, type, op, comm);
    bool good = in.guards_are_whole() && out.guards_are_whole();
    for (std::size_t i = 0; i < 50; ++i)
        good = good && out[i].value == number(0, i) && out[i].unused[0] == 4 && out[i].unused[2] == 6;
    expect(good || size == 0, "MPI_Allreduce, a lower bound below 0");
    MPI_Type_free(&type);
    MPI_Op_free(&op);
    if (size > 1) expect(elements_folded > 0, "the program's operators were never called");
}

/// On every datatype, or on one of each kind.
// Elements at absolute addresses, of which the buffer is MPI_BOTTOM.
void use_absolute_addresses(MPI_Comm comm) {
    const int rank = rank_in(comm), size = size_of(comm), last = size - 1;
    int a = 0, b = 0;
    MPI_Aint of_a = 0, of_b = 0;
    MPI_Get_address(&a, &of_a);
    MPI_Get_address(&b, &of_b);
    const address_type at[2] = {of_a, of_b};
    const count_type lengths[2] = {1, 1};
    const MPI_Datatype ints[2] = {MPI_INT, MPI_INT};
    MPI_Datatype both = MPI_DATATYPE_NULL;
    MPI_Type_create_struct(2, lengths, at, ints, &both);
    MPI_Type_commit(&both);
    const auto set = [&](int r) { a = r + 1, b = 10 * (r + 1); };
    const auto are = [&](int r) { return a == r + 1 && b == 10 * (r + 1); };
    std::vector<int> all(2 * static_cast<std::size_t>(size));

    set(rank);
    calling("MPI_Bcast", comm);
    MPI_Bcast(MPI_BOTTOM, 1, both, last, comm);
    expect(are(last), "MPI_Bcast at absolute addresses");
    set(rank);
    calling("MPI_Gather", comm);
    MPI_Gather(MPI_BOTTOM, 1, both, all.data(), 2, MPI_INT, last, comm);
    for (int r = 0; rank == last && r < size; ++r)
        expect(
            all[2 * static_cast<std::size_t>(r)] == r + 1 && all[2 * static_cast<std::size_t>(r) + 1] == 10 * (r + 1),
            "MPI_Gather from absolute addresses");
    set(-1);
    calling("MPI_Scatter", comm);
    MPI_Scatter(all.data(), 2, MPI_INT, MPI_BOTTOM, 1, both, last, comm);
    expect(are(rank), "MPI_Scatter to absolute addresses");
    MPI_Type_free(&both);
}

// Elements of a type that Fortran's kinds name, which the library must not free.
void use_types_of_fortran(MPI_Comm comm) {
    const int rank = rank_in(comm), last = size_of(comm) - 1;
    for (const bool complex : {false, true}) {
        MPI_Datatype of_one = MPI_DATATYPE_NULL, of_two_numbers = MPI_DATATYPE_NULL;
        if (complex)
            MPI_Type_create_f90_complex(15, MPI_UNDEFINED, &of_one);
        else
            MPI_Type_create_f90_real(15, MPI_UNDEFINED, &of_one);
        MPI_Type_contiguous(complex ? 1 : 2, of_one, &of_two_numbers);
        MPI_Type_commit(&of_two_numbers);
        for (int again = 0; again < 3; ++again) {
            double x[2] = {rank + 1.0, rank + 2.0};
            calling("MPI_Bcast", comm);
            MPI_Bcast(x, 1, of_two_numbers, last, comm);
            expect(x[0] == last + 1.0 && x[1] == last + 2.0, "MPI_Bcast of a type that kinds of Fortran name");
        }
        MPI_Type_free(&of_two_numbers);
    }
}

void reduce_types(MPI_Comm comm, bool every) {
    const std::vector<int> few = {0, 1, 33};
    reduce_numbers<int>(comm, MPI_INT, "MPI_INT", {0, 1, 5, 1000}, 30000);
    reduce_numbers<double>(comm, MPI_DOUBLE, "MPI_DOUBLE", {0, 1, 5, 1000}, 30000);
    reduce_numbers<bool>(comm, MPI_C_BOOL, "MPI_C_BOOL", few);
    reduce_numbers<std::complex<double>>(comm, MPI_C_DOUBLE_COMPLEX, "MPI_C_DOUBLE_COMPLEX", few);
    reduce_numbers<std::complex<long double>>(comm, MPI_C_LONG_DOUBLE_COMPLEX, "MPI_C_LONG_DOUBLE_COMPLEX", few);
    reduce_pairs<double>(comm, MPI_DOUBLE_INT, "MPI_DOUBLE_INT");
    reduce_data<unsigned char>(
        comm, MPI_BYTE, MPI_BXOR, 77, "MPI_BXOR of MPI_BYTE",
        [](int rank, std::size_t i) { return static_cast<unsigned char>(number(rank, i)); },
        [](unsigned char a, unsigned char b) { return static_cast<unsigned char>(a ^ b); },
        [](unsigned char a, unsigned char b) { return a == b; });
    if (!every) return;
    reduce_numbers<signed char>(comm, MPI_SIGNED_CHAR, "MPI_SIGNED_CHAR", few);
    reduce_numbers<unsigned char>(comm, MPI_UNSIGNED_CHAR, "MPI_UNSIGNED_CHAR", few);
    reduce_numbers<short>(comm, MPI_SHORT, "MPI_SHORT", few);
    reduce_numbers<unsigned short>(comm, MPI_UNSIGNED_SHORT, "MPI_UNSIGNED_SHORT", few);
    reduce_numbers<unsigned>(comm, MPI_UNSIGNED, "MPI_UNSIGNED", few);
    reduce_numbers<long>(comm, MPI_LONG, "MPI_LONG", few);
    reduce_numbers<unsigned long>(comm, MPI_UNSIGNED_LONG, "MPI_UNSIGNED_LONG", few);
    reduce_numbers<long long>(comm, MPI_LONG_LONG, "MPI_LONG_LONG", few);
    reduce_numbers<unsigned long long>(comm, MPI_UNSIGNED_LONG_LONG, "MPI_UNSIGNED_LONG_LONG", few);
    reduce_numbers<std::int8_t>(comm, MPI_INT8_T, "MPI_INT8_T", few);
    reduce_numbers<std::uint16_t>(comm, MPI_UINT16_T, "MPI_UINT16_T", few);
    reduce_numbers<std::int64_t>(comm, MPI_INT64_T, "MPI_INT64_T", few);
    reduce_numbers<float>(comm, MPI_FLOAT, "MPI_FLOAT", few);
    reduce_numbers<long double>(comm, MPI_LONG_DOUBLE, "MPI_LONG_DOUBLE", few);
    reduce_numbers<std::complex<float>>(comm, MPI_C_FLOAT_COMPLEX, "MPI_C_FLOAT_COMPLEX", few);
    reduce_pairs<float>(comm, MPI_FLOAT_INT, "MPI_FLOAT_INT");
    reduce_pairs<short>(comm, MPI_SHORT_INT, "MPI_SHORT_INT");
    reduce_pairs<int>(comm, MPI_2INT, "MPI_2INT");
    reduce_pairs<long>(comm, MPI_LONG_INT, "MPI_LONG_INT");
    reduce_pairs<long double>(comm, MPI_LONG_DOUBLE_INT, "MPI_LONG_DOUBLE_INT");
}

#ifdef COLLS_TEST_LARGE
/// Memory of which only the pages that are used cost anything.
class vast_memory {
public:
    explicit vast_memory(std::size_t bytes)
        : bytes_(bytes),
          data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
        if (data_ == MAP_FAILED) std::abort();
    }
    vast_memory(const vast_memory&) = delete;
    vast_memory& operator=(const vast_memory&) = delete;
    ~vast_memory() { munmap(data_, bytes_); }
    unsigned char* data() const { return static_cast<unsigned char*>(data_); }

private:
    const std::size_t bytes_;
    void* const data_;
};

// Blocks further apart than an int says.
void use_far_blocks(MPI_Comm comm) {
    constexpr place_type apart = 3'000'000'019;
    const int rank = rank_in(comm), size = size_of(comm);
    const vast_memory memory(static_cast<std::size_t>(size) * static_cast<std::size_t>(apart) + 4096);
    std::vector<count_type> counts;
    std::vector<place_type> places;
    for (int r = 0; r < size; ++r) counts.push_back(r + 5), places.push_back(r * apart);
    const auto block = [&](int r) { return memory.data() + places[static_cast<std::size_t>(r)]; };
    const auto value = [](int r, int i) { return static_cast<unsigned char>(10 * r + i + 1); };
    for (int i = 0; i < rank + 5; ++i) block(rank)[i] = value(rank, i);
    call(FORMS(Allgatherv, Iallgatherv), comm, MPI_IN_PLACE, 0, MPI_BYTE, memory.data(), counts.data(), places.data(),
        MPI_BYTE);
    bool good = true;
    for (int r = 0; r < size; ++r)
        for (int i = 0; i < r + 6; ++i) good = good && block(r)[i] == (i < r + 5 ? value(r, i) : 0);
    expect(good, "MPI_Allgatherv_c of blocks that are far apart");
}
#endif

// ---- communicators --------------------------------------------------------------------------------------------------

void sum_of_ranks(MPI_Comm comm) {
    const int rank = rank_in(comm), size = size_of(comm);
    int sum = -1;
    calling("MPI_Allreduce", comm);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    expect(sum == size * (size - 1) / 2, "the sum of ranks");
}

int copies = 0, deletions = 0;
int copied(MPI_Comm, int, void*, void* value, void* out, int* flag) {
    ++copies;
    *static_cast<void**>(out) = value;
    *flag = 1;
    return MPI_SUCCESS;
}
int deleted(MPI_Comm, int, void*, void*) {
    ++deletions;
    return MPI_SUCCESS;
}
int calls_where_it_is_freed(MPI_Comm comm, int, void*, void*) {
    for (int call = 0; call < 2; ++call) {
        int root = rank_in(comm);
        MPI_Bcast(&root, 1, MPI_INT, 0, comm);
        expect(root == 0, "MPI_Bcast in a callback of MPI_Comm_free");
    }
    return MPI_SUCCESS;
}

void use_communicators(int many) {
    const int rank = rank_in(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);

    MPI_Comm halves = MPI_COMM_NULL, reversed = MPI_COMM_NULL, copy = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &halves);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    for (int i = 0; i < 3; ++i)
        for (const MPI_Comm comm : {halves, reversed, copy, MPI_COMM_WORLD, MPI_COMM_SELF}) sum_of_ranks(comm);
    int first = rank;
    calling("MPI_Bcast", reversed);
    MPI_Bcast(&first, 1, MPI_INT, 0, reversed);
    expect(first == size - 1, "MPI_Bcast in a communicator of another order");
    reduce_by_own_operators(reversed);
    MPI_Comm_free(&halves);
    MPI_Comm_free(&copy);
    sum_of_ranks(reversed);
    MPI_Comm_free(&reversed);
    // A grid that leaves a rank out. (In MPICH 5.0 its group has that rank, too.)
    MPI_Comm grid = MPI_COMM_NULL;
    const int length = std::max(1, size - 1), around = 0;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &length, &around, 0, &grid);
    if (grid != MPI_COMM_NULL) {
        sum_of_ranks(grid);
        MPI_Comm_free(&grid);
    }

    // Many at a time, freed in another order than made.
    std::vector<MPI_Comm> some(static_cast<std::size_t>(std::min(many, 40)), MPI_COMM_NULL);
    for (MPI_Comm& comm : some) {
        MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &comm);
        sum_of_ranks(comm);
    }
    for (std::size_t i = 0; i < some.size(); ++i) {
        sum_of_ranks(some[(i * 7) % some.size()]);
        MPI_Comm_free(&some[(i * 7) % some.size()]);
    }
    // Many one after the other.
    for (int i = 0; i < many; ++i) {
        MPI_Comm one = MPI_COMM_NULL;
        MPI_Comm_dup(MPI_COMM_WORLD, &one);
        if (i % 16 < 12) sum_of_ranks(one);
        MPI_Comm_free(&one);
    }
    // MPI gives these the same handle one after the other, and between them no other communicator is used.
    MPI_Group members = MPI_GROUP_NULL, backwards = MPI_GROUP_NULL;
    int range[1][3] = {{size - 1, 0, -1}};
    int last_call = MPI_KEYVAL_INVALID;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &calls_where_it_is_freed, &last_call, nullptr);
    MPI_Comm_group(MPI_COMM_WORLD, &members);
    MPI_Group_range_incl(members, 1, range, &backwards);
    for (int i = 0; i < 12; ++i) {
        MPI_Comm one = MPI_COMM_NULL;
        MPI_Comm_create_group(MPI_COMM_WORLD, i % 2 == 0 ? members : backwards, 7, &one);
        for (int call = 0; call < 2; ++call) {
            if (i >= 4 && call == (i < 8 ? 0 : 1)) MPI_Comm_set_attr(one, last_call, nullptr);
            int root = rank;
            calling("MPI_Bcast", one);
            MPI_Bcast(&root, 1, MPI_INT, 0, one);
            expect(root == (i % 2 == 0 ? 0 : size - 1), "MPI_Bcast in a communicator with the handle of a freed one");
        }
        MPI_Comm_free(&one);
    }
    MPI_Group_free(&backwards);
    MPI_Group_free(&members);
    MPI_Comm_free_keyval(&last_call);

    // The program's attributes.
    int keyval = MPI_KEYVAL_INVALID, value = 5;
    MPI_Comm_create_keyval(&copied, &deleted, &keyval, nullptr);
    MPI_Comm own = MPI_COMM_NULL, own_copy = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &own);
    MPI_Comm_set_attr(own, keyval, &value);
    sum_of_ranks(own);
    expect(copies == 0 && deletions == 0, "a collective calls attribute callbacks");
    MPI_Comm_dup(own, &own_copy);
    expect(copies == 1 && deletions == 0, "MPI_Comm_dup calls the copy callback once");
    sum_of_ranks(own_copy);
    int* found = nullptr;
    int there = 0;
    MPI_Comm_get_attr(own_copy, keyval, &found, &there);
    expect(there != 0 && found == &value, "the attribute of a copy");
    MPI_Comm_free(&own);
    sum_of_ranks(own_copy);
    MPI_Comm_free(&own_copy);
    expect(copies == 1 && deletions == 2, "MPI_Comm_free calls the delete callback once");
    MPI_Comm_free_keyval(&keyval);

    if (size < 2) return;
    // Between two groups.
    MPI_Comm half = MPI_COMM_NULL, between = MPI_COMM_NULL, merged = MPI_COMM_NULL;
    const int side = rank < size / 2 ? 0 : 1;
    MPI_Comm_split(MPI_COMM_WORLD, side, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, side == 0 ? size / 2 : 0, 3, &between);
    int there_sum = -1, sum_here = 0, sum_there = 0;
    for (int r = 0; r < size; ++r) ((r < size / 2) == (side == 0) ? sum_here : sum_there) += r;
    calling("MPI_Allreduce", between);
    MPI_Allreduce(&rank, &there_sum, 1, MPI_INT, MPI_SUM, between);
    expect(there_sum == sum_there, "MPI_Allreduce between groups");
    int told = side == 0 ? 77 : -1;
    const int root = side == 1 ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    calling("MPI_Bcast", between);
    MPI_Bcast(&told, 1, MPI_INT, root, between);
    expect(told == 77, "MPI_Bcast between groups");
    calling("MPI_Barrier", between);
    MPI_Barrier(between);
    MPI_Intercomm_merge(between, side, &merged);
    sum_of_ranks(merged);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&between);
    sum_of_ranks(half);
    MPI_Comm_free(&half);
}

// ---- progress, errors, threads --------------------------------------------------------------------------------------

// ---- non-blocking calls ---------------------------------------------------------------------------------------------

/// A sum of many numbers, which no rank has before all have taken part.
class large_sum {
public:
    explicit large_sum(MPI_Comm comm, int count = 50000)
        : comm_(comm), in_(static_cast<std::size_t>(count)), out_(in_.size(), -1) {
        const int rank = rank_in(comm);
        for (std::size_t i = 0; i < in_.size(); ++i) in_[i] = number(rank, i);
        calling("MPI_Iallreduce", comm);
        MPI_Iallreduce(in_.data(), out_.data(), count, MPI_INT, MPI_SUM, comm, &request_);
    }
    MPI_Request& request() { return request_; }
    void wait() {
        MPI_Wait(&request_, MPI_STATUS_IGNORE);
        check();
    }
    void check() const {
        const int size = size_of(comm_);
        bool good = true;
        for (std::size_t i = 0; i < in_.size(); ++i) {
            int sum = 0;
            for (int r = 0; r < size; ++r) sum += number(r, i);
            good = good && out_[i] == sum;
        }
        expect(good, "MPI_Iallreduce of many numbers");
    }

private:
    MPI_Comm comm_;
    std::vector<int> in_, out_;
    MPI_Request request_ = MPI_REQUEST_NULL;
};

/// Rank 0 comes to `here()` while its sum is under way, and rank 1 only after it has the sum, for which it needs rank
/// 0.
template <class First, class Second>
void only_after(MPI_Comm comm, const First& first, const Second& second) {
    const int rank = rank_in(comm);
    large_sum sum(comm);
    if (rank != 1) {
        first();
        sum.wait();
    } else {
        sum.wait();
        second();
    }
}

// Each function in which a rank may wait advances what is under way.
void progress_everywhere(MPI_Comm comm) {
    const int rank = rank_in(comm), size = size_of(comm);
    if (size < 2) return;
    std::vector<int> data(100000, rank), other(data.size(), -1);
    const int ints = static_cast<int>(data.size());
    const auto good = [&](int from, const char* what) {
        expect(other.front() == from && other.back() == from, what);
        other.assign(other.size(), -1);
    };
    const auto others_idle = [&](const auto& f) {
        return [&] {
            if (rank == 0) f();
        };
    };
    const auto send = [&] { MPI_Send(data.data(), ints, MPI_INT, 0, 5, comm); };
    const auto receive = [&] { MPI_Recv(other.data(), ints, MPI_INT, 0, 5, comm, MPI_STATUS_IGNORE); };
    only_after(comm, others_idle([&] {
        MPI_Status status;
        MPI_Recv(other.data(), ints, MPI_INT, MPI_ANY_SOURCE, 5, comm, &status);
        count_type count = 0;
        MPI_Get_count(&status, MPI_INT, &count);
        expect(status.MPI_SOURCE == 1 && status.MPI_TAG == 5 && count == ints, "the status of MPI_Recv");
        good(1, "MPI_Recv");
    }),
        send);
    only_after(comm, others_idle([&] { MPI_Send(data.data(), ints, MPI_INT, 1, 5, comm); }), [&] {
        receive();
        good(0, "MPI_Send");
    });
    only_after(comm, others_idle([&] { MPI_Ssend(data.data(), 1, MPI_INT, 1, 5, comm); }), receive);
    only_after(comm, others_idle([&] {
        MPI_Sendrecv(data.data(), ints, MPI_INT, 1, 5, other.data(), ints, MPI_INT, 1, 6, comm, MPI_STATUS_IGNORE);
        good(1, "MPI_Sendrecv");
    }),
        [&] {
            MPI_Sendrecv(data.data(), ints, MPI_INT, 0, 6, other.data(), ints, MPI_INT, 0, 5, comm, MPI_STATUS_IGNORE);
            good(0, "MPI_Sendrecv");
        });
    only_after(comm, others_idle([&] {
        other = data;
        MPI_Sendrecv_replace(other.data(), ints, MPI_INT, 1, 5, 1, 6, comm, MPI_STATUS_IGNORE);
        good(1, "MPI_Sendrecv_replace");
    }),
        [&] {
            other = data;
            MPI_Sendrecv_replace(other.data(), ints, MPI_INT, 0, 6, 0, 5, comm, MPI_STATUS_IGNORE);
            good(0, "MPI_Sendrecv_replace");
        });
    only_after(comm, others_idle([&] {
        MPI_Status status;
        MPI_Probe(1, MPI_ANY_TAG, comm, &status);
        expect(status.MPI_TAG == 5, "MPI_Probe");
        MPI_Recv(other.data(), ints, MPI_INT, 1, 5, comm, MPI_STATUS_IGNORE);
        good(1, "MPI_Probe");
    }),
        send);
    only_after(comm, others_idle([&] {
        int there = 0;
        look_until(there, [&] { MPI_Iprobe(1, 5, comm, &there, MPI_STATUS_IGNORE); });
        MPI_Recv(other.data(), ints, MPI_INT, 1, 5, comm, MPI_STATUS_IGNORE);
        good(1, "MPI_Iprobe");
    }),
        send);
    only_after(comm, others_idle([&] {
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Mprobe(1, 5, comm, &message, MPI_STATUS_IGNORE);
        MPI_Mrecv(other.data(), ints, MPI_INT, &message, MPI_STATUS_IGNORE);
        good(1, "MPI_Mprobe");
    }),
        send);
    for (int way = 0; way < 9; ++way)
        only_after(comm, others_idle([&] {
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_Irecv(other.data(), ints, MPI_INT, 1, 5, comm, &request);
            complete(request);
            good(1, "MPI_Irecv");
        }),
            send);
    // Calls that all ranks wait in: by colls, by MPI, and those that make something.
    const auto both = [&](const auto& f) { only_after(comm, f, f); };
    MPI_Comm copy = MPI_COMM_NULL, part = MPI_COMM_NULL, line = MPI_COMM_NULL, circle = MPI_COMM_NULL;
    both([&] { MPI_Comm_dup(comm, &copy); });
    both([&] { first_barrier(copy); });
    both([&] {
        calling("MPI_Barrier", copy);
        MPI_Barrier(copy);  // it makes the group
    });
    both([&] {
        calling("MPI_Allgather", copy);
        std::vector<int> all(static_cast<std::size_t>(size));
        MPI_Allgather(&rank, 1, MPI_INT, all.data(), 1, MPI_INT, copy);
        expect(all.front() == 0 && all.back() == size - 1, "MPI_Allgather beside MPI_Iallreduce");
    });
    both([&] { MPI_Comm_split(copy, 0, -rank, &part); });
    both([&] {
        const int everyone[] = {size}, no[] = {0};
        MPI_Cart_create(copy, 1, everyone, no, 0, &line);
    });
    both([&] {
        int neighbours[2] = {-1, -1};
        calling("MPI_Neighbor_allgather", line);
        MPI_Neighbor_allgather(&rank, 1, MPI_INT, neighbours, 1, MPI_INT, line);
        expect(neighbours[0] == rank - 1 && (neighbours[1] == rank + 1 || rank == size - 1), "MPI_Neighbor_allgather");
    });
    // In a circle, where two ranks are neighbours on both sides.
    both([&] {
        const int everyone[] = {size}, yes[] = {1};
        MPI_Cart_create(copy, 1, everyone, yes, 0, &circle);
    });
    both([&] {
        const int left = (rank + size - 1) % size, right = (rank + 1) % size, own[] = {10 * rank, 10 * rank + 1};
        int from[2] = {-1, -1};
        calling("MPI_Neighbor_alltoall", circle);
        MPI_Neighbor_alltoall(own, 1, MPI_INT, from, 1, MPI_INT, circle);
        expect(from[0] == 10 * left + 1 && from[1] == 10 * right, "MPI_Neighbor_alltoall");
    });
    MPI_Comm half = MPI_COMM_NULL, between = MPI_COMM_NULL;
    const int side = rank < size / 2 ? 0 : 1;
    MPI_Comm_split(copy, side, rank, &half);
    MPI_Intercomm_create(half, 0, copy, side == 0 ? size / 2 : 0, 3, &between);
    both([&] {
        calling("MPI_Barrier", between);
        MPI_Barrier(between);
    });
    for (MPI_Comm* const c : {&between, &half, &circle, &line, &part, &copy}) MPI_Comm_free(c);
}

void start_many(MPI_Comm comm) {
    const int rank = rank_in(comm), size = size_of(comm);
    if (size < 2) return;
    const auto calling_all = [&] {
        calling("MPI_Barrier", comm);
        MPI_Barrier(comm);
    };
    // A broadcast under way, and a message that its receiver takes before it waits for the broadcast.
    std::vector<int> data(200000, rank), other(data.size(), -1);
    const int ints = static_cast<int>(data.size());
    MPI_Request request = MPI_REQUEST_NULL;
    calling("MPI_Ibcast", comm);
    MPI_Ibcast(data.data(), ints, MPI_INT, 0, comm, &request);
    if (rank == 0) MPI_Send(std::vector<int>(other.size(), 7).data(), ints, MPI_INT, 1, 9, comm);
    if (rank == 1) MPI_Recv(other.data(), ints, MPI_INT, 0, 9, comm, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(data.front() == 0 && data.back() == 0 && (rank != 1 || (other.front() == 7 && other.back() == 7)),
        "MPI_Ibcast and a message");

    // Twenty at once, of different kinds, waited for in reverse.
    {
        std::vector<std::vector<int>> in(20), out(20);
        std::vector<MPI_Request> requests(20, MPI_REQUEST_NULL);
        for (std::size_t i = 0; i < 20; ++i) {
            const int n = i % 3 == 0 ? 20000 : 5, root = static_cast<int>(i) % size;
            in[i].assign(static_cast<std::size_t>(n), rank + static_cast<int>(i));
            out[i].assign(static_cast<std::size_t>(n * size), -1);
            if (i % 4 == 0) {
                calling("MPI_Iallreduce", comm);
                MPI_Iallreduce(in[i].data(), out[i].data(), n, MPI_INT, MPI_SUM, comm, &requests[i]);
            } else if (i % 4 == 1) {
                calling("MPI_Ibcast", comm);
                MPI_Ibcast(in[i].data(), n, MPI_INT, root, comm, &requests[i]);
            } else if (i % 4 == 2) {
                calling("MPI_Iallgather", comm);
                MPI_Iallgather(in[i].data(), n, MPI_INT, out[i].data(), n, MPI_INT, comm, &requests[i]);
            } else {
                calling("MPI_Ireduce", comm);
                MPI_Ireduce(in[i].data(), out[i].data(), n, MPI_INT, MPI_MAX, root, comm, &requests[i]);
            }
        }
        for (std::size_t i = 20; i-- > 0;) {
            MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
            const int k = static_cast<int>(i), root = k % size;
            const auto n = in[i].size();
            const auto is = [](const std::vector<int>& x, std::size_t from, std::size_t count, int value) {
                return std::all_of(x.begin() + static_cast<std::ptrdiff_t>(from),
                    x.begin() + static_cast<std::ptrdiff_t>(from + count), [&](int y) { return y == value; });
            };
            bool right = true;
            if (i % 4 == 0) right = is(out[i], 0, n, size * (size - 1) / 2 + size * k);
            if (i % 4 == 1) right = is(in[i], 0, n, root + k);
            for (int r = 0; i % 4 == 2 && r < size; ++r)
                right = right && is(out[i], static_cast<std::size_t>(r) * n, n, r + k);
            if (i % 4 == 3 && rank == root) right = is(out[i], 0, n, size - 1 + k);
            expect(right, "one of twenty calls under way");
        }
    }
    // More than colls has places for, on a rank that comes first and sends a message behind them.
    {
        std::vector<MPI_Request> requests(75, MPI_REQUEST_NULL);
        std::vector<int> values(75, -1);
        int token = 0;
        if (rank == size - 1) MPI_Recv(&token, 1, MPI_INT, 0, 10, comm, MPI_STATUS_IGNORE);
        for (std::size_t i = 0; i < requests.size(); ++i) {
            if (rank == 0) values[i] = static_cast<int>(i);
            calling("MPI_Ibcast", comm);
            MPI_Ibcast(&values[i], 1, MPI_INT, 0, comm, &requests[i]);
        }
        if (rank == 0) MPI_Send(&token, 1, MPI_INT, size - 1, 10, comm);
        MPI_Waitall(75, requests.data(), MPI_STATUSES_IGNORE);
        bool right = true;
        for (std::size_t i = 0; i < values.size(); ++i) right = right && values[i] == static_cast<int>(i);
        expect(right, "75 broadcasts under way");
    }
    // Communicators in opposite orders on different ranks.
    std::vector<MPI_Comm> comms(4, MPI_COMM_NULL);
    for (MPI_Comm& c : comms) {
        MPI_Comm_dup(comm, &c);
        sum_of_ranks(c);
    }
    for (int round = 0; round < 5; ++round) {
        if (rank % 2 == 1) std::reverse(comms.begin(), comms.end());
        std::vector<large_sum> sums;
        for (const MPI_Comm c : comms) sums.emplace_back(c, round % 2 == 0 ? 50000 : 10);
        if (round < 3) std::reverse(sums.begin(), sums.end());
        for (large_sum& sum : sums) sum.wait();
        if (rank % 2 == 1) std::reverse(comms.begin(), comms.end());
    }
    // Beside blocking calls on the same communicator and on another one, which comes in another order.
    for (int round = 0; round < 5; ++round) {
        large_sum one(comm), two(comms[0]);
        sum_of_ranks(comm);
        sum_of_ranks(comms[1]);
        large_sum three(comm);
        if (rank % 2 == 0) two.wait();
        three.wait();
        if (rank % 2 == 1) two.wait();
        one.wait();
    }
    // MPI_Waitany and MPI_Waitsome with messages among collectives.
    for (const bool some : {false, true}) {
        std::vector<large_sum> sums;
        for (int i = 0; i < 3; ++i) sums.emplace_back(i < 2 ? comm : comms[0]);
        std::vector<int> to(static_cast<std::size_t>(size), -1), mine(1, rank);
        std::vector<MPI_Request> requests;
        for (large_sum& sum : sums) requests.push_back(sum.request());
        for (int r = 0; r < size; ++r) {
            MPI_Irecv(&to[static_cast<std::size_t>(r)], 1, MPI_INT, r, 11, comm, &requests.emplace_back());
            MPI_Isend(mine.data(), 1, MPI_INT, r, 11, comm, &requests.emplace_back());
        }
        requests.push_back(MPI_REQUEST_NULL);
        std::vector<int> seen(requests.size(), 0), indices(requests.size(), -1);
        const int count = static_cast<int>(requests.size());
        for (int left = count - 1; left > 0;) {
            int n = 1;
            if (some)
                MPI_Waitsome(count, requests.data(), &n, indices.data(), MPI_STATUSES_IGNORE);
            else
                MPI_Waitany(count, requests.data(), indices.data(), MPI_STATUS_IGNORE);
            for (int k = 0; k < n; ++k) {
                const auto i = static_cast<std::size_t>(indices[static_cast<std::size_t>(k)]);
                ++seen[i];
                if (i < 3) sums[i].check();
            }
            left -= n;
        }
        expect(std::count(seen.begin(), seen.end(), 1) == count - 1, "each request completes once");
        int none_left = 0;
        MPI_Waitany(count, requests.data(), &none_left, MPI_STATUS_IGNORE);
        expect(none_left == MPI_UNDEFINED, "MPI_Waitany of no request");
        for (int r = 0; r < size; ++r) expect(to[static_cast<std::size_t>(r)] == r, "a message among collectives");
    }
    for (MPI_Comm& c : comms) MPI_Comm_free(&c);

    // What the program frees while a call is under way: the communicator, datatypes, an operator, the request.
    {
        MPI_Comm own = MPI_COMM_NULL;
        MPI_Comm_dup(comm, &own);
        sum_of_ranks(own);
        MPI_Datatype pairs = MPI_DATATYPE_NULL;
        MPI_Type_vector(1000, 1, 2, MPI_INT, &pairs);
        MPI_Type_commit(&pairs);
        std::vector<int> from(1000, rank), to(static_cast<std::size_t>(size) * 2000, -1), sums(3000, -1);
        std::vector<count_type> counts(static_cast<std::size_t>(size), 1);
        std::vector<place_type> at;
        std::vector<MPI_Datatype> types(counts.size(), pairs);
        for (int r = 0; r < size; ++r) at.push_back(r * 8000);
        const std::vector<count_type> sent_counts(counts.size(), 1000);
        const std::vector<place_type> sent_at(counts.size(), 0);
        const std::vector<MPI_Datatype> sent_types(counts.size(), MPI_INT);
        calling("MPI_Ialltoallw", own);
        MPI_Ialltoallw(from.data(), sent_counts.data(), sent_at.data(), sent_types.data(), to.data(), counts.data(),
            at.data(), types.data(), own, &request);
        MPI_Type_free(&pairs);
        MPI_Op op = MPI_OP_NULL;
        MPI_Op_create(&add_modulo, 1, &op);
        type_seen = MPI_INT;
        const std::vector<int> addends(3000, rank % 7);
        MPI_Request reduction = MPI_REQUEST_NULL, forgotten = MPI_REQUEST_NULL;
        calling("MPI_Iallreduce", comm);
        MPI_Iallreduce(addends.data(), sums.data(), 3000, MPI_INT, op, comm, &reduction);
        MPI_Op_free(&op);
        calling("MPI_Ibarrier", own);
        MPI_Ibarrier(own, &forgotten);
        if (extremes)
            MPI_Request_free(&forgotten);
        else
            MPI_Wait(&forgotten, MPI_STATUS_IGNORE);
        expect(forgotten == MPI_REQUEST_NULL, "MPI_Request_free");
        if (extremes) MPI_Comm_free(&own);
        MPI_Wait(&reduction, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (!extremes) MPI_Comm_free(&own);
        bool right = sums.front() == size * (size - 1) / 2 % 7 && sums.back() == sums.front();
        for (std::size_t i = 0; i < to.size(); ++i)
            right = right && to[i] == (i % 2 == 0 ? static_cast<int>(i / 2000) : -1);
        expect(right, "calls whose datatype, operator and communicator are freed");
    }
    // An operator that does not commute, and its datatype, both of two calls, of which one ends before the other.
    if (extremes) {
        MPI_Op op = MPI_OP_NULL;
        MPI_Datatype type = MPI_DATATYPE_NULL;
        MPI_Op_create(&compose, 0, &op);
        MPI_Type_contiguous(2, MPI_UINT32_T, &type);
        MPI_Type_commit(&type);
        type_seen = type;
        const auto function_of = [](int r, std::size_t i) {
            return affine{static_cast<std::uint32_t>(number(r, i)) * 2 + 3, static_cast<std::uint32_t>(r) + 7};
        };
        std::vector<affine> few(3), many(30000), few_composed(few), many_composed(many);
        for (std::size_t i = 0; i < many.size(); ++i) many[i] = function_of(rank, i);
        std::copy_n(many.begin(), few.size(), few.begin());
        MPI_Request of_few = MPI_REQUEST_NULL, of_many = MPI_REQUEST_NULL;
        calling("MPI_Iallreduce", comm);
        MPI_Iallreduce(few.data(), few_composed.data(), 3, type, op, comm, &of_few);
        calling("MPI_Iscan", comm);
        MPI_Iscan(many.data(), many_composed.data(), 30000, type, op, comm, &of_many);
        MPI_Op_free(&op);
        MPI_Type_free(&type);
        expect(op == MPI_OP_NULL && type == MPI_DATATYPE_NULL, "handles that are freed");
        MPI_Op new_op = MPI_OP_NULL;  // it must not get the handle that is still needed
        MPI_Op_create(&add_modulo, 1, &new_op);
        MPI_Wait(&of_few, MPI_STATUS_IGNORE);
        MPI_Wait(&of_many, MPI_STATUS_IGNORE);
        MPI_Op_free(&new_op);
        bool right = true;
        for (std::size_t i = 0; i < many.size(); ++i) {
            affine all = function_of(0, i);
            for (int r = 1; r < size; ++r) {
                if (r == rank + 1) right = right && many_composed[i] == all;
                all = composed(all, function_of(r, i));
            }
            if (rank == size - 1) right = right && many_composed[i] == all;
            if (i < few.size()) right = right && few_composed[i] == all;
        }
        expect(right, "calls whose operator and datatype are freed");
    }
    // The status says nothing, and that it was not cancelled.
    {
        MPI_Status status;
        int cancelled = 1;
        count_type count = -1;
        calling("MPI_Ibarrier", comm);
        MPI_Ibarrier(comm, &request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        MPI_Get_count(&status, MPI_BYTE, &count);
        expect(!extremes || (cancelled == 0 && count == 0), "the status of a collective");
    }
    calling_all();
}

// Persistent calls that are started several times, together with others, and freed.
#if HAS_PERSISTENT
void start_again(MPI_Comm comm) {
    const int rank = rank_in(comm), size = size_of(comm);
    const int ranks_before = size * (size - 1) / 2;
    const auto start = [&](const char* name, MPI_Request& request) {
        calling(name, comm);
        expect(MPI_Start(&request) == MPI_SUCCESS, "MPI_Start");
    };
    const auto all_are = [](const std::vector<int>& x, int value) {
        return std::all_of(x.begin(), x.end(), [&](int y) { return y == value; });
    };
    constexpr int many = 3000;
    std::vector<int> in(many), out(many), in_place(many), told(many);

    // Each start takes what is in the buffers then; each function waits.
    MPI_Request sum = MPI_REQUEST_NULL, sum_in_place = MPI_REQUEST_NULL;
    PERSISTENT(Allreduce)
    (in.data(), out.data(), many, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &sum);
    PERSISTENT(Allreduce)
    (MPI_IN_PLACE, in_place.data(), many, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &sum_in_place);
    for (int round = 0; round < 9; ++round) {
        in.assign(in.size(), rank + round);
        in_place.assign(in_place.size(), rank + 2 * round);
        out.assign(out.size(), -1);
        start("MPI_Allreduce_init", sum);
        start("MPI_Allreduce_init", sum_in_place);
        complete(round % 2 == 0 ? sum : sum_in_place, request_is::persistent);
        complete(round % 2 == 0 ? sum_in_place : sum, request_is::persistent);
        expect(all_are(out, ranks_before + size * round), "a persistent call that is started again");
        expect(all_are(in_place, ranks_before + 2 * size * round), "a persistent call in place");
        complete(sum, request_is::inactive);  // it is not active, so there is nothing to wait for
    }

    // With messages, which are persistent too, and one that is never started.
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    int from_before = -1;
    std::vector<MPI_Request> requests(7, MPI_REQUEST_NULL);
    requests[0] = sum;
    PERSISTENT(Bcast)(told.data(), many, MPI_INT, size - 1, comm, MPI_INFO_NULL, &requests[1]);
    MPI_Recv_init(&from_before, 1, MPI_INT, before, 13, comm, &requests[2]);
    MPI_Send_init(&rank, 1, MPI_INT, next, 13, comm, &requests[3]);
    PERSISTENT(Barrier)(comm, MPI_INFO_NULL, &requests[4]);
    PERSISTENT(Barrier)(comm, MPI_INFO_NULL, &requests[5]);
    const int count = static_cast<int>(requests.size());
    for (int round = 0; round < 6; ++round) {
        in.assign(in.size(), rank + round);
        told.assign(told.size(), rank == size - 1 ? round : -1);
        from_before = -1;
        for (const char* const name : {"MPI_Allreduce_init", "MPI_Bcast_init", "MPI_Barrier_init"}) calling(name, comm);
        expect(MPI_Startall(5, requests.data()) == MPI_SUCCESS, "MPI_Startall");
        int left = 5, over = 0, n = 1;
        std::vector<int> indices(requests.size(), -1), seen(requests.size(), 0);
        const auto note_one = [&](int index) {
            if (index >= 0 && index < count) ++seen[static_cast<std::size_t>(index)];
            --left;
        };
        switch (round) {
            case 0:
                MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE);
                break;
            case 1:
                look_until(over, [&] { MPI_Testall(count, requests.data(), &over, MPI_STATUSES_IGNORE); });
                break;
            case 2:
                while (left > 0) {
                    MPI_Waitany(count, requests.data(), indices.data(), MPI_STATUS_IGNORE);
                    note_one(indices[0]);
                }
                break;
            case 3:
                while (left > 0) {
                    look_until(
                        over, [&] { MPI_Testany(count, requests.data(), indices.data(), &over, MPI_STATUS_IGNORE); });
                    note_one(indices[0]);
                    over = 0;
                }
                break;
            default:
                while (left > 0) {
                    if (round == 4)
                        MPI_Waitsome(count, requests.data(), &n, indices.data(), MPI_STATUSES_IGNORE);
                    else
                        MPI_Testsome(count, requests.data(), &n, indices.data(), MPI_STATUSES_IGNORE);
                    if (n == 0) sched_yield();
                    if (n == MPI_UNDEFINED) break;
                    for (int k = 0; k < n; ++k) note_one(indices[static_cast<std::size_t>(k)]);
                }
        }
        if (round > 1)
            expect(std::count(seen.begin(), seen.begin() + 5, 1) == 5, "each persistent request completes once");
        expect(std::count(requests.begin(), requests.end(), MPI_REQUEST_NULL) == 1, "persistent requests stay");
        expect(all_are(out, ranks_before + size * round) && all_are(told, round) && from_before == before,
            "persistent calls and messages");
        int none_left = 0;
        MPI_Waitany(count, requests.data(), &none_left, MPI_STATUS_IGNORE);
        expect(none_left == MPI_UNDEFINED, "MPI_Waitany of requests that are not active");
        over = 0;
        MPI_Testall(count, requests.data(), &over, MPI_STATUSES_IGNORE);
        expect(over != 0, "MPI_Testall of requests that are not active");
    }
    // In another order on each rank, with a blocking and a non-blocking call among them.
    constexpr int orders[4][4] = {{0, 1, 4, 5}, {5, 4, 1, 0}, {1, 5, 0, 4}, {4, 0, 5, 1}};
    for (int round = 0; round < 5; ++round) {
        in.assign(in.size(), rank + round);
        told.assign(told.size(), rank == size - 1 ? round : -1);
        for (const char* const name : {"MPI_Allreduce_init", "MPI_Bcast_init", "MPI_Barrier_init", "MPI_Barrier_init",
                 "MPI_Barrier", "MPI_Ibcast"})
            calling(name, comm);
        int from_last = rank == size - 1 ? round : -1;
        MPI_Request started = MPI_REQUEST_NULL;
        for (int i = 0; i < 4; ++i) {
            if (i == 1) MPI_Barrier(comm);
            if (i == 2) MPI_Ibcast(&from_last, 1, MPI_INT, size - 1, comm, &started);
            MPI_Start(&requests[static_cast<std::size_t>(orders[(rank + round) % 4][i])]);
        }
        MPI_Waitall(count, requests.data(), MPI_STATUSES_IGNORE);
        MPI_Wait(&started, MPI_STATUS_IGNORE);
        expect(all_are(out, ranks_before + size * round) && all_are(told, round) && from_last == round,
            "persistent calls that ranks start in different orders");
    }
    // One that is made while each rank has freed another one of two.
    MPI_Request_free(&requests[rank % 2 == 0 ? 4 : 5]);
    PERSISTENT(Bcast)(told.data(), many, MPI_INT, 0, comm, MPI_INFO_NULL, &requests[6]);
    told.assign(told.size(), rank == 0 ? 77 : -1);
    start("MPI_Bcast_init", requests[6]);
    complete(requests[6], request_is::persistent);
    expect(all_are(told, 77), "a persistent call that is made between others that ranks free in different orders");
    for (MPI_Request& request : requests)
        if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    expect(std::count(requests.begin(), requests.end(), MPI_REQUEST_NULL) == count, "requests that are freed");
    MPI_Request_free(&sum_in_place);

    // What the program frees after it has made a call: arrays of counts and displacements, the communicator, the
    // datatype, the operator; the request while the call is under way.
    if (!extremes || size < 2) return;
    {
        std::vector<count_type> counts(static_cast<std::size_t>(size), 2);
        std::vector<place_type> places;
        for (int r = 0; r < size; ++r) places.push_back(2 * (size - 1 - r));
        const std::vector<int> mine(2 * counts.size(), rank);
        std::vector<int> all(mine.size(), -1), sums(2, -1);
        MPI_Request gathered = MPI_REQUEST_NULL, summed = MPI_REQUEST_NULL;
        PERSISTENT(Allgatherv)
        (mine.data(), 2, MPI_INT, all.data(), counts.data(), places.data(), MPI_INT, comm, MPI_INFO_NULL, &gathered);
        PERSISTENT(Reduce_scatter)
        (mine.data(), sums.data(), counts.data(), MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &summed);
        counts.assign(counts.size(), -7);
        places.assign(places.size(), 1 << 30);
        start("MPI_Allgatherv_init", gathered);
        start("MPI_Reduce_scatter_init", summed);
        complete(gathered, request_is::persistent);
        complete(summed, request_is::persistent);
        bool right = sums[0] == ranks_before && sums[1] == ranks_before;
        for (std::size_t i = 0; i < all.size(); ++i) right = right && all[i] == size - 1 - static_cast<int>(i / 2);
        expect(right, "persistent calls whose arrays are changed");
        MPI_Request_free(&gathered);
        MPI_Request_free(&summed);
        // One that MPI runs, behind those that are freed.
        int own = -1;
        PERSISTENT(Allreduce)(&rank, &own, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF, MPI_INFO_NULL, &summed);
        calling("MPI_Allreduce_init", MPI_COMM_SELF);
        MPI_Start(&summed);
        MPI_Wait(&summed, MPI_STATUS_IGNORE);  // MPI_Testall of MPICH 4.0 finds an error in it
        expect(own == rank, "a persistent call of one rank");
        MPI_Request_free(&summed);
    }
    MPI_Comm own = MPI_COMM_NULL;
    MPI_Op op = MPI_OP_NULL;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Comm_dup(comm, &own);
    MPI_Op_create(&compose, 0, &op);
    MPI_Type_contiguous(2, MPI_UINT32_T, &type);
    MPI_Type_commit(&type);
    type_seen = type;
    const affine mine{static_cast<std::uint32_t>(rank) * 2 + 3, 5};
    affine all{}, expected{3, 5};
    for (int r = 1; r < size; ++r) expected = composed(expected, {static_cast<std::uint32_t>(r) * 2 + 3, 5});
    MPI_Request request = MPI_REQUEST_NULL;
    PERSISTENT(Allreduce)(&mine, &all, 1, type, op, own, MPI_INFO_NULL, &request);
    MPI_Type_free(&type);
    MPI_Op_free(&op);
    MPI_Comm_free(&own);
    for (int round = 0; round < 3; ++round) {
        all = {};
        start("MPI_Allreduce_init", request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(all == expected, "a persistent call whose communicator, datatype and operator are freed");
    }
    all = {};
    start("MPI_Allreduce_init", request);
    // It cannot be started once more.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    expect(MPI_Start(&request) != MPI_SUCCESS, "MPI_Start of a call that is active is an error");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Request_free(&request);
    expect(request == MPI_REQUEST_NULL, "MPI_Request_free of a call that is active");
    int token = 0;
    while (!(all == expected)) MPI_Iprobe(MPI_ANY_SOURCE, 16, comm, &token, MPI_STATUS_IGNORE);
    // Rank 0 waits for a message of rank 1, which needs rank 0 in the call before.
    PERSISTENT(Allreduce)(in.data(), out.data(), many, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    start("MPI_Allreduce_init", request);
    if (rank == 0) MPI_Recv(&token, 1, MPI_INT, 1, 14, comm, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(&token, 1, MPI_INT, 0, 14, comm);
    if (rank == 1) MPI_Recv(&token, 1, MPI_INT, 0, 15, comm, MPI_STATUS_IGNORE);
    start("MPI_Allreduce_init", request);
    if (rank == 0) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        expect(MPI_Cancel(&request) != MPI_SUCCESS, "MPI_Cancel of a persistent collective is an error");
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
        MPI_Send(&token, 1, MPI_INT, 1, 15, comm);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
}
#else
void start_again(MPI_Comm) {}
#endif

// A rank that waits in a collective goes on with what it has started before, for which others wait.
void make_progress() {
    const int rank = rank_in(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);
    if (size < 2) return;
    const int ints = 1 << 20;  // more than MPI sends before the receiver asks
    std::vector<int> data(static_cast<std::size_t>(ints), rank);
    for (int round = 0; round < 5; ++round) {
        MPI_Request request = MPI_REQUEST_NULL;
        if (rank == 0) MPI_Isend(data.data(), ints, MPI_INT, size - 1, round, MPI_COMM_WORLD, &request);
        if (rank == size - 1) {
            MPI_Recv(data.data(), ints, MPI_INT, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            expect(data.front() == 0 && data.back() == 0, "a message that is received before a collective");
        }
        if (round % 2 == 0) {
            calling("MPI_Barrier", MPI_COMM_WORLD);
            MPI_Barrier(MPI_COMM_WORLD);
        } else {
            sum_of_ranks(MPI_COMM_WORLD);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        // Beside a non-blocking collective, which some ranks wait for first and others last.
        int sum = 0, more = 0;
        calling("MPI_Iallreduce", MPI_COMM_WORLD);
        MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        if (rank % 2 == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
        calling("MPI_Allreduce", MPI_COMM_WORLD);
        MPI_Allreduce(&rank, &more, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(sum == size * (size - 1) / 2 && more == size - 1, "beside MPI_Iallreduce");
    }
}

void make_errors() {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int x = 0, y = 0;
    expect(MPI_Bcast(&x, 1, MPI_INT, size_of(comm) + 3, comm) != MPI_SUCCESS, "a root out of range is an error");
    expect(MPI_Bcast(&x, -1, MPI_INT, 0, comm) != MPI_SUCCESS, "a count below 0 is an error");
    // (In a reduction MPICH 5.0 aborts then.)
    expect(MPI_Bcast(&x, 1, MPI_DATATYPE_NULL, 0, comm) != MPI_SUCCESS, "no datatype is an error");
    expect(MPI_Allreduce(&x, &y, 1, MPI_INT, MPI_OP_NULL, comm) != MPI_SUCCESS, "no operator is an error");
    expect(MPI_Allreduce(&x, &y, 1, MPI_INT, MPI_MINLOC, comm) != MPI_SUCCESS, "MPI_MINLOC of MPI_INT is an error");
    expect(MPI_Neighbor_alltoall(&x, 1, MPI_INT, &y, 1, MPI_INT, comm) != MPI_SUCCESS, "no topology is an error");
    expect(MPI_Barrier(MPI_COMM_NULL) != MPI_SUCCESS, "no communicator is an error");
    sum_of_ranks(comm);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&comm);
}

// A call that cannot be cancelled: rank 1 takes part when rank 0 has tried.
void cancel_a_call() {
    const int rank = rank_in(MPI_COMM_WORLD);
    if (!extremes || size_of(MPI_COMM_WORLD) < 2) return;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int token = 0, cancelled = 1;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    if (rank == 1) MPI_Recv(&token, 1, MPI_INT, 0, 12, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    calling("MPI_Ibarrier", MPI_COMM_WORLD);
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    if (rank == 0) {
        expect(MPI_Cancel(&request) != MPI_SUCCESS, "MPI_Cancel of a collective is an error");
        MPI_Send(&token, 1, MPI_INT, 1, 12, MPI_COMM_WORLD);
    }
    expect(MPI_Wait(&request, &status) == MPI_SUCCESS, "a call that was to be cancelled ends well");
    MPI_Test_cancelled(&status, &cancelled);
    expect(cancelled == 0, "a collective is not cancelled");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

// Two ranks that give different lengths, which each function that waits reports.
void fail_calls() {
    const int rank = rank_in(MPI_COMM_WORLD);
    if (size_of(MPI_COMM_WORLD) < 2) return;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int way = 0; way < 8; ++way) {
        MPI_Comm comm = MPI_COMM_NULL;
        MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, &comm);
        if (comm == MPI_COMM_NULL) continue;
        sum_of_ranks(comm);
        int in[8] = {}, out[8] = {}, over = 0, index = -1, code = MPI_SUCCESS;
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Status status;
        status.MPI_ERROR = MPI_SUCCESS;
        calling("MPI_Iallreduce", comm);
        expect(MPI_Iallreduce(in, out, rank + 1, MPI_INT, MPI_SUM, comm, &request) == MPI_SUCCESS,
            "a call that fails later is started");
        const auto look = [&](const auto& test) {
            look_until(over, [&] {
                code = test();
                if (code != MPI_SUCCESS) over = 1;
            });
        };
        switch (way) {
            case 0:
                code = MPI_Wait(&request, &status);
                break;
            case 1:
                look([&] { return MPI_Test(&request, &over, &status); });
                break;
            case 2:
                code = MPI_Waitall(1, &request, &status);
                break;
            case 3:
                look([&] { return MPI_Testall(1, &request, &over, &status); });
                break;
            case 4:
                code = MPI_Waitany(1, &request, &index, &status);
                break;
            case 5:
                look([&] { return MPI_Testany(1, &request, &index, &over, &status); });
                break;
            case 6:
                code = MPI_Waitsome(1, &request, &over, &index, &status);
                break;
            default:
                look([&] { return MPI_Testsome(1, &request, &over, &index, &status); });
        }
        int kind = MPI_SUCCESS, kind_in_status = MPI_SUCCESS;
        MPI_Error_class(code, &kind);
        MPI_Error_class(status.MPI_ERROR, &kind_in_status);
        const bool of_several = way == 2 || way == 3 || way >= 6;
        expect(kind == (of_several ? MPI_ERR_IN_STATUS : MPI_ERR_OTHER), "the error of a call that has failed");
        // MPI_Waitsome and MPI_Testsome of MPICH 5.0 leave it as it was.
        if (of_several && (way < 6 || mpich_version() < 5))
            expect(kind_in_status == MPI_ERR_OTHER, "the error in a status");
        expect(request == MPI_REQUEST_NULL, "a call that has failed has ended");
        MPI_Comm_free(&comm);
    }
    // A rank that has its error leaves at once, while the other one may still wait for its own.
    for (int i = 0; i < 20; ++i) {
        MPI_Comm comm = MPI_COMM_NULL;
        MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, &comm);
        if (comm == MPI_COMM_NULL) continue;
        sum_of_ranks(comm);
        std::vector<int> in(i % 2 == 0 ? 1 : 1000), out(in.size() + 1);
        in.resize(in.size() + static_cast<std::size_t>(rank));
        const int code = MPI_Allreduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_INT, MPI_SUM, comm);
        expect(code != MPI_SUCCESS, "ranks that give different lengths have an error each");
        MPI_Comm_free(&comm);
    }
#ifdef COLLS_TEST_LARGE
    {
        // The same length where an int holds it.
        MPI_Comm comm = MPI_COMM_NULL;
        MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, &comm);
        if (comm != MPI_COMM_NULL) {
            sum_of_ranks(comm);
            const count_type length = rank == 0 ? 1 : (count_type{1} << 32) + 1;
            const vast_memory in(static_cast<std::size_t>(length)), out(static_cast<std::size_t>(length));
            expect(MPI_Allreduce(in.data(), out.data(), length, MPI_BYTE, MPI_BXOR, comm) != MPI_SUCCESS,
                "lengths that differ by 2^32 are an error");
            MPI_Comm_free(&comm);
        }
    }
#endif
#if HAS_PERSISTENT
    // The group of a persistent call that has failed serves no other one.
    MPI_Comm pair = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, &pair);
    if (pair != MPI_COMM_NULL) {
        sum_of_ranks(pair);
        const int in[2] = {rank + 1, 0};
        for (const bool fails : {true, false, true, false}) {
            int out[2] = {};
            MPI_Request request = MPI_REQUEST_NULL;
            PERSISTENT(Allreduce)(in, out, fails ? rank + 1 : 1, MPI_INT, MPI_SUM, pair, MPI_INFO_NULL, &request);
            calling("MPI_Allreduce_init", pair);
            MPI_Start(&request);
            const int code = MPI_Wait(&request, MPI_STATUS_IGNORE);
            expect((code != MPI_SUCCESS) == fails, "a persistent call fails where ranks give different lengths");
            expect(fails || out[0] == 3, "a persistent call behind one that has failed");
            MPI_Request_free(&request);
        }
        MPI_Comm_free(&pair);
    }
#endif
    if (mpich_version() > 0) {
        // It refuses calls that read where they write.
        std::vector<int> one(static_cast<std::size_t>(size_of(MPI_COMM_WORLD)), rank), before = one;
        expect(MPI_Allreduce(one.data(), one.data(), 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS,
            "MPI_Allreduce from a buffer to itself is an error");
        expect(MPI_Scan(one.data(), one.data(), 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS,
            "MPI_Scan from a buffer to itself is an error");
        expect(MPI_Allgather(one.data() + rank, 1, MPI_INT, one.data(), 1, MPI_INT, MPI_COMM_WORLD) != MPI_SUCCESS,
            "MPI_Allgather from the rank's block is an error");
        expect(MPI_Alltoall(one.data(), 1, MPI_INT, one.data(), 1, MPI_INT, MPI_COMM_WORLD) != MPI_SUCCESS,
            "MPI_Alltoall from a buffer to itself is an error");
        expect(one == before, "a call that is refused changes nothing");
    }
    sum_of_ranks(MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

// ---- buffers that are one, or almost --------------------------------------------------------------------------------

/// A call that MPI refuses in each of its forms, with an error of the class `wanted`.
template <class Blocking, class Starting, class Preparing, class... A>
void refused(const char* name, const char* name_of_started, [[maybe_unused]] const char* name_of_persistent,
    Blocking* blocking, Starting* starting, [[maybe_unused]] Preparing preparing, MPI_Comm comm, int wanted,
    const A&... arguments) {
    const auto is_wanted = [&](int code, const char* form) {
        int kind = MPI_SUCCESS;
        MPI_Error_class(code, &kind);
        expect(kind == wanted,
            (std::string(form) + " is refused: class " + std::to_string(kind) + ", not " + std::to_string(wanted))
                .c_str());
    };
    MPI_Request request = MPI_REQUEST_NULL;
    is_wanted(blocking(arguments..., comm), name);
    is_wanted(starting(arguments..., comm, &request), name_of_started);
    if constexpr (HAS_PERSISTENT) is_wanted(preparing(arguments..., comm, MPI_INFO_NULL, &request), name_of_persistent);
}

/// Blocks of one int in the memory of each rank: the lengths, and where they begin, with gaps between them.
struct spread {
    std::vector<count_type> lengths;
    std::vector<place_type> places;
    place_type end = 0;  ///< behind the last one
    explicit spread(int size, int first) {
        for (int r = 0; r < size; ++r) lengths.push_back(first + r), places.push_back(0);
        for (int r = size - 1; r >= 0; --r) {  // the last rank's block is the first
            places[static_cast<std::size_t>(r)] = end + 5;
            end += 5 + static_cast<place_type>(lengths[static_cast<std::size_t>(r)]);
        }
    }
};

/// Calls that read where they write, without MPI_IN_PLACE. MPICH looks for some of them, by the addresses and by what
/// the two sides say alike. The ranks beside the root, which cannot know, have no datatype in these calls, and so are
/// refused too: no rank waits for another one.
void refuse_one_buffer(MPI_Comm comm, MPI_Datatype wide) {
    const int rank = rank_in(comm), size = size_of(comm);
    const auto own = static_cast<std::size_t>(rank);
    std::vector<int> memory(256, rank);
    const std::vector<int> before = memory;
    int* const all = memory.data();
    constexpr int each = 2;

    refused(FORMS(Allreduce, Iallreduce), comm, MPI_ERR_BUFFER, all, all, each, MPI_INT, MPI_SUM);
    refused(FORMS(Scan, Iscan), comm, MPI_ERR_BUFFER, all, all, each, MPI_INT, MPI_SUM);
    refused(FORMS(Exscan, Iexscan), comm, MPI_ERR_BUFFER, all, all, each, MPI_INT, MPI_SUM);
    refused(FORMS(Reduce_scatter_block, Ireduce_scatter_block), comm, MPI_ERR_BUFFER, all, all, each, MPI_INT, MPI_SUM);
    for (const int with_data : {0, size - 1}) {  // one rank has a result at all
        std::vector<count_type> lengths(static_cast<std::size_t>(size));
        lengths[static_cast<std::size_t>(with_data)] = 1;
        refused(
            FORMS(Reduce_scatter, Ireduce_scatter), comm, MPI_ERR_BUFFER, all, all, lengths.data(), MPI_INT, MPI_SUM);
    }
    refused(FORMS(Alltoall, Ialltoall), comm, MPI_ERR_BUFFER, all, each, MPI_INT, all, each, MPI_INT);
    refused(FORMS(Allgather, Iallgather), comm, MPI_ERR_BUFFER, all + each * rank, each, MPI_INT, all, each, MPI_INT);
    // It takes an element of `wide` to be as long as its data.
    refused(FORMS(Allgather, Iallgather), comm, MPI_ERR_BUFFER, all + each * rank, each, wide, all, each, wide);

    // MPI_Alltoallv and MPI_Alltoallw with one buffer, and one array of counts and of types, whatever these say.
    const spread blocks(size, 1), others(size, 0);
    const std::vector<MPI_Datatype> types(static_cast<std::size_t>(size), MPI_INT);
    for (const place_type* const places : {blocks.places.data(), others.places.data()}) {
        refused(FORMS(Alltoallv, Ialltoallv), comm, MPI_ERR_BUFFER, all, blocks.lengths.data(), blocks.places.data(),
            MPI_INT, all, blocks.lengths.data(), places, MPI_INT);
        refused(FORMS(Alltoallw, Ialltoallw), comm, MPI_ERR_BUFFER, all, blocks.lengths.data(), blocks.places.data(),
            types.data(), all, blocks.lengths.data(), places, types.data());
    }

    const auto all_gathered = [&](int* from, count_type count, MPI_Datatype type) {
        refused(FORMS(Allgatherv, Iallgatherv), comm, MPI_ERR_BUFFER, from, count, type, all, blocks.lengths.data(),
            blocks.places.data(), type);
    };
    all_gathered(all + blocks.places[own], blocks.lengths[own], MPI_INT);
    all_gathered(all + blocks.places[own], blocks.lengths[own] + 1, MPI_INT);
    all_gathered(all + blocks.places[own], blocks.lengths[own], wide);

    const spread some(size, 0);  // rank 0 has nothing
    for (int root = 0; root < size; ++root) {
        const bool here = rank == root;
        const int wanted = here ? MPI_ERR_BUFFER : MPI_ERR_TYPE;
        for (const MPI_Datatype of_root : {MPI_INT, wide}) {
            const MPI_Datatype type = here ? of_root : MPI_DATATYPE_NULL;
            int* const block = all + each * rank;
            refused(FORMS(Gather, Igather), comm, wanted, block, each, type, all, each, type, root);
            refused(FORMS(Scatter, Iscatter), comm, wanted, all, each, type, block, each, type, root);
            if (some.lengths[static_cast<std::size_t>(root)] == 0) continue;
            for (const count_type length : {some.lengths[own], some.lengths[own] + 1}) {
                int* const part = all + some.places[own];
                refused(FORMS(Gatherv, Igatherv), comm, wanted, part, length, type, all, some.lengths.data(),
                    some.places.data(), type, root);
                refused(FORMS(Scatterv, Iscatterv), comm, wanted, all, some.lengths.data(), some.places.data(), type,
                    part, length, type, root);
            }
        }
        // (MPICH 5.0 aborts where there is no datatype, or a count below 0.)
        refused(FORMS(Reduce, Ireduce), comm, here ? MPI_ERR_BUFFER : MPI_ERR_ROOT, all, all, each, MPI_INT, MPI_SUM,
            here ? root : -5);
    }
    expect(memory == before, "a call that is refused changes nothing");
}

/// Calls whose buffers lie in one memory and share no byte: next to each other, in the gaps between blocks, empty.
/// `shifted`: an int behind a gap of four.
void use_one_memory(MPI_Comm comm, MPI_Datatype shifted) {
    const int rank = rank_in(comm), size = size_of(comm);
    const auto own = static_cast<std::size_t>(rank);
    constexpr int each = 2;
    std::vector<int> memory, expected;
    int* all = nullptr;
    // What rank `from` has for rank `to`, or for all.
    const auto number = [](int from, int to, int i) { return 1000 * from + 100 * to + i; };
    const auto begin = [&](std::size_t length) {
        memory.assign(length, -1);
        expected = memory;
        all = memory.data();
    };
    const auto set = [](std::vector<int>& to, place_type at, int value) { to[static_cast<std::size_t>(at)] = value; };
    /// The rank has this, and still has it in the end.
    const auto has = [&](place_type at, int from, int to, count_type length) {
        for (int i = 0; i < length; ++i) {
            set(memory, at + i, number(from, to, i));
            set(expected, at + i, number(from, to, i));
        }
    };
    const auto gets = [&](place_type at, int from, int to, count_type length) {
        for (int i = 0; i < length; ++i) set(expected, at + i, number(from, to, i));
    };
    const auto sums = [&](place_type at, int ranks, int to, count_type length) {
        for (int i = 0; i < length; ++i) {
            int sum = 0;
            for (int r = 0; r < ranks; ++r) sum += number(r, to, i);
            set(expected, at + i, sum);
        }
    };
    const auto check = [&](const char* what) { expect(memory == expected, what); };

    // Without data it may be one buffer.
    begin(1);
    const std::vector<count_type> none(static_cast<std::size_t>(size));
    const std::vector<place_type> nowhere(none.size());
    call(FORMS(Allreduce, Iallreduce), comm, all, all, 0, MPI_INT, MPI_SUM);
    call(FORMS(Scan, Iscan), comm, all, all, 0, MPI_INT, MPI_SUM);
    call(FORMS(Exscan, Iexscan), comm, all, all, 0, MPI_INT, MPI_SUM);
    call(FORMS(Reduce, Ireduce), comm, all, all, 0, MPI_INT, MPI_SUM, size - 1);
    call(FORMS(Reduce_scatter_block, Ireduce_scatter_block), comm, all, all, 0, MPI_INT, MPI_SUM);
    call(FORMS(Reduce_scatter, Ireduce_scatter), comm, all, all, none.data(), MPI_INT, MPI_SUM);
    call(FORMS(Allgather, Iallgather), comm, all, 0, MPI_INT, all, 0, MPI_INT);
    call(FORMS(Allgatherv, Iallgatherv), comm, all, 0, MPI_INT, all, none.data(), nowhere.data(), MPI_INT);
    call(FORMS(Alltoall, Ialltoall), comm, all, 0, MPI_INT, all, 0, MPI_INT);
    for (const int root : {0, size - 1}) {
        call(FORMS(Gather, Igather), comm, all, 0, MPI_INT, all, 0, MPI_INT, root);
        call(FORMS(Scatter, Iscatter), comm, all, 0, MPI_INT, all, 0, MPI_INT, root);
        call(FORMS(Gatherv, Igatherv), comm, all, 0, MPI_INT, all, none.data(), nowhere.data(), MPI_INT, root);
        call(FORMS(Scatterv, Iscatterv), comm, all, none.data(), nowhere.data(), MPI_INT, all, 0, MPI_INT, root);
    }
    check("calls without data from a buffer to itself");

    for (const bool behind : {false, true}) {
        const auto two = [&](int sent, int received) {
            begin(static_cast<std::size_t>(sent + received));
            return std::pair(behind ? received : 0, behind ? 0 : sent);
        };
        {
            const auto [from, to] = two(each, each);
            has(from, rank, 0, each);
            sums(to, size, 0, each);
            call(FORMS(Allreduce, Iallreduce), comm, all + from, all + to, each, MPI_INT, MPI_SUM);
            check("MPI_Allreduce to the memory beside");
        }
        {
            const auto [from, to] = two(each, each);
            has(from, rank, 0, each);
            if (rank == size - 1) sums(to, size, 0, each);
            call(FORMS(Reduce, Ireduce), comm, all + from, all + to, each, MPI_INT, MPI_SUM, size - 1);
            check("MPI_Reduce to the memory beside");
        }
        {
            const auto [from, to] = two(each, each);
            has(from, rank, 0, each);
            sums(to, rank + 1, 0, each);
            call(FORMS(Scan, Iscan), comm, all + from, all + to, each, MPI_INT, MPI_SUM);
            check("MPI_Scan to the memory beside");
        }
        {
            const auto [from, to] = two(size * each, each);
            for (int r = 0; r < size; ++r) has(from + r * each, rank, r, each);
            sums(to, size, rank, each);
            call(
                FORMS(Reduce_scatter_block, Ireduce_scatter_block), comm, all + from, all + to, each, MPI_INT, MPI_SUM);
            check("MPI_Reduce_scatter_block to the memory beside");
        }
        {
            const auto [from, to] = two(each, size * each);
            has(from, rank, 0, each);
            for (int r = 0; r < size; ++r) gets(to + r * each, r, 0, each);
            call(FORMS(Allgather, Iallgather), comm, all + from, each, MPI_INT, all + to, each, MPI_INT);
            check("MPI_Allgather to the memory beside");
        }
        {
            const auto [from, to] = two(size * each, size * each);
            for (int r = 0; r < size; ++r) has(from + r * each, rank, r, each);
            for (int r = 0; r < size; ++r) gets(to + r * each, r, rank, each);
            call(FORMS(Alltoall, Ialltoall), comm, all + from, each, MPI_INT, all + to, each, MPI_INT);
            check("MPI_Alltoall to the memory beside");
        }
        {
            // One array of counts for both sides, which are next to each other.
            const spread blocks(size, 1);
            const auto in = static_cast<std::size_t>(blocks.end);
            std::vector<count_type> counts(static_cast<std::size_t>(size), 1);
            begin(2 * in);
            const place_type from = behind ? blocks.end : 0, to = behind ? 0 : blocks.end;
            for (std::size_t r = 0; r < counts.size(); ++r) has(from + blocks.places[r], rank, static_cast<int>(r), 1);
            for (std::size_t r = 0; r < counts.size(); ++r) gets(to + blocks.places[r], static_cast<int>(r), rank, 1);
            call(FORMS(Alltoallv, Ialltoallv), comm, all + from, counts.data(), blocks.places.data(), MPI_INT, all + to,
                counts.data(), blocks.places.data(), MPI_INT);
            check("MPI_Alltoallv to the memory beside");
        }
        for (int root = 0; root < size; ++root) {
            {
                const auto [from, to] = two(each, size * each);
                has(from, rank, 0, each);
                for (int r = 0; rank == root && r < size; ++r) gets(to + r * each, r, 0, each);
                call(FORMS(Gather, Igather), comm, all + from, each, MPI_INT, all + to, each, MPI_INT, root);
                check("MPI_Gather to the memory beside");
            }
            {
                const auto [from, to] = two(size * each, each);
                for (int r = 0; rank == root && r < size; ++r) has(from + r * each, root, r, each);
                gets(to, root, rank, each);
                call(FORMS(Scatter, Iscatter), comm, all + from, each, MPI_INT, all + to, each, MPI_INT, root);
                check("MPI_Scatter to the memory beside");
            }
        }
    }

    // In the gaps between blocks: at the beginning, before the rank's own block and behind it. The block itself is
    // empty on rank 0.
    const spread blocks(size, 0);
    const count_type length = blocks.lengths[own];
    const place_type place = blocks.places[own];
    for (const place_type gap : {place_type{0}, place - length, place + length}) {
        begin(static_cast<std::size_t>(blocks.end + 5));
        has(gap, rank, 0, length);
        for (std::size_t r = 0; r < blocks.places.size(); ++r)
            gets(blocks.places[r], static_cast<int>(r), 0, blocks.lengths[r]);
        call(FORMS(Allgatherv, Iallgatherv), comm, all + gap, length, MPI_INT, all, blocks.lengths.data(),
            blocks.places.data(), MPI_INT);
        check("MPI_Allgatherv from a gap");
        for (int root = 0; root < size; ++root) {
            begin(static_cast<std::size_t>(blocks.end + 5));
            has(gap, rank, 0, length);
            for (std::size_t r = 0; rank == root && r < blocks.places.size(); ++r)
                gets(blocks.places[r], static_cast<int>(r), 0, blocks.lengths[r]);
            call(FORMS(Gatherv, Igatherv), comm, all + gap, length, MPI_INT, all, blocks.lengths.data(),
                blocks.places.data(), MPI_INT, root);
            check("MPI_Gatherv from a gap");

            begin(static_cast<std::size_t>(blocks.end + 5));
            for (std::size_t r = 0; rank == root && r < blocks.places.size(); ++r)
                has(blocks.places[r], root, static_cast<int>(r), blocks.lengths[r]);
            gets(gap, root, rank, length);
            call(FORMS(Scatterv, Iscatterv), comm, all, blocks.lengths.data(), blocks.places.data(), MPI_INT, all + gap,
                length, MPI_INT, root);
            check("MPI_Scatterv to a gap");
        }
    }

    // From where MPICH looks for the rank's own block, as another datatype: what `shifted` writes is elsewhere.
    const std::vector<count_type> ones(static_cast<std::size_t>(size), 1), same = ones;
    std::vector<place_type> numbers, later;
    for (int r = 0; r < size; ++r) numbers.push_back(r), later.push_back(size + r);
    const std::vector<MPI_Datatype> ints(static_cast<std::size_t>(size), MPI_INT), of_each(ints.size(), shifted);
    std::vector<place_type> in_bytes, behind_in_bytes;
    for (int r = 0; r < size; ++r) in_bytes.push_back(4 * r), behind_in_bytes.push_back(20 * r);
    const auto begin_shifted = [&] { begin(static_cast<std::size_t>(5 * size)); };
    const auto all_gathered = [&] {
        has(rank, rank, 0, 1);
        for (int r = 0; r < size; ++r) gets(4 + 5 * r, r, 0, 1);
    };
    const auto exchanged = [&](int first, int step) {
        for (int r = 0; r < size; ++r) has(r, rank, r, 1);
        for (int r = 0; r < size; ++r) gets(first + step * r, r, rank, 1);
    };
    begin_shifted();
    all_gathered();
    call(FORMS(Allgather, Iallgather), comm, all + rank, 1, MPI_INT, all, 1, shifted);
    check("MPI_Allgather between the data of a datatype");
    begin_shifted();
    all_gathered();
    call(FORMS(Allgatherv, Iallgatherv), comm, all + rank, 1, MPI_INT, all, ones.data(), numbers.data(), shifted);
    check("MPI_Allgatherv between the data of a datatype");
    // One buffer for both sides, whose blocks lie apart by the datatypes, or by their displacements.
    begin_shifted();
    exchanged(4, 5);
    call(FORMS(Alltoallv, Ialltoallv), comm, all, ones.data(), numbers.data(), MPI_INT, all, ones.data(),
        numbers.data(), shifted);
    check("MPI_Alltoallv of one buffer by two datatypes");
    begin_shifted();
    exchanged(4, 5);
    call(FORMS(Alltoallw, Ialltoallw), comm, all, ones.data(), in_bytes.data(), ints.data(), all, ones.data(),
        behind_in_bytes.data(), of_each.data());
    check("MPI_Alltoallw of one buffer by two datatypes");
    begin_shifted();
    exchanged(size, 1);
    call(FORMS(Alltoallv, Ialltoallv), comm, all, ones.data(), numbers.data(), MPI_INT, all, same.data(), later.data(),
        MPI_INT);
    check("MPI_Alltoallv of one buffer by two arrays of counts");
}

void use_one_buffer() {
    if (size_of(MPI_COMM_WORLD) < 2) return;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    const count_type one = 1;
    const address_type behind = 16;
    MPI_Type_create_hindexed(1, &one, &behind, MPI_INT, &type);
    const MPI_Datatype shifted = resized(type, 0, 20);
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    sum_of_ranks(comm);
    if (mpich_version() > 0) {
        MPI_Type_contiguous(1, MPI_INT, &type);
        refuse_one_buffer(comm, resized(type, 0, 12));
        sum_of_ranks(comm);
    }
    for (const form each : {form::blocking, form::started, form::persistent}) {
        if (each == form::persistent && !HAS_PERSISTENT) continue;
        calls_are = each;
        use_one_memory(comm, shifted);
    }
    calls_are = form::blocking;
    MPI_Comm_free(&comm);
}

// Each thread has a communicator of its own, whose first call the main thread has made, and copies of that.
void use_threads() {
    std::vector<MPI_Comm> comms(2, MPI_COMM_NULL);
    for (MPI_Comm& comm : comms) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        sum_of_ranks(comm);
    }
    std::vector<std::thread> threads;
    for (const MPI_Comm comm : comms)
        threads.emplace_back([comm] {
            for (int i = 0; i < 300; ++i) {
                sum_of_ranks(comm);
                if (i % 30 != 0) continue;
                MPI_Comm copy = MPI_COMM_NULL;
                MPI_Comm_dup(comm, &copy);
                if (i % 60 == 0) sum_of_ranks(copy);
                MPI_Comm_free(&copy);
                large_sum one(comm), two(comm, 10);
                two.wait();
                one.wait();
            }
        });
    for (std::thread& t : threads) t.join();
    for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
}

}  // namespace

int main(int argc, char** argv) {
    const int many = argc > 1 ? std::atoi(argv[1]) : 100;
    const auto is_given = [&](const char* word) {
        return std::any_of(
            argv + std::min(argc, 2), argv + argc, [&](const char* a) { return std::strcmp(a, word) == 0; });
    };
    const bool threads = is_given("threads");
    extremes = is_given("extremes");
    derived = extremes || is_given("derived");
    int level = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    const int rank = rank_in(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);

    // Before generalised requests fail, after which MPICH 4.0 may say their errors of other calls too.
    if (is_given("failures")) use_one_buffer();
    const std::vector<shape> family = shapes_of_six_ints(extremes);
    const shape wide{"MPI_DOUBLE", MPI_DOUBLE, 1, {{0, 8}}, 8};
    const shape bytes{"MPI_BYTE", MPI_BYTE, 1, {{0, 1}}, 1};
    const shape with_gaps{"struct", type_of_padded(), 1,
        {{offsetof(padded, c), 1}, {offsetof(padded, d), 8}, {offsetof(padded, i), 4}}, sizeof(padded)};
    const shape pair{"MPI_DOUBLE_INT", MPI_DOUBLE_INT, 1, {{0, 8}, {8, 4}}, 16};
    for (const int units : {0, 1, 5, 400}) {
        for (int mixed = 0; extremes && mixed < 3; ++mixed)
            move_data(
                MPI_COMM_WORLD,
                [&](int r) -> const shape& { return family[static_cast<std::size_t>(r + 2 * mixed) % family.size()]; },
                units);
        std::vector<const shape*> same = {&family[0], &wide, &bytes};
        if (derived) same.insert(same.end(), {&family[1], &family[2], &family[3], &with_gaps, &pair});
        for (const shape* const s : same) move_data(MPI_COMM_WORLD, [s](int) -> const shape& { return *s; }, units);
    }
    move_data(MPI_COMM_WORLD, [&](int) -> const shape& { return wide; }, 20000);
    use_neighbours(family, wide);
    reduce_types(MPI_COMM_WORLD, is_given("types"));
    reduce_by_own_operators(MPI_COMM_WORLD);
    calls_are = form::started;
    use_neighbours(family, wide);
    if (extremes) {
        for (const int units : {0, 5, 400}) {
            move_data(
                MPI_COMM_WORLD,
                [&](int r) -> const shape& { return family[static_cast<std::size_t>(r) % family.size()]; }, units);
            move_data(MPI_COMM_WORLD, [&](int) -> const shape& { return wide; }, units);
        }
        move_data(MPI_COMM_WORLD, [&](int) -> const shape& { return wide; }, 20000);
        reduce_numbers<int>(MPI_COMM_WORLD, MPI_INT, "MPI_INT", {0, 1, 5, 1000}, 30000);
        reduce_pairs<double>(MPI_COMM_WORLD, MPI_DOUBLE_INT, "MPI_DOUBLE_INT");
        reduce_by_own_operators(MPI_COMM_WORLD);
    } else {
        // A few: the calls of MPI itself take milliseconds where ranks share cores.
        move_data(MPI_COMM_WORLD, [&](int) -> const shape& { return wide; }, 5);
        reduce_pairs<double>(MPI_COMM_WORLD, MPI_DOUBLE_INT, "MPI_DOUBLE_INT");
    }
    // Where MPI runs them itself, MPICH 4.0 reports errors from MPI_Testall of persistent collectives, or waits for
    // ever.
    const bool with_persistent = HAS_PERSISTENT && (mpich_version() == 0 || (extremes && size > 1));
    if (with_persistent) {
        calls_are = form::persistent;
        use_neighbours(family, wide);
        move_data(MPI_COMM_WORLD, [&](int) -> const shape& { return wide; }, 5);
        reduce_numbers<int>(MPI_COMM_WORLD, MPI_INT, "MPI_INT", {33});
        if (extremes) {
            move_data(
                MPI_COMM_WORLD,
                [&](int r) -> const shape& { return family[static_cast<std::size_t>(r) % family.size()]; }, 5);
            move_data(MPI_COMM_WORLD, [&](int) -> const shape& { return wide; }, 20000);
            reduce_pairs<double>(MPI_COMM_WORLD, MPI_DOUBLE_INT, "MPI_DOUBLE_INT");
            reduce_by_own_operators(MPI_COMM_WORLD);
        }
        calls_are = form::blocking;
        start_again(MPI_COMM_WORLD);
    }
    use_absolute_addresses(MPI_COMM_WORLD);
    use_types_of_fortran(MPI_COMM_WORLD);
#ifdef COLLS_TEST_LARGE
    use_far_blocks(MPI_COMM_WORLD);
#endif
    progress_everywhere(MPI_COMM_WORLD);
    start_many(MPI_COMM_WORLD);
    use_communicators(many);
    make_progress();
    make_errors();
    cancel_a_call();
    if (is_given("failures")) fail_calls();
    if (threads && level == MPI_THREAD_MULTIPLE) use_threads();
    for (MPI_Datatype& type : to_free) MPI_Type_free(&type);

    long all_wrong = wrong, sum_wrong = 0, all_checked = checked, sum_checked = 0;
    calling("MPI_Allreduce", MPI_COMM_WORLD);
    MPI_Allreduce(&all_wrong, &sum_wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    calling("MPI_Allreduce", MPI_COMM_WORLD);
    MPI_Allreduce(&all_checked, &sum_checked, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        for (const auto& [name, c] : made) std::printf("called %s %ld %ld\n", name.c_str(), c.of_several, c.others);
        std::printf("functions %d\n", with_persistent ? 66 : 44);
        std::printf("%d ranks, %ld checked, %ld wrong\n", size, sum_checked, sum_wrong);
    }
    MPI_Finalize();
    return sum_wrong == 0 ? 0 : 1;
}
