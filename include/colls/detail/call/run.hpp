// Runs of ranks, without the type of their function: defined in detail/run/.
// IWYU pragma: private, include <colls/transports/threads.hpp>
#pragma once

#include <type_traits>

namespace colls::inline v1 {

class communicator;

namespace detail {

/// Refers to a callable f(communicator&) that outlives it.
class rank_task {
public:
    template <class F>
        requires(!std::is_same_v<std::remove_cv_t<F>, rank_task>)
    explicit rank_task(F& f) : call_([](void* g, communicator& c) { (*reinterpret_cast<F*>(g))(c); }) {
        if constexpr (std::is_function_v<F>)
            f_ = reinterpret_cast<void*>(&f);
        else
            f_ = const_cast<void*>(static_cast<const volatile void*>(__builtin_addressof(f)));
    }
    void operator()(communicator& c) const { call_(f_, c); }

private:
    void* f_ = nullptr;
    void (*call_)(void*, communicator&);
};

}  // namespace detail

namespace threads::detail {
void run(int n, colls::detail::rank_task f);
}
namespace processes::detail {
void run(int n, colls::detail::rank_task f);
}

}  // namespace colls::inline v1
