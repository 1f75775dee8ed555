// A schedule without its type: the one interface by which the library reads schedules.
// IWYU pragma: private, include <colls/any_schedule.hpp>
//
// The proof, the cost and the executors use it, so that they are compiled once however many schedules a program names.
#pragma once

#include <colls/schedule.hpp>

namespace colls::inline v1::detail {

/// Everything that a schedule says of itself besides its steps.
enum class question : unsigned char { rounds, ports, blocks, scratch, root, supports, home, input, output };

/// True for the collectives whose schedules say by `input` and `output` what slots hold before and after.
constexpr bool names_contents(collective c) { return c == collective::all_to_all || c == collective::redistribute; }

/// The answer of a schedule, by the accessors of schedule.hpp. An argument that a question does not have is ignored.
/// Called while a plan is made, never while data moves: hence cold, small rather than fast.
template <class S>
[[gnu::cold]] constexpr int answer(const S& s, question q, int rank, int n, int slot) {
    switch (q) {
        case question::rounds:
            return s.rounds(n);
        case question::ports:
            return ports_of(s, n);
        case question::blocks:
            return blocks_of(s, n);
        case question::scratch:
            return scratch_of(s, n);
        case question::root:
            return root_of(s, n);
        case question::supports:
            return supports(s, n);
        case question::home:
            return owned(collective_of(s)) ? home_of(s, n, slot) : slot;
        case question::input:
            return names_contents(collective_of(s)) ? input_of(s, rank, n, slot) : none;
        case question::output:
            return names_contents(collective_of(s)) ? output_of(s, rank, n, slot) : none;
    }
    return none;
}

/// The interface: the accessors of schedule.hpp as members. Its two virtual functions are constexpr, so that the proof
/// runs at compile time, too.
class schedule_reader {
public:
    collective implements;

    constexpr collective kind() const { return implements; }
    constexpr int rounds(int n) const { return ask(question::rounds, 0, n, 0); }
    constexpr int ports(int n) const { return ask(question::ports, 0, n, 0); }
    constexpr int blocks(int n) const { return ask(question::blocks, 0, n, 0); }
    constexpr int scratch(int n) const { return ask(question::scratch, 0, n, 0); }
    constexpr int root(int n) const { return ask(question::root, 0, n, 0); }
    constexpr bool supports(int n) const { return ask(question::supports, 0, n, 0) != 0; }
    constexpr int home(int n, int slot) const { return ask(question::home, 0, n, slot); }
    constexpr int input(int rank, int n, int slot) const { return ask(question::input, rank, n, slot); }
    constexpr int output(int rank, int n, int slot) const { return ask(question::output, rank, n, slot); }
    constexpr virtual step at(int rank, int n, int round, int port) const = 0;

protected:
    explicit constexpr schedule_reader(collective what) : implements(what) {}
    constexpr schedule_reader(const schedule_reader&) = default;
    constexpr schedule_reader& operator=(const schedule_reader&) = default;
    ~schedule_reader() = default;

    constexpr virtual int ask(question q, int rank, int n, int slot) const = 0;
};

/// Reads a schedule that outlives this.
template <class S>
class reader_of final : public schedule_reader {
public:
    explicit constexpr reader_of(const S& s) : schedule_reader(collective_of(s)), s_(s) {}
    constexpr step at(int rank, int n, int round, int port) const override { return step_of(s_, rank, n, round, port); }

private:
    constexpr int ask(question q, int rank, int n, int slot) const override { return answer(s_, q, rank, n, slot); }

    const S& s_;
};

/// Stands for what cannot be read, so that no error follows from the one that says so.
struct no_schedule {
    static constexpr collective implements = collective::barrier;
    static constexpr int rounds(int) { return 0; }
    static constexpr step at(int, int, int) { return {}; }
};
inline constexpr no_schedule unreadable{};

/// Reads s, a schedule, or something like one that is not trivially copyable. A compile error says in words what S
/// lacks.
template <class S>
constexpr auto readable(const S& s) {
    constexpr bool is =
        requires(const S& x) { x.implements; } && counts_rounds<S> && (steps_without_port<S> || steps_with_port<S>);
    static_assert(is,
        "colls: this is not a schedule: it needs `implements`, `rounds(n)`, and `at(rank, n, round)` or `at(rank, n, "
        "round, port)` that returns a colls::step, const or static; of a family take schedule_for<F, C>");
    if constexpr (is)
        return reader_of<S>(s);
    else
        return reader_of<no_schedule>(unreadable);
}

}  // namespace colls::inline v1::detail
