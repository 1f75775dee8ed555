// How each collective of MPI that this library defines runs: through colls, or by MPI itself.
#pragma once

#include "failure.hpp"
#include "groups.hpp"
#include "outstanding.hpp"
#include "persistent.hpp"
#include "report.hpp"

#include <colls/dynamic.hpp>
#include <colls/mpi/detail/mpi_header.hpp>
#include <colls/transports/mpi.hpp>

#include <atomic>
#include <exception>
#include <memory>
#include <tuple>
#include <utility>

namespace colls_mpi {

/// What becomes of a call, on all ranks alike.
enum class verdict : unsigned char {
    colls,
    mpi,     ///< MPI runs it
    refused  ///< the arguments are wrong: MPI reports it
};

using colls::dynamic::blocking;

/// What a collective is to `run`. Constructed with the group and the arguments of the call.
template <class C>
concept blocking_call = requires(C& c, const C& looked_at, colls::communicator& comm) {
    { looked_at.says() } -> std::same_as<verdict>;
    c.template make<blocking>(comm);
    c.finish();
};
/// The same to `start` and `prepare`.
template <class C>
concept collective_call = blocking_call<C> && requires(C& c, colls::communicator& comm) {
    { c.template make<colls::dynamic::start>(comm).test() } -> std::same_as<bool>;
    c.keep_handles();  // the program may free datatypes and the operator before `finish`
};

/// Prints what has gone wrong, and returns what the error handler of the communicator leaves to be returned.
int failed(function which, MPI_Comm comm, int code, const char* text);

/// Runs a blocking call that colls makes. Those that are outstanding on the communicator end first: all ranks have
/// started them before this call, in which MPI may wait for all ranks, too. Those of other communicators are advanced
/// by the wait hook meanwhile.
template <blocking_call Call>
void perform(group& g, Call& call) {
    finish_outstanding_of(g);
    call.template make<blocking>(g.comm);
    call.finish();
}

/// Times a call: `ours()` makes it by colls, or returns false, and then `theirs()` makes it by MPI. `counts_ours`: what
/// colls makes is a call already.
template <class Ours, class Theirs>
int by_colls_or_mpi(function which, MPI_Comm comm, const Ours& ours, const Theirs& theirs, bool counts_ours = true) {
    const call_timer timer;
    bool by_colls = false;
    try {
        by_colls = ours();
    } catch (const mpi_failure& e) {
        return failed(which, comm, e.code(), e.what());
    } catch (const std::exception& e) {
        return failed(which, comm, MPI_ERR_OTHER, e.what());
    }
    const int code = by_colls ? MPI_SUCCESS : theirs();
    if (!by_colls || counts_ours) timer.ended(which, by_colls);
    return code;
}

/// `use(group, call)` where the communicator has a group and the call says so. Else false: MPI runs the call. Where it
/// may wait for all ranks in it, they meet before.
template <blocking_call Call, class Use, class... A>
bool use_group(MPI_Comm comm, bool sound, const Use& use, const A&... arguments) {
    const shared_group* const g = sound ? group_of(comm) : nullptr;
    bool waits = g != nullptr && (*g)->several;
    if (g != nullptr && (*g)->runs_on_colls()) {
        Call call(**g, arguments...);
        if (call.says() == verdict::colls) {
            use(*g, call);
            return true;
        }
        waits = call.says() == verdict::mpi;
    }
    if (waits) meet(comm);
    return false;
}

/// A blocking call: by colls where the communicator has a group and the call says so, else `theirs()`. `sound`: the
/// arguments that all ranks have are as MPI demands; else MPI reports them.
template <blocking_call Call, class Theirs, class... A>
int run(function which, MPI_Comm comm, bool sound, const Theirs& theirs, const A&... arguments) {
    const auto by_group = [](const shared_group& g, Call& call) { perform(*g, call); };
    const auto ours = [&] { return use_group<Call>(comm, sound, by_group, arguments...); };
    return by_colls_or_mpi(which, comm, ours, theirs);
}

template <class Call>
class started_call final : public outstanding_call {
public:
    started_call(function which, shared_group g, std::unique_ptr<Call> call)
        : outstanding_call(which, std::move(g)), call_(std::move(call)) {}
    void begin() override { operation_ = call_->template make<colls::dynamic::start>(of().comm); }
    bool test() override { return operation_.test(); }
    void finish() override { call_->finish(); }

private:
    const std::unique_ptr<Call> call_;
    decltype(call_->template make<colls::dynamic::start>(std::declval<colls::communicator&>())) operation_;
};

/// False: MPI runs the call.
template <collective_call Call, class... A>
bool start_in(const shared_group& g, function which, MPI_Request& request, const A&... arguments) {
    auto call = std::make_unique<Call>(*g, arguments...);
    if (call->says() != verdict::colls) return false;
    call->keep_handles();
    auto started = std::make_unique<started_call<Call>>(which, g, std::move(call));
    request = started->request();
    submit(std::move(started));
    return true;
}

/// A non-blocking call: by colls where a blocking call has made a group for the communicator, since to make one is to
/// wait for the other ranks.
template <collective_call Call, class Theirs, class... A>
int start(
    function which, MPI_Comm comm, MPI_Request* request, bool sound, const Theirs& theirs, const A&... arguments) {
    const auto ours = [&] {
        const shared_group* const g = sound && request != nullptr ? existing_group_of(comm) : nullptr;
        return g != nullptr && (*g)->runs_on_colls() && start_in<Call>(*g, which, *request, arguments...);
    };
    return by_colls_or_mpi(which, comm, ours, theirs);
}

template <class Call, class... A>
class prepared_call final : public persistent_call {
public:
    prepared_call(function which, shared_group g, const A&... arguments)
        : which_(which), group_(std::move(g)), arguments_(arguments...) {}
    int start() override {
        const auto ours = [&](const A&... arguments) {
            try {
                return start_in<Call>(group_, which_, request(), arguments...);
            } catch (...) {
                group_->failed.store(true, std::memory_order_relaxed);
                throw;
            }
        };
        // The communicator may have been freed. What the call says is what it has said when it was made.
        return by_colls_or_mpi(
            which_, MPI_COMM_WORLD, [&] { return std::apply(ours, arguments_); }, [] { return MPI_ERR_INTERN; });
    }

private:
    const function which_;
    const shared_group group_;
    const std::tuple<A...> arguments_;
};

/// A persistent call, which as a blocking one may wait for the other ranks. It has a group of its own, since ranks may
/// start the persistent calls of a communicator in different orders. Arguments that the program may free before the
/// last start are held ones. Its starts are counted.
template <collective_call Call, class Theirs, class... A>
int prepare(
    function which, MPI_Comm comm, MPI_Request* request, bool sound, const Theirs& theirs, const A&... arguments) {
    const auto keep = [&](const shared_group& g, Call&) {
        *request =
            add_persistent(std::make_unique<prepared_call<Call, A...>>(which, another_group(comm, g), arguments...));
    };
    const auto ours = [&] { return use_group<Call>(comm, sound && request != nullptr, keep, arguments...); };
    return by_colls_or_mpi(which, comm, ours, theirs, false);
}

/// A count and a datatype that MPI takes.
inline bool are_sound(MPI_Count count, MPI_Datatype type) { return count >= 0 && type != MPI_DATATYPE_NULL; }
inline bool is_rank(int root, const group& g) { return root >= 0 && root < g.size; }

}  // namespace colls_mpi
