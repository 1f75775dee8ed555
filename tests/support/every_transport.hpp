// Runs a rank function on each kind of group: threads, and processes over shared memory and over TCP.
#pragma once

#include "catch.hpp"

#include "support/fault.hpp"
#include "support/random.hpp"

#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>

#include <stdexcept>
#include <string>
#include <vector>

namespace support {

/// "threads", and the transports between processes.
inline std::vector<std::string> every_transport() {
    std::vector<std::string> all = {"threads"};
    if (sanitized_threads) return all;
    for (const std::string& transport : process_transports()) all.push_back(transport);
    return all;
}
/// Runs f on n ranks. Throws what `run` of the transport throws.
template <class F>
void run_over(const std::string& transport, int n, F&& f) {
    if (transport == "threads") return colls::threads::run(n, f);
    const with_environment chosen("COLLS_TRANSPORT", transport.c_str());
    colls::processes::run(n, f);
}
/// Runs f on n ranks of each kind of group. An exception that leaves f is a failed check.
template <class F>
void on_every_transport(int n, F f) {
    for (const std::string& transport : every_transport()) {
        INFO(transport << ", " << n << " ranks");
        CHECK_NOTHROW(run_over(transport, n, f));
    }
}
/// For ranks: they may be other processes, in which CHECK has no effect.
inline void expect(bool right, const std::string& what) {
    if (!right) throw std::runtime_error(what);
}
/// The text of the invalid_argument that the call throws, "another code: ..." for other errors, or "none".
template <class F>
std::string refusal_of(F call) {
    try {
        call();
    } catch (const colls::error& failure) {
        return failure.code() == colls::errc::invalid_argument ? failure.what()
                                                               : std::string("another code: ") + failure.what();
    }
    return "none";
}

}  // namespace support
