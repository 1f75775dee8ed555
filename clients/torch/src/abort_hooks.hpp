// class abort_hooks: what a program wants called before the error of a broken group reaches it.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace colls_torch {

/// By numbers that torch gives. Any thread may add, remove and run them; one that is removed while they run may run
/// once more.
class abort_hooks {
public:
    using hook = std::function<void()>;

    void add(std::int64_t id, hook f) {
        const std::lock_guard lock(mutex_);
        hooks_[id] = std::make_shared<const hook>(std::move(f));
    }
    void remove(std::int64_t id) {
        std::shared_ptr<const hook> removed;  // freed after the lock: that may need Python's
        const std::lock_guard lock(mutex_);
        if (const auto at = hooks_.find(id); at != hooks_.end()) {
            removed = std::move(at->second);
            hooks_.erase(at);
        }
    }
    /// What a hook throws is a warning: the error of the group is what the program is to see.
    void run() const {
        std::vector<std::shared_ptr<const hook>> all;
        {
            const std::lock_guard lock(mutex_);
            for (const auto& [id, f] : hooks_) all.push_back(f);
        }
        for (const auto& f : all) {
            try {
                (*f)();
            } catch (const std::exception& x) {
                TORCH_WARN("colls: an abort hook has failed: ", x.what());
            }
        }
    }

private:
    mutable std::mutex mutex_;
    std::map<std::int64_t, std::shared_ptr<const hook>> hooks_;
};

}  // namespace colls_torch
