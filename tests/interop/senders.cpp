// Calls as senders of std::execution: concepts, results, errors, stopping, and senders beside coroutines in a loop.
// tests/interop/check_senders compiles it where there are senders.
#include <colls/colls.hpp>
#include <colls/interop/coroutine.hpp>
#include <colls/interop/sender.hpp>
#include <colls/transports/threads.hpp>

#include <chrono>
#include <cstdio>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

static_assert(COLLS_SENDERS);
namespace interop = colls::interop;
#if defined(__cpp_lib_senders)
namespace ex = std::execution;
using std::get_stop_token;
using std::inplace_stop_source;
using std::this_thread::sync_wait;
#else
namespace ex = stdexec;
using stdexec::get_stop_token;
using stdexec::inplace_stop_source;
using stdexec::sync_wait;
#endif

namespace {

void expect(bool right, const std::string& what) {
    if (!right) throw std::runtime_error(what);
}
/// The sum of the ranks' x, as a sender; x is 1 more than the rank.
auto sum_of(colls::communicator& comm, std::vector<long>& x) {
    x.assign(x.size(), comm.rank() + 1);
    return interop::as_sender([&] { return colls::start::all_reduce(comm, x, colls::sum); });
}
bool all_are(const std::vector<long>& x, long value) {
    for (const long e : x)
        if (e != value) return false;
    return true;
}
/// The error that f throws.
template <class F>
std::optional<colls::error> error_of(F f) {
    try {
        f();
    } catch (const colls::error& e) {
        return e;
    }
    return {};
}

using start_type = colls::operation (*)();
using sender_type = decltype(interop::as_sender(start_type()));
static_assert(ex::sender<sender_type> && ex::sender_in<sender_type, ex::env<>>);
static_assert(ex::sender_in<const sender_type&, ex::env<>>);
struct any_receiver {
    using receiver_concept = ex::receiver_t;
    void set_value() && noexcept {}
    void set_error(std::exception_ptr) && noexcept {}
    void set_stopped() && noexcept {}
};
static_assert(ex::receiver_of<any_receiver, ex::completion_signatures_of_t<sender_type, ex::env<>>>);
static_assert(ex::sender_to<sender_type, any_receiver>);
static_assert(ex::operation_state<ex::connect_result_t<sender_type, any_receiver>>);

void results(colls::communicator& comm) {
    const long n = comm.size(), sum = n * (n + 1) / 2;
    for (const auto order : {interop::resume_order::as_started, interop::resume_order::as_finished}) {
        std::vector<long> x(10'000), y(1), z(0);
        interop::loop l(order);
        const auto got = interop::sync_wait(
            l, ex::when_all(sum_of(comm, x), sum_of(comm, y), sum_of(comm, z)) | ex::then([&] { return y[0]; }));
        expect(got && std::get<0>(*got) == sum && all_are(x, sum), "when_all: the sums are others");
    }
    // One call after the other, and a plan.
    std::vector<long> x(500), y(700);
    auto plan = colls::prepare::all_reduce(comm, y, colls::max);
    const auto chain = sum_of(comm, x) | ex::let_value([&] {
        y.assign(y.size(), x[0] + comm.rank());
        return interop::as_sender([&] { return plan.start(); });
    });
    expect(interop::sync_wait(chain).has_value() && all_are(y, sum + n - 1), "let_value: the maximum is another");
    // A copy may be started again; y is what the plan has left.
    expect(sync_wait(interop::as_sender([&] { return plan.start(); })).has_value(), "sync_wait of the standard");
    expect(sync_wait(ex::when_all(sum_of(comm, x), sum_of(comm, y))).has_value() && all_are(y, sum), "without a loop");
    std::vector<long> big(300'000);
    const auto seen = sync_wait(sum_of(comm, big) | ex::then([&] { return all_are(big, sum); }));
    expect(seen && std::get<0>(*seen), "it completes before the operation is over");
    // What another thread completes.
    std::thread other;
    ex::run_loop there;
    const auto hop = ex::schedule(there.get_scheduler()) | ex::then([] { return 5; });
    other = std::thread([&] { there.run(); });
    const auto five = interop::sync_wait(hop);
    there.finish();
    other.join();
    expect(five && std::get<0>(*five) == 5, "another thread");
}

void errors(colls::communicator& comm) {
    std::vector<long> x(3), y(5);
    const auto wrong = interop::as_sender([&] { return colls::start::broadcast(comm, x, 9); });
    auto e = error_of([&] { interop::sync_wait(wrong); });
    expect(e && e->code() == colls::errc::invalid_argument, "a refused call");
    bool handled = false;
    interop::sync_wait(wrong | ex::upon_error([&](const std::exception_ptr&) { handled = true; }));
    expect(handled, "upon_error");
    // The other call is under way, and ends.
    e = error_of([&] { interop::sync_wait(ex::when_all(sum_of(comm, y), wrong)); });
    expect(e && e->code() == colls::errc::invalid_argument, "when_all with a refused call");
    expect(all_are(y, comm.size() * (comm.size() + 1) / 2), "the other call");
    colls::barrier(comm);
}

void stopping(colls::communicator& comm) {
    std::vector<long> x(3);
    int made = 0;
    inplace_stop_source source;
    const auto counted = interop::as_sender([&] { return ++made, colls::start::all_reduce(comm, x, colls::sum); });
    const auto stoppable = ex::write_env(counted, ex::prop{get_stop_token, source.get_token()});
    expect(interop::sync_wait(stoppable).has_value() && made == 1, "before the request");
    source.request_stop();
    expect(!interop::sync_wait(stoppable).has_value() && made == 1, "after the request the call is not made");
    colls::barrier(comm);
}

void beside_coroutines(colls::communicator& comm) {
    std::vector<int> order;
    std::vector<long> x(100, 1), y(100, 1);
    const auto body = [&]() -> interop::task<> {
        co_await colls::start::all_reduce(comm, x, colls::sum);
        order.push_back(1);
        co_await colls::start::all_reduce(comm, x, colls::sum);
        order.push_back(3);
    };
    auto t = body();
    interop::loop l;
    t.start(l);
    interop::sync_wait(l, interop::as_sender([&] { return colls::start::all_reduce(comm, y, colls::sum); }) |
                              ex::then([&] { order.push_back(2); }));
    l.run();
    expect(t.done() && order == std::vector<int>{1, 2, 3}, "a sender beside a coroutine");
}

void failed(colls::communicator& comm) {
    if (comm.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        return comm.abort("no more");
    }
    std::vector<long> x(100), y(100);
    const auto e = error_of([&] { interop::sync_wait(ex::when_all(sum_of(comm, x), sum_of(comm, y))); });
    expect(e && e->code() == colls::errc::peer_failed, "a rank that has failed");
}

}  // namespace

int main() {
    for (const int n : {2, 3})
        for (const auto part : {results, errors, stopping, beside_coroutines, failed}) colls::threads::run(n, part);
    colls::threads::run(1, results);
    std::puts("senders: right");
}
