// The library's environment variables.
// IWYU pragma: private, include <colls/world.hpp>
//
//   COLLS_DEBUG      what is written to stderr. warn (default): warnings; info, or 1: also each new choice of
//                    `automatic`; trace: also each call of each rank
//   COLLS_TIMEOUT    the deadline of every wait, in seconds, or inf: none; default 300
//   COLLS_SCHEDULE   the name of a family, which `automatic` then takes where it fits
//   COLLS_REPRODUCIBLE  1: calls that reduce and name no schedule have the constraint colls::reproducible; default 0
//   COLLS_SINGLE_COPY  between processes of one host. 0: the kernel never copies from the memory of one to that of the
//                    other; 1: wherever it may; auto (default): where that was measured to be faster
//   COLLS_TUNE       a file with figures of the machine and measured choices, which `automatic` then follows (files/)
//   COLLS_TRACE      a file for what the ranks of each process do, and when (docs/tracing.md, files/)
//   COLLS_TRANSPORT  between processes. shm: shared memory within a host, TCP between hosts; tcp: TCP always;
//                    verbs: RDMA always; shm+verbs: shared memory within a host, RDMA between hosts; ofi, shm+ofi:
//                    likewise, by libfabric. Default: shm+verbs where all ranks can, otherwise shm
//
// Any other value is an error that names the variable. An empty one counts as not set.
// How the process was launched is read from other variables, in launch.hpp.
#pragma once

#include <colls/detail/support/error_text.hpp>
#include <colls/error.hpp>

#include <locale.h>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace colls::inline v1::detail {

/// The value of an environment variable; null if it is not set, or empty.
inline const char* variable(const char* name) {
    const char* const value = std::getenv(name);
    return value && *value ? value : nullptr;
}

/// While it lives, this thread reads and writes numbers with a point, whatever locale the program has set.
class numbers_with_point {
public:
    numbers_with_point() : before_(uselocale(own_)) {}
    numbers_with_point(const numbers_with_point&) = delete;
    numbers_with_point& operator=(const numbers_with_point&) = delete;
    ~numbers_with_point() {
        uselocale(before_);
        if (own_ != locale_t{}) freelocale(own_);
    }

private:
    const locale_t own_ = newlocale(LC_NUMERIC_MASK, "C", locale_t{}), before_;
};

enum class debug_level : unsigned char { warn, info, trace };

struct environment {
    debug_level debug = debug_level::warn;
    double timeout = 300;  ///< infinite: no deadline
    /// Seconds for which a rank that leaves sees to what it has sent, at most, and after which it looks whether a
    /// silent peer is there, also where there is no deadline.
    static constexpr double most_linger = 300;
    const char* schedule = nullptr;
    bool reproducible = false;
    enum class single_copies : unsigned char { never, always, measured };
    single_copies single_copy = single_copies::measured;
    bool tcp = false;          ///< TCP even where processes share a host
    bool verbs = false;        ///< RDMA: see transports/verbs.hpp
    bool ofi = false;          ///< libfabric: see transports/ofi.hpp
    bool any_network = false;  ///< RDMA between hosts where all ranks can, otherwise TCP

    /// Reads the variables; a communicator does so once, when it is made. Throws invalid_argument.
    [[gnu::cold, gnu::noinline]] static environment read() {
        environment e;
        const int level = which_of("COLLS_DEBUG", {"warn", "info", "trace", "1"}, 0);
        e.debug = level == 3 ? debug_level::info : static_cast<debug_level>(level);
        if (const char* v = variable("COLLS_TIMEOUT")) {
            const numbers_with_point as_written;
            char* end = nullptr;
            e.timeout = std::strtod(v, &end);
            if (*end != '\0' || !(e.timeout > 0) || (e.timeout > 1e9 && std::strcmp(v, "inf") != 0))
                refuse(error_text() << "colls: COLLS_TIMEOUT is " << v
                                    << ", neither a number of seconds above 0, such as 2.5, nor inf");
        }
        e.schedule = variable("COLLS_SCHEDULE");
        e.reproducible = which_of("COLLS_REPRODUCIBLE", {"0", "1"}, 0) == 1;
        e.single_copy = static_cast<single_copies>(which_of("COLLS_SINGLE_COPY", {"0", "1", "auto"}, 2));
        const int transport = which_of("COLLS_TRANSPORT", {"shm", "tcp", "verbs", "shm+verbs", "ofi", "shm+ofi"}, 0);
        e.tcp = transport == 1 || transport == 2 || transport == 4;
        e.verbs = transport == 2 || transport == 3;
        e.ofi = transport >= 4;
        e.any_network = variable("COLLS_TRANSPORT") == nullptr;
        return e;
    }

private:
    [[gnu::cold]] static int which_of(const char* name, std::initializer_list<const char*> all, int otherwise) {
        const char* const value = variable(name);
        if (value == nullptr) return otherwise;
        for (const char* const& each : all)
            if (std::strcmp(value, each) == 0) return static_cast<int>(&each - all.begin());
        error_text text;
        text << "colls: " << name << " is " << value << ", which is none of:";
        for (const char* const& each : all) text << (&each == all.begin() ? " " : ", ") << each;
        refuse(text);
    }
    [[noreturn, gnu::cold]] static void refuse(const error_text& why) { throw error(errc::invalid_argument, why); }
};

}  // namespace colls::inline v1::detail
