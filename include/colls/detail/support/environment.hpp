// The one place that reads the environment, but for how the process was launched: see launch.hpp.
//   COLLS_DEBUG     warn | info | trace   what the library says on stderr: info: each new choice of `automatic`; trace:
//   each
//                                         call of each rank too (trace.hpp)    warn
//   COLLS_TIMEOUT   seconds               deadline of every wait               300
//   COLLS_SCHEDULE  a family's name       forces the pick of `automatic`       (none)
//   COLLS_TRANSPORT shm | tcp | verbs | shm+verbs   between processes: shared memory where they share a host, and TCP
//   between
//                                         hosts; TCP always; RDMA always; shared memory, and RDMA between hosts shm
// A value that is none of these is an error, which names it. An empty one is as if it were not set.
#pragma once

#include <colls/error.hpp>

#include <cstdlib>
#include <cstring>

namespace colls::inline v1 {

enum class debug_level : unsigned char { warn, info, trace };

struct environment {
    debug_level debug = debug_level::warn;
    double timeout = 300;
    const char* schedule = nullptr;
    bool tcp = false;    ///< messages even where processes share a host
    bool verbs = false;  ///< messages by RDMA: see transports/verbs.hpp

    /// Read anew: a communicator does so once, when it is made. Throws invalid_argument.
    [[gnu::noinline]] static environment read() {
        environment e;
        constexpr const char* levels[] = {"warn", "info", "trace"};
        constexpr const char* transports[] = {"shm", "tcp", "verbs", "shm+verbs"};
        if (const char* v = value_of("COLLS_DEBUG"))
            e.debug = static_cast<debug_level>(which_of("COLLS_DEBUG", v, levels));
        if (const char* v = value_of("COLLS_TIMEOUT")) {
            char* end = nullptr;
            e.timeout = std::strtod(v, &end);
            if (*end != '\0' || !(e.timeout > 0) || e.timeout > 1e9)
                refuse(detail::message() << "colls: COLLS_TIMEOUT is " << v
                                         << ", which is no number of seconds above 0, such as 2.5");
        }
        e.schedule = value_of("COLLS_SCHEDULE");
        if (const char* v = value_of("COLLS_TRANSPORT")) {
            const int which = which_of("COLLS_TRANSPORT", v, transports);
            e.verbs = which >= 2;
            e.tcp = which == 1 || which == 2;
        }
        return e;
    }

private:
    static const char* value_of(const char* name) {
        const char* const v = std::getenv(name);
        return v && *v ? v : nullptr;
    }
    template <std::size_t count>
    static int which_of(const char* name, const char* value, const char* const (&all)[count]) {
        for (std::size_t i = 0; i < count; ++i)
            if (std::strcmp(value, all[i]) == 0) return static_cast<int>(i);
        detail::message text;
        text << "colls: " << name << " is " << value << ", which is none of:";
        for (std::size_t i = 0; i < count; ++i) text << (i > 0 ? ", " : " ") << all[i];
        refuse(text);
    }
    [[noreturn, gnu::cold]] static void refuse(const detail::message& why) {
        throw error(errc::invalid_argument, why.text());
    }
};

}  // namespace colls::inline v1
