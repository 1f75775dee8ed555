// Plays the messages of a schedule in an executor's order: law 5 (live).
// IWYU pragma: private, include <colls/testing/schedule.hpp>
#pragma once

#include <colls/detail/prove/reader.hpp>
#include <colls/testing/detail/random.hpp>
#include <colls/testing/schedule.hpp>
#include <colls/verify/report.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace colls::inline v1::testing::detail {

class player {
public:
    player(const v1::detail::schedule_reader& s, int n, std::uint64_t seed)
        : s_(s),
          n_(n),
          rounds_(s.rounds(n)),
          ports_(s.ports(n)),
          random_(seed),
          where_(size(n)),
          full_(size(n) * size(n) * size(ports_)) {}

    report run() {
        std::vector<int> waiting(where_.size());
        for (int r = 0; r < n_; ++r) waiting[size(r)] = r;
        for (bool moved = true; moved && !waiting.empty();) {
            moved = false;
            for (std::size_t left = waiting.size(); left > 0; --left) {
                const auto pick = size(random_.below(static_cast<int>(left)));
                const int r = waiting[pick];
                std::swap(waiting[pick], waiting[left - 1]);
                while (advance(r)) moved = true;
            }
            std::erase_if(waiting, [this](int r) { return where_[size(r)].round == rounds_; });
        }
        return waiting.empty() ? report{.n = n_} : stuck(waiting.front());
    }

private:
    struct position {
        int round = 0, port = 0;
        bool receiving = false;
    };
    static std::size_t size(int i) { return static_cast<std::size_t>(i); }
    /// Whether the channel holds a message.
    std::vector<bool>::reference channel(int from, int to, int port) {
        return full_[(size(from) * size(n_) + size(to)) * size(ports_) + size(port)];
    }
    bool exists(int peer) const { return peer >= 0 && peer < n_; }

    // Posts one send or completes one receive; false where the rank must wait, or has finished.
    bool advance(int r) {
        position& at = where_[size(r)];
        if (at.round == rounds_) return false;
        const step st = s_.at(r, n_, at.round, at.port);
        const int peer = at.receiving ? st.recv.peer : st.send.peer;
        if (peer != none) {
            if (!exists(peer)) return false;
            const int from = at.receiving ? peer : r, to = at.receiving ? r : peer;
            if (channel(from, to, at.port) != at.receiving) return false;
            channel(from, to, at.port) = !at.receiving;
        }
        if (++at.port == ports_) {
            at.port = 0;
            if (at.receiving) ++at.round;
            at.receiving = !at.receiving;
        }
        return true;
    }
    report stuck(int r) const {
        const position& at = where_[size(r)];
        const step st = s_.at(r, n_, at.round, at.port);
        report out{.law = law::live, .kind = v1::detail::fault::stuck, .n = n_, .rank = r, .round = at.round};
        out.port = at.port;
        out.peer = at.receiving ? st.recv.peer : st.send.peer;
        return out;
    }

    const v1::detail::schedule_reader& s_;
    const int n_, rounds_, ports_;
    random random_;
    std::vector<position> where_;  // by rank
    std::vector<bool> full_;       // by channel
};

}  // namespace colls::inline v1::testing::detail

namespace colls::inline v1::testing {

template <class S>
report play(const S& s, int n, std::uint64_t seed) {
    return detail::player(v1::detail::reader_of<S>(s), n, seed).run();
}

}  // namespace colls::inline v1::testing
