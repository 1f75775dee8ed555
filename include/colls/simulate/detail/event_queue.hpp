// Events in order of time. Those that are added one after another for the same time are kept together, so that rounds
// in which all ranks move at once cost little more than their events.
// IWYU pragma: private, include <colls/simulate.hpp>
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace colls::inline v1::detail {

/// `number` names what happens; an event whose version is no longer that of `number` is stale.
struct event {
    int number;
    unsigned version;
};

class event_queue {
public:
    bool empty() const { return heap_.empty(); }
    /// The number of all events, stale ones too.
    std::size_t size() const { return size_; }
    /// The time of the next events.
    double time() const { return heap_.front().time; }

    void add(double time, event e) {
        ++size_;
        if (open_ >= 0 && time == open_time_) return groups_[static_cast<std::size_t>(open_)].push_back(e);
        if (free_.empty()) {
            free_.push_back(static_cast<int>(groups_.size()));
            groups_.emplace_back();
        }
        open_ = free_.back();
        open_time_ = time;
        free_.pop_back();
        groups_[static_cast<std::size_t>(open_)].push_back(e);
        heap_.push_back({time, open_});
        std::push_heap(heap_.begin(), heap_.end());
    }
    /// Takes the next events, which are of one time, into `events`, which is overwritten.
    void take(std::vector<event>& events) {
        const int next = heap_.front().group;
        std::pop_heap(heap_.begin(), heap_.end());
        heap_.pop_back();
        if (next == open_) open_ = -1;
        events.clear();
        std::swap(events, groups_[static_cast<std::size_t>(next)]);
        free_.push_back(next);
        size_ -= events.size();
    }
    /// Removes the events for which stale(event) is true.
    template <class Stale>
    void forget(Stale stale) {
        std::vector<entry> left;
        size_ = 0;
        for (const entry& e : heap_) {
            auto& group = groups_[static_cast<std::size_t>(e.group)];
            std::erase_if(group, stale);
            size_ += group.size();
            if (!group.empty())
                left.push_back(e);
            else
                free_.push_back(e.group);
        }
        heap_ = std::move(left);
        open_ = -1;
        std::make_heap(heap_.begin(), heap_.end());
    }

private:
    struct entry {
        double time;
        int group;
        bool operator<(const entry& e) const { return time > e.time; }  // the earliest on top of the heap
    };

    std::vector<entry> heap_;
    std::vector<std::vector<event>> groups_;
    std::vector<int> free_;  // groups without events
    int open_ = -1;          // the group that was added to last; -1: none
    double open_time_ = 0;
    std::size_t size_ = 0;
};

}  // namespace colls::inline v1::detail
