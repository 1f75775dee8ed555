// Steps that the processes of a group take together.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/detail/support/error_text.hpp>
#include <colls/error.hpp>

#include <cstddef>
#include <cstdio>
#include <functional>
#include <new>
#include <utility>
#include <vector>

namespace colls::inline v1::cuda::detail {

/// A step that fails on one rank fails on all, with its cause: no rank throws before the others know. `Info`: what each
/// rank tells the others between two steps; it has `succeeded`, and the text `why`. Allocates in its constructor only.
template <class Info>
class joint_steps {
public:
    /// all[r] = rank r's `own`, on all ranks.
    using info_exchange = std::function<void(const Info& own, std::vector<Info>& all)>;

    /// An error says: `call`: rank 1 `lacks`, because rank 0 `failed`: its reason.
    joint_steps(int rank, int n, info_exchange exchange, const char* call, const char* lacks, const char* failed)
        : n_(n),
          rank_(rank),
          all_(static_cast<std::size_t>(n)),
          exchange_(std::move(exchange)),
          call_(call),
          lacks_(lacks),
          failed_(failed) {}

protected:
    template <class Step>
    void attempt(const Step& step) {
        own_.succeeded = 0;
        try {
            step();
            own_.succeeded = 1;
        } catch (const error& e) {
            code_ = e.code();
            std::snprintf(own_.why, sizeof own_.why, "%s", v1::detail::quoted(e.what()));
        } catch (const std::bad_alloc&) {
            code_ = errc::peer_failed;
            std::snprintf(own_.why, sizeof own_.why, "out of host memory");
        } catch (const std::exception& e) {
            code_ = errc::peer_failed;
            std::snprintf(own_.why, sizeof own_.why, "%s", e.what());
        }
    }
    void tell() { exchange_(own_, all_); }
    /// Throws if a rank's step has failed: this rank's own error, or peer_failed with that of another.
    void throw_if_failed() const {
        int failed = own_.succeeded ? none : rank_;
        for (int r = n_ - 1; r >= 0 && own_.succeeded; --r)
            if (!of(r).succeeded) failed = r;
        if (failed == none) return;
        throw error(failed == rank_ ? code_ : errc::peer_failed,
            (v1::detail::error_text() << "colls: " << call_ << ": rank " << rank_ << " " << lacks_ << ", because rank "
                                      << failed << " " << failed_ << ": " << of(failed).why)
                .text(),
            rank_, failed);
    }
    void exchange() {
        tell();
        throw_if_failed();
    }
    const Info& of(int r) const { return all_[static_cast<std::size_t>(r)]; }

    const int n_, rank_;
    Info own_{};
    std::vector<Info> all_;

private:
    info_exchange exchange_;
    const char *call_, *lacks_, *failed_;
    errc code_ = errc::peer_failed;
};

}  // namespace colls::inline v1::cuda::detail
