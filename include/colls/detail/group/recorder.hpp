// COLLS_TRACE: what a rank did and when, in a file that Perfetto, chrome://tracing and `colls trace` open.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/wait_site.hpp>
#include <colls/detail/support/clock.hpp>
#include <colls/detail/support/list.hpp>
#include <colls/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace colls::inline v1::detail {

enum class recorded : unsigned char { call, started, wait, copy, fold };

/// A part of a call: times as seconds_now says them.
struct recorded_part {
    double begin = 0, end = 0;
    std::size_t bytes = 0;
    int peer = none, round = none;
    recorded what = recorded::wait;
};
struct recorded_call {
    recorded_part whole;
    std::uint64_t number = 0;  ///< in the group; no_call: a message
    const char* name = "";     ///< the collective, send or recv
    bool failed = false;
    std::size_t parts = 0;  ///< that had been recorded when it was over
    char schedule[64] = {};
};

/// Keeps what one rank of a group does, and adds it to the process's file now and then, and when the group ends. What
/// cannot be written is lost, with one warning.
class recorder {
public:
    /// `path`: COLLS_TRACE. `group`: a label that lives as long as the recorder.
    recorder(const char* path, const char* group, int rank, int size);
    recorder(const recorder&) = delete;
    recorder& operator=(const recorder&) = delete;
    ~recorder();

    void add(const recorded_part& p) {
        if (parts_.size() < most) parts_.push_back(p);
    }
    void add(const recorded_call& c, std::string_view schedule);

private:
    static constexpr std::size_t most = std::size_t{1} << 15;  // between two times of writing
    void write();

    const char *path_, *group_;
    int rank_, size_;
    long thread_;
    bool introduced_ = false;
    list<recorded_part> parts_;
    list<recorded_call> calls_;
};

}  // namespace colls::inline v1::detail

#ifndef COLLS_SEPARATE
#include <colls/detail/group/recorder_file.hpp>
#endif
