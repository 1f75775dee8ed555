// Senders of operations, and a receiver that waits in a loop.
// IWYU pragma: private, include <colls/interop/sender.hpp>
#pragma once

#include <colls/interop/loop.hpp>

#if defined(__cpp_lib_senders)
#include <execution>
#elif __has_include(<stdexec/execution.hpp>)
#include <stdexec/execution.hpp>
#endif

#if defined(__cpp_lib_senders) || __has_include(<stdexec/execution.hpp>)
#include <atomic>
#include <exception>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace colls::inline v1::detail {

#if defined(__cpp_lib_senders)
namespace senders {
using namespace std::execution;
using std::get_stop_token;
}  // namespace senders
#else
namespace senders = stdexec;
#endif

template <class Start, class Receiver>
class sender_state final : private waiter {
public:
    using operation_state_concept = senders::operation_state_t;

    sender_state(Start&& start, Receiver&& receiver) : start_(std::move(start)), receiver_(std::move(receiver)) {}

    void start() & noexcept {
        if (senders::get_stop_token(senders::get_env(receiver_)).stop_requested())
            return senders::set_stopped(std::move(receiver_));
        try {
            operation_ = start_();
            if (interop::loop* const l = interop::loop::current()) return l->append(*this, operation_);
            operation_.wait();
        } catch (...) {
            failure = std::current_exception();
        }
        over();
    }

private:
    void over() noexcept override {
        if (failure)
            senders::set_error(std::move(receiver_), std::move(failure));
        else
            senders::set_value(std::move(receiver_));
    }
    Start start_;
    Receiver receiver_;
    operation operation_;
};

template <class Start>
class operation_sender {
public:
    using sender_concept = senders::sender_t;
    using completion_signatures = senders::completion_signatures<senders::set_value_t(),
        senders::set_error_t(std::exception_ptr), senders::set_stopped_t()>;

    explicit operation_sender(Start&& start) : start_(std::move(start)) {}
    template <class Receiver>
    sender_state<Start, Receiver> connect(Receiver receiver) && {
        return {std::move(start_), std::move(receiver)};
    }
    template <class Receiver>
    sender_state<Start, Receiver> connect(Receiver receiver) const& {
        return {Start(start_), std::move(receiver)};
    }

private:
    Start start_;
};

template <class... T>
using tuple_of_values = std::tuple<std::decay_t<T>...>;
template <class... One>
struct one_of;
template <class T>
struct one_of<T> {
    using type = T;
};
template <class... T>
using only_one = typename one_of<T...>::type;

template <class Values>
struct waiting_receiver {
    using receiver_concept = senders::receiver_t;
    struct result {
        std::optional<Values> values;
        std::exception_ptr failure;
        std::atomic<bool> over{false};
    };
    template <class... T>
    void set_value(T&&... x) && noexcept {
        try {
            to->values.emplace(std::forward<T>(x)...);
        } catch (...) {
            to->failure = std::current_exception();
        }
        to->over.store(true, std::memory_order_release);
    }
    template <class Error>
    void set_error(Error&& e) && noexcept {
        if constexpr (std::is_same_v<std::decay_t<Error>, std::exception_ptr>)
            to->failure = std::forward<Error>(e);
        else
            to->failure = std::make_exception_ptr(std::forward<Error>(e));
        to->over.store(true, std::memory_order_release);
    }
    void set_stopped() && noexcept { to->over.store(true, std::memory_order_release); }

    result* to;
};

template <class Sender>
auto wait_for_sender(interop::loop& in, Sender&& sender) {
    using values = senders::value_types_of_t<Sender, senders::env<>, tuple_of_values, only_one>;
    typename waiting_receiver<values>::result got;
    auto state = senders::connect(std::forward<Sender>(sender), waiting_receiver<values>{&got});
    in.within([&] { senders::start(state); });
    // Where another thread completes it, there may be nothing here to wait for.
    const auto over = [&] { return got.over.load(std::memory_order_acquire); };
    for (double since = 0; !over(); since = over() ? since : pause_between_tests(since)) in.run_until(over);
    if (got.failure) std::rethrow_exception(got.failure);
    return std::move(got.values);
}

}  // namespace colls::inline v1::detail
#endif
