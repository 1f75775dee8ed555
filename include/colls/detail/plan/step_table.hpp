// A schedule at one group size, read once: its shape and all of its steps.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Planning looks at each step several times, and the functions behind any_schedule are compiled to be small, not fast.
#pragma once

#include <colls/any_schedule.hpp>
#include <colls/detail/support/list.hpp>
#include <colls/error.hpp>

#include <cstdint>
#include <string_view>

namespace colls::inline v1::detail {

/// Throws the error of a schedule for which no plan can be made; `rank` and `round`: where the fault lies, if known.
[[noreturn]] inline void refuse_schedule(
    const any_schedule& s, int n, errc code, std::string_view why, int rank = none, int round = none) {
    message what;
    put_brief(what << "colls: ", s.name()) << " at " << n << " ranks: ";
    if (code == errc::wrong_schedule) what << "the proof rejects it: ";
    throw error(code, (what << why).text(), rank, none, round);
}

class step_table {
public:
    /// The schedule must support n ranks, and outlive the table. Throws errc::unsupported where it has too many rounds
    /// for the planner, or scratch slots beside several blocks.
    step_table(const any_schedule& s, int n);

    const any_schedule& schedule;
    const collective what;
    const int size, rounds, ports;
    const int blocks;  ///< slots that hold data at the start or end
    const int slots;   ///< of a rank, with the schedule's scratch slots, which come last
    const int root;    ///< 0 where there is none

    const step& at(int rank, int round, int port) const { return steps_[(long{rank} * rounds + round) * ports + port]; }
    /// Of the schedule's type and every step: ranks that make different calls differ in it.
    std::uint64_t fingerprint() const { return fingerprint_; }

private:
    list<step> steps_;
    std::uint64_t fingerprint_;
};

inline step_table::step_table(const any_schedule& s, int n)
    : schedule(s),
      what(s.implements),
      size(n),
      rounds(s.rounds(n)),
      ports(s.ports(n)),
      blocks(s.blocks(n)),
      slots(blocks + s.scratch(n)),
      root(rooted(what) ? s.root(n) : 0),
      fingerprint_(hash_mix(hash_text(s.type()), static_cast<std::uint64_t>(blocks))) {
    // Clocks hold 16 bits, and a round takes two values.
    if (rounds >= 30000) refuse_schedule(s, n, errc::unsupported, "more than 30,000 rounds");
    if (slots > blocks && blocks > 1)
        refuse_schedule(s, n, errc::unsupported, "scratch slots need a schedule of one block");
    steps_.reserve(static_cast<std::size_t>(n) * static_cast<std::size_t>(rounds) * static_cast<std::size_t>(ports));
    const auto mix = [this](int a, int b) {
        fingerprint_ = hash_mix(
            fingerprint_, static_cast<std::uint64_t>(static_cast<unsigned>(a)) << 32 | static_cast<unsigned>(b));
    };
    for (int r = 0; r < n; ++r)
        for (int k = 0; k < rounds; ++k)
            for (int p = 0; p < ports; ++p) {
                const step st = s.at(r, n, k, p);
                steps_.push_back(st);
                const block_set &sent = st.send.blocks, &received = st.recv.blocks;
                mix(st.send.peer, st.recv.peer);
                mix(sent.size(), received.size());
                if (!sent.empty()) mix(sent[0], sent[sent.size() - 1]);
                if (!received.empty()) mix(received[0], static_cast<int>(st.recv.action));
            }
}

}  // namespace colls::inline v1::detail
