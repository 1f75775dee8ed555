// Compiled with instrumentation: see scheduler.hpp.
#include "message.hpp"

#include "ranks.hpp"

#include <algorithm>

namespace interleaving {
namespace {

class message_program final : public group_program {
public:
    message_program(int n, const std::vector<started_message>& messages, bool reached)
        : group_program(n), messages_(messages), reached_(reached) {
        for (const started_message& m : messages) {
            places_.push_back(bytes_);
            bytes_ += m.bytes;
        }
        sent_ = own_memory(reached ? bytes_ : 0);
        if (!reached) kept_.resize(bytes_);
        received_.resize(bytes_);
    }
    void run(int rank) override {
        rank_context& self = context(rank);
        // A wait advances the other operations after its last spin: it has none.
        self.waits = wait_policy(true, false);
        if (!reached_) self.access.reach = 0;
        try {
            std::vector<operation_state*> open(messages_.size());
            for (std::size_t k = 0; k < messages_.size(); ++k) open[k] = start(self, k);
            for (std::size_t k = 0; k < messages_.size(); ++k)
                if (open[k] != nullptr) complete(self, k, *open[k]);
        } catch (const colls::error& failure) {
            fail(failure.what());
        }
    }

private:
    std::byte* sent(std::size_t k) { return (reached_ ? sent_ : kept_.data()) + places_[k]; }
    std::byte* received(std::size_t k) { return received_.data() + places_[k]; }
    static std::byte content(std::size_t k, std::size_t i) {
        return static_cast<std::byte>(k * 37 + i / 4096 * 5 + i + 1);
    }

    operation_state* start(rank_context& self, std::size_t k) {
        const started_message& m = messages_[k];
        if (self.rank != m.from && self.rank != m.to) return nullptr;
        const bool sends = self.rank == m.from;
        if (sends)
            for (std::size_t i = 0; i < m.bytes; ++i) sent(k)[i] = content(k, i);
        call c;
        c.count = m.bytes;
        c.element = 1;
        c.in = sends ? sent(k) : nullptr;
        c.out = sends ? nullptr : received(k);
        return begin_checked_message(
            self, sends ? operation_kind::send : operation_kind::recv, c, sends ? m.to : m.from, true);
    }
    /// Then the buffer is this rank's again.
    void complete(rank_context& self, std::size_t k, operation_state& o) {
        const started_message& m = messages_[k];
        wait_until_done(self, o);
        release_operation(self, o);
        std::byte* const data = self.rank == m.from ? sent(k) : received(k);
        for (std::size_t i = 0; self.rank == m.to && i < m.bytes; ++i)
            if (data[i] != content(k, i))
                fail("message " + std::to_string(k) + " has a wrong byte " + std::to_string(i));
        std::fill_n(data, m.bytes, std::byte{0xee});
    }

    const std::vector<started_message>& messages_;
    const bool reached_;
    std::vector<std::size_t> places_;
    std::size_t bytes_ = 0;
    std::byte* sent_ = nullptr;
    std::vector<std::byte> kept_, received_;  // which other ranks do not reach
};

}  // namespace

outcome explore_messages(int ranks, const std::vector<started_message>& messages, bool reached, int delays) {
    message_program p(ranks, messages, reached);
    return explore(p, delays);
}

}  // namespace interleaving
