// From exceptions to statuses: no exception leaves a function of colls.h.
#pragma once

#include "../include/colls.h"

#include <colls/detail/support/error_text.hpp>

#include <exception>
#include <string>

namespace colls_c {

using colls::detail::error_text;

/// What this interface itself refuses, or a function of the caller reports.
class failure : public std::exception {
public:
    failure(colls_status status, const char* text, int rank = -1) : status_(status), rank_(rank), text_(text) {}
    const char* what() const noexcept override { return text_.c_str(); }
    colls_status status() const noexcept { return status_; }
    int rank() const noexcept { return rank_; }

private:
    colls_status status_;
    int rank_;
    std::string text_;
};

/// Keeps the exception under way as the latest error of this thread. To be called in a handler.
colls_status note_failure(const char* function) noexcept;

/// Calls f; what it throws becomes a status and a text.
template <class F>
colls_status guarded(const char* function, const F& f) noexcept {
    try {
        f();
        return COLLS_OK;
    } catch (...) {
        return note_failure(function);
    }
}

[[noreturn]] void refuse(const char* function, const error_text& why, colls_status status = COLLS_INVALID_ARGUMENT);
/// Refuses an address of the caller that is null.
inline void need(const char* function, const void* address, const char* name) {
    if (address == nullptr) refuse(function, error_text() << "the argument " << name << " is NULL: pass an address");
}

}  // namespace colls_c
