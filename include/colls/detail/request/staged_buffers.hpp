// Buffers of a call that are packed before it begins and unpacked when it is over.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/config.hpp>

namespace colls::inline v1::detail {

/// Packed copies of a call's buffers, which the call moves in place of them. Neither function throws.
class staged_buffers {
public:
    virtual void pack() = 0;
    virtual void unpack() = 0;

protected:
    staged_buffers() = default;
    staged_buffers(const staged_buffers&) = delete;
    virtual ~staged_buffers() = default;

private:
    friend class staging;
    int holders_ = 0;
};

/// Shares staged buffers, or holds none: the call, the operation that runs it and the plan that keeps it need them.
/// (No std::shared_ptr: every unit that makes a call would include <memory>.)
class staging {
public:
    staging() = default;
    explicit staging(staged_buffers* b) : b_(b) { hold(); }
    staging(const staging& other) : b_(other.b_) { hold(); }
    staging& operator=(const staging& other) {
        if (b_ == other.b_) return *this;
        drop();
        b_ = other.b_;
        hold();
        return *this;
    }
    ~staging() { drop(); }

    explicit operator bool() const { return b_ != nullptr; }
    staged_buffers* operator->() const { return b_; }

private:
    void hold() const {
        if (b_) ++b_->holders_;
    }
    void drop() const {
        if (b_ && --b_->holders_ == 0) delete b_;
    }
    staged_buffers* b_ = nullptr;
};

}  // namespace colls::inline v1::detail
