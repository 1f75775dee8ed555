// What any_schedule knows of the type of its schedule.
// IWYU pragma: private, include <colls/any_schedule.hpp>
#pragma once

#include <colls/algebra/folded.hpp>
#include <colls/detail/prove/schedule_reader.hpp>
#include <colls/detail/support/error_text.hpp>
#include <colls/detail/support/type_name.hpp>

#include <string_view>

namespace colls::inline v1 {

class any_schedule;

namespace detail {

/// What a proof at run time has found (see examine.hpp).
struct finding {
    bool right = false, order_preserving = false, one_expression = false;
    bool expressions_known = true;  ///< false: it has not looked for order_preserving and one_expression
    bool unproven = false;          ///< the proof would take too much memory: the text says how much
    int rank = none, round = none;
    error_text text;
};

struct schedule_table {
    std::string_view type;  ///< its name, whose hash begins the fingerprint of a plan
    bool folds;             ///< folded<S> exists
    int (*ask)(const void* s, question q, int rank, int n, int slot);
    step (*at)(const void* s, int rank, int n, int round, int port);
    finding (*prove)(const any_schedule& s, int n);  ///< null: proven in the library's own tests
};

template <class S>
[[gnu::cold]] int ask_erased(const void* s, question q, int rank, int n, int slot) {
    return answer(*static_cast<const S*>(s), q, rank, n, slot);
}
template <class S>
[[gnu::cold]] step step_of_erased(const void* s, int rank, int n, int round, int port) {
    return step_of(*static_cast<const S*>(s), rank, n, round, port);
}
finding prove(const any_schedule& s, int n);

/// `proven`: its proof is part of the library's tests, and the verifier is not compiled into the program for it.
template <class S, bool proven = false>
inline constexpr schedule_table table_of{
    type_name<S>(), foldable<implemented_by<S>, S>(), &ask_erased<S>, &step_of_erased<S>, proven ? nullptr : &prove};

}  // namespace detail
}  // namespace colls::inline v1
