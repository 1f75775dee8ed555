// Buffers of a call that are packed before it begins and unpacked when it is over.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/config.hpp>

namespace colls::inline v1::detail {

/// Packed copies of a call's buffers, which the call moves in place of them. Neither function throws.
class packed_arguments {
public:
    virtual void pack() = 0;
    virtual void unpack() = 0;

protected:
    packed_arguments() = default;
    packed_arguments(const packed_arguments&) = delete;
    virtual ~packed_arguments() = default;

private:
    friend class shared_packing;
    int holders_ = 0;
};

/// Shares packed arguments, or holds none: the call, the operation that runs it and the plan that keeps it need them.
/// (No std::shared_ptr: every unit that makes a call would include <memory>.)
class shared_packing {
public:
    shared_packing() = default;
    explicit shared_packing(packed_arguments* b) : b_(b) { hold(); }
    shared_packing(const shared_packing& other) : b_(other.b_) { hold(); }
    shared_packing& operator=(const shared_packing& other) {
        if (this == &other) return *this;
        other.hold();
        drop();
        b_ = other.b_;
        return *this;
    }
    ~shared_packing() { drop(); }

    explicit operator bool() const { return b_ != nullptr; }
    packed_arguments* operator->() const { return b_; }

private:
    void hold() const {
        if (b_) ++b_->holders_;
    }
    void drop() const {
        if (b_ && --b_->holders_ == 0) delete b_;
    }
    packed_arguments* b_ = nullptr;
};

}  // namespace colls::inline v1::detail
