// The collectives of a group that passes messages. They post in the order in which they were started: see
// message_executor.hpp.
// IWYU pragma: private, include <colls/extend/message_group.hpp>
#pragma once

#include <colls/messages/detail/message_executor.hpp>
#include <colls/messages/detail/reports.hpp>

namespace colls::inline v1::detail {

class collective_posts {
public:
    collective_posts(const message_links& links, rank_reports& reports) : links_(links), reports_(reports) {}

    std::unique_ptr<pending> make() { return std::make_unique<ordered_collective>(*links_.self, *this); }
    void abandon() { order_.clear(); }
    /// The round of the oldest operation that waits for the peer.
    int waiting_round(int peer) const {
        for (const ordered_collective* o : order_)
            if (o->site.peer == peer) return o->site.round;
        return none;
    }
    /// Before an operation begins: what has come meanwhile, and an error where the group is broken.
    void look_before(const char* what) {
        reports_.judge_suspect();
        // An operation that waited just before has moved messages already: what this one sends comes first.
        if (!has_progressed_) links_.collectives->progress();
        has_progressed_ = false;
        has_begun_ = true;
        rank_context& self = *links_.self;
        if (self.memory.poison().state.load(std::memory_order_relaxed) == 0) return;
        leave(self);
        const wait_site at{.what = what};
        throw_poison(self, &at);
    }

private:
    class ordered_collective final : public message_executor {
    public:
        ordered_collective(rank_context& self, collective_posts& all)
            : message_executor(self, *all.links_.collectives), all_(all) {}

        void begin() override {
            all_.look_before(name_of(arguments.what));
            message_executor::begin();
            all_.order_.push_back(this);
            all_.reports_.call_begun();
        }
        bool advance() override {
            if (!all_.has_begun_) {
                all_.links_.collectives->progress();
                all_.has_progressed_ = true;
            }
            all_.has_begun_ = false;
            bool reached = done;
            for (auto i = all_.order_.begin(); i != all_.order_.end();) {
                ordered_collective& next = **i;
                const bool over = next.go_on();
                reached = reached || &next == this;
                if (!next.posted_all()) {
                    // It waits for an operation that was started before, and so for the peer of that one, which
                    // changes.
                    if (!reached) site.peer = next.site.peer;
                    break;
                }
                i = over ? all_.order_.erase(i) : i + 1;
            }
            return done;
        }

    private:
        collective_posts& all_;
    };

    const message_links& links_;
    rank_reports& reports_;
    std::vector<ordered_collective*> order_;           // that are not over, in the order in which they were started
    bool has_begun_ = false, has_progressed_ = false;  // an operation has just begun; progress has been made in one
};

}  // namespace colls::inline v1::detail
