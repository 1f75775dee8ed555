// COLLS_TRACE: keeps what one rank of a group does, and adds it to the process's file now and then, and when the group
// ends. What cannot be written is lost, with one warning. COLLS_DEBUG=trace: prints a line for each call that is over.
// IWYU pragma: private
#pragma once

#include <colls/detail/group/failure.hpp>
#include <colls/detail/group/rank_context.hpp>
#include <colls/detail/request/request.hpp>
#include <colls/files/detail/trace_file.hpp>

#include <sys/syscall.h>

#include <algorithm>

namespace colls::inline v1::detail {

/// Text for JSON: names of schedules hold no other characters that it would have to escape.
[[gnu::cold]] inline std::string quotable(const char* text) {
    std::string s;
    for (; *text; ++text) s += *text == '"' || *text == '\\' || static_cast<unsigned char>(*text) < 32 ? '?' : *text;
    return s;
}

class call_tracer final : public tracer {
public:
    /// `path`: COLLS_TRACE, or null.
    call_tracer(const char* path, const rank_context& self) : path_(path), self_(self) {}
    ~call_tracer() override { write(); }

    double begin() override {
        if (thread_ == 0) thread_ = syscall(SYS_gettid);
        return seconds_now();
    }
    void add(const traced_part& p) override {
        if (path_ != nullptr && parts_.size() < most) parts_.push_back(p);
    }
    [[gnu::cold]] void end(const call& c, const traced_call& how) override {
        // Off the root of a gather or scatter a rank may know its own block only.
        const std::size_t count = c.count > 0 ? c.count : c.own_count;
        kept_call k{how, seconds_now(), count * c.element, parts_.size()};
        if (self_.env.debug == debug_level::trace) print(k, count);
        if (path_ == nullptr) return;
        how.schedule.copy(k.schedule, sizeof k.schedule - 1);
        calls_.push_back(k);
        if (parts_.size() > most / 2 || calls_.size() > most / 8) write();
    }

private:
    struct kept_call {
        traced_call how;
        double end;
        std::size_t bytes;
        std::size_t parts;  ///< that had been recorded when it was over
        char schedule[64] = {};
    };

    void print(const kept_call& k, std::size_t count) const {
        const traced_call& how = k.how;
        const numbers_with_point as_documented;
        char by[96], text[320];
        if (how.peer == none)
            std::snprintf(by, sizeof by, "by %.*s", static_cast<int>(how.schedule.size()), how.schedule.data());
        else
            std::snprintf(by, sizeof by, "%s rank %d", how.name[0] == 's' ? "to" : "from", how.peer);
        std::snprintf(text, sizeof text,
            "colls: %.6f s: rank %d of group %s: %s of %zu elements (%zu bytes) %s: %s%s%.1f us",
            how.begin - self_.began, self_.rank, self_.label, how.name, count, k.bytes, by,
            how.started ? "started, " : "", how.failed ? "failed after " : "", (k.end - how.begin) * 1e6);
        say(error_text() << text);
    }
    [[gnu::cold]] void write() {
        const long process = getpid();
        const numbers_with_point as_json;
        std::string text;
        char one[512];
        const auto put = [&](const char* name, double begin, double end, const char* more) {
            std::snprintf(one, sizeof one,
                "{\"name\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%ld,\"tid\":%ld,\"args\":{"
                "\"group\":\"%s\",\"rank\":%d%s}},\n",
                name, begin * 1e6, (end - begin) * 1e6, process, thread_, self_.label, self_.rank, more);
            text += one;
        };
        if (!introduced_ && !calls_.empty()) {
            // The boot's number says which processes have one clock.
            std::snprintf(one, sizeof one,
                "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%ld,\"tid\":%ld,\"args\":{\"name\":\"rank %d of group "
                "%s\"}},\n",
                process, thread_, self_.rank, self_.label);
            text += one;
            std::snprintf(one, sizeof one,
                "{\"name\":\"colls\",\"ph\":\"M\",\"pid\":%ld,\"tid\":%ld,\"args\":{\"group\":\"%s\",\"rank\":%d,"
                "\"size\":%d,\"host\":\"%s\",\"clock\":\"%s\",\"number\":\"%llx.%ld\"}},\n",
                process, thread_, self_.label, self_.rank, self_.size, quotable(host_name().text).c_str(),
                quotable(boot_of_host().text).c_str(), static_cast<unsigned long long>(self_.number),
                self_.access.is_whole() ? process : 0);  // that of threads is an address
            text += one;
            introduced_ = true;
        }
        constexpr const char* names[] = {"wait", "copy", "fold"};
        std::size_t next = 0;
        for (const kept_call& k : calls_) {
            char more[256];
            std::snprintf(more, sizeof more, ",\"call\":%lld,\"schedule\":\"%s\",\"bytes\":%zu,\"peer\":%d%s%s",
                k.how.peer != none ? -1LL : static_cast<long long>(k.how.number), quotable(k.schedule).c_str(), k.bytes,
                k.how.peer, k.how.started ? ",\"started\":true" : "", k.how.failed ? ",\"failed\":true" : "");
            put(k.how.name, k.how.begin, k.end, more);
            // A wait is added when the work that follows it is done.
            std::sort(parts_.begin() + next, parts_.begin() + k.parts, [](const traced_part& a, const traced_part& b) {
                return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
            });
            while (next < k.parts) {
                // Parts of one round, one after another, are shown as the round.
                std::size_t last = next;
                while (last + 1 < k.parts && parts_[last + 1].round == parts_[next].round) ++last;
                if (parts_[next].round != none) {
                    std::snprintf(more, sizeof more, ",\"round\":%d", parts_[next].round);
                    put("round", parts_[next].begin, parts_[last].end, more);
                }
                for (; next <= last; ++next) {
                    const traced_part& p = parts_[next];
                    std::snprintf(
                        more, sizeof more, ",\"round\":%d,\"peer\":%d,\"bytes\":%zu", p.round, p.peer, p.bytes);
                    put(names[p.what], p.begin, p.end, more);
                }
            }
        }
        // Parts of a call that is not over are kept.
        if (calls_.empty()) return;
        list<traced_part> rest;
        for (std::size_t i = next; i < parts_.size(); ++i) rest.push_back(parts_[i]);
        parts_ = static_cast<list<traced_part>&&>(rest);
        calls_.clear();
        trace_file::of_process().add(path_, text);
    }

    static constexpr std::size_t most = std::size_t{1} << 15;  // between two times of writing
    const char* const path_;
    const rank_context& self_;
    long thread_ = 0;
    bool introduced_ = false;
    list<traced_part> parts_;
    list<kept_call> calls_;
};

COLLS_INLINE std::unique_ptr<tracer> make_tracer(const rank_context& self) {
    const char* const path = variable("COLLS_TRACE");
    if (path == nullptr && self.env.debug != debug_level::trace) return nullptr;
    return std::make_unique<call_tracer>(path, self);
}

}  // namespace colls::inline v1::detail
