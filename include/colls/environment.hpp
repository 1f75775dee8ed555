// The one place that reads the environment, but for how the process was launched: see launch.hpp.
//   COLLS_DEBUG     warn | info | trace   what the library says on stderr: info: each new choice of `automatic`; trace: each
//                                         call of each rank too                warn
//   COLLS_TIMEOUT   seconds               deadline of every wait               300
//   COLLS_SCHEDULE  a family's name       forces the pick of `automatic`       (none)
//   COLLS_TRANSPORT shm | tcp | verbs | shm+verbs   between processes: shared memory where they share a host, and TCP between
//                                         hosts; TCP always; RDMA always; shared memory, and RDMA between hosts        shm
#pragma once

#include <colls/config.hpp>

#include <cstdlib>
#include <cstring>

namespace colls::inline v1 {

enum class debug_level : unsigned char { warn, info, trace };

struct environment {
    debug_level debug = debug_level::warn;
    double timeout = 300;
    const char* schedule = nullptr;
    bool tcp = false;     ///< messages even where processes share a host
    bool verbs = false;   ///< messages by RDMA: see transports/verbs.hpp

    /// Read anew: a communicator does so once, when it is made.
    static environment read() {
        environment e;
        if (const char* v = std::getenv("COLLS_DEBUG"))
            e.debug = !std::strcmp(v, "trace") ? debug_level::trace
                      : !std::strcmp(v, "info") ? debug_level::info
                                                : debug_level::warn;
        if (const char* v = std::getenv("COLLS_TIMEOUT")) {
            const double seconds = std::strtod(v, nullptr);
            if (seconds > 0) e.timeout = seconds;
        }
        if (const char* v = std::getenv("COLLS_SCHEDULE"); v && *v) e.schedule = v;
        if (const char* v = std::getenv("COLLS_TRANSPORT")) {
            e.verbs = !std::strcmp(v, "verbs") || !std::strcmp(v, "shm+verbs");
            e.tcp = !std::strcmp(v, "tcp") || !std::strcmp(v, "verbs");
        }
        return e;
    }
};

}  // namespace colls::inline v1
