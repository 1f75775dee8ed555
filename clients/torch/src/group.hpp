// A communicator over c10d's store, and how its errors reach torch.
#pragma once

#include "abort_hooks.hpp"

#include <colls/bootstrap.hpp>
#include <colls/error.hpp>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace colls_torch {

/// Which process group this rank is in.
struct membership {
    int rank, size;
    std::vector<std::uint64_t> global_ranks;  ///< of each rank of the group; empty: the same numbers

    /// "rank 1", and which global rank that is where the numbers differ.
    std::string name_of(int r) const {
        std::string text = "rank " + std::to_string(r);
        const auto at = static_cast<std::size_t>(r);
        if (at < global_ranks.size() && global_ranks[at] != at)
            text += " (global rank " + std::to_string(global_ranks[at]) + ")";
        return text;
    }
    /// That of a group of these of its ranks, where this process is rank `at`.
    membership part(const std::vector<int>& ranks, int at) const {
        membership who{at, static_cast<int>(ranks.size()), {}};
        for (const int r : ranks)
            who.global_ranks.push_back(
                global_ranks.empty() ? static_cast<std::uint64_t>(r) : global_ranks[static_cast<std::size_t>(r)]);
        return who;
    }
};

/// c10d's store, as colls uses one. Several groups may be formed over it, one after the other.
class store_of_torch final : public colls::key_value_store {
public:
    /// `call`: which one all ranks make.
    store_of_torch(c10::intrusive_ptr<c10d::Store> store, const membership& who, const char* call)
        : store_(std::move(store)), who_(who), call_(call) {}
    void set(std::string_view key, const void* value, std::size_t bytes) override {
        const auto* const from = static_cast<const std::uint8_t*>(value);
        store_->set(std::string(key), std::vector<std::uint8_t>(from, from + bytes));
    }
    void get(std::string_view key, void* value, std::size_t bytes) override {
        std::vector<std::uint8_t> found;
        try {
            found = store_->get(std::string(key));
        } catch (const std::exception& x) {
            const std::string rank(key.substr(key.rfind('/') + 1));
            C10_THROW_ERROR(DistBackendError,
                "colls: " + who_.name_of(std::atoi(rank.c_str())) + " has not come to " + call_ + ": " + x.what());
        }
        TORCH_CHECK(found.size() == bytes, "colls: the store's key ", std::string(key), " has ", found.size(),
            " bytes and not ", bytes, ": something else uses the same store and prefix");
        std::memcpy(value, found.data(), bytes);
    }

private:
    const c10::intrusive_ptr<c10d::Store> store_;
    const membership& who_;
    const char* const call_;
};

/// The exception under way as one that torch translates: DistBackendError where other ranks are concerned. To be called
/// in a handler.
inline std::exception_ptr as_torch_error(const membership& who) {
    try {
        try {
            throw;
        } catch (const colls::error& x) {
            std::string text = x.what();
            const auto at = static_cast<std::size_t>(x.peer());
            if (x.peer() != colls::none && at < who.global_ranks.size() && who.global_ranks[at] != at)
                text += " [" + who.name_of(x.peer()) + "]";
            if (x.code() == colls::errc::timeout) text += "; the timeout of the process group, or of the call, is over";
            if (x.code() == colls::errc::mismatch || x.code() == colls::errc::timeout ||
                x.code() == colls::errc::peer_failed)
                C10_THROW_ERROR(DistBackendError, text);
            C10_THROW_ERROR(Error, text);
        } catch (const c10::Error& x) {
            if (std::string_view(x.what_without_backtrace()).starts_with("colls:")) throw;
            C10_THROW_ERROR(Error, "colls: rank " + std::to_string(who.rank) + ": " + x.what_without_backtrace());
        } catch (const std::exception& x) {
            C10_THROW_ERROR(Error, "colls: rank " + std::to_string(who.rank) + ": " + x.what());
        }
    } catch (...) {
        return std::current_exception();
    }
}
/// Without the places in torch's code.
inline std::string text_of(const std::exception_ptr& failed) {
    try {
        std::rethrow_exception(failed);
    } catch (const c10::Error& x) {
        return x.what_without_backtrace();
    } catch (const std::exception& x) {
        return x.what();
    }
}
/// Is a group broken that has had this error, as torch sees it?
inline bool breaks_group(const std::exception_ptr& failed) {
    try {
        std::rethrow_exception(failed);
    } catch (const c10::DistBackendError&) {
        return true;
    } catch (...) {
        return false;
    }
}
/// The same for a call of a group. Where that is broken by it, the hooks run first.
inline std::exception_ptr as_failure_of_call(const membership& who, const abort_hooks& hooks) {
    const std::exception_ptr failed = as_torch_error(who);
    if (breaks_group(failed)) hooks.run();
    return failed;
}

}  // namespace colls_torch
