// Names that are made at run time, and live as long as the process: ranks' records of their calls refer to them.
// IWYU pragma: private, include <colls/dynamic.hpp>
#pragma once

#include <colls/detail/call/make_request.hpp>

#include <mutex>
#include <string>
#include <string_view>

namespace colls::inline v1::detail {

/// The one copy of a name.
inline const hashed_name* kept_name(std::string_view text) {
    struct kept {
        std::string text;
        std::string_view view;
        hashed_name name;
        kept* next;
    };
    static std::mutex mutex;
    static kept* first = nullptr;  // never destroyed: threads may outlive main
    const std::lock_guard lock(mutex);
    for (kept* k = first; k != nullptr; k = k->next)
        if (k->view == text) return &k->name;
    kept* const k = new kept{std::string(text), {}, {}, first};
    k->view = k->text;
    k->name = {&k->view, hash_text(text)};
    first = k;
    return &k->name;
}

}  // namespace colls::inline v1::detail
