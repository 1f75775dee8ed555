// The forms in which a call of dynamic.hpp is made, as template arguments: blocking, dynamic::start, dynamic::prepare.
#pragma once

#include <colls/dynamic.hpp>

namespace support {

/// The calls of dynamic.hpp that return when they are over, in the form of start and prepare.
struct blocking {
    struct result {};
    static constexpr auto broadcast = [](auto&&... a) { return colls::dynamic::broadcast(a...), result{}; };
    static constexpr auto scatter = [](auto&&... a) { return colls::dynamic::scatter(a...), result{}; };
    static constexpr auto gather = [](auto&&... a) { return colls::dynamic::gather(a...), result{}; };
    static constexpr auto all_gather = [](auto&&... a) { return colls::dynamic::all_gather(a...), result{}; };
    static constexpr auto all_to_all = [](auto&&... a) { return colls::dynamic::all_to_all(a...), result{}; };
    static constexpr auto reduce = [](auto&&... a) { return colls::dynamic::reduce(a...), result{}; };
    static constexpr auto reduce_scatter = [](auto&&... a) { return colls::dynamic::reduce_scatter(a...), result{}; };
    static constexpr auto all_reduce = [](auto&&... a) { return colls::dynamic::all_reduce(a...), result{}; };
    static constexpr auto inclusive_scan = [](auto&&... a) { return colls::dynamic::inclusive_scan(a...), result{}; };
    static constexpr auto exclusive_scan = [](auto&&... a) { return colls::dynamic::exclusive_scan(a...), result{}; };
    static constexpr auto barrier = [](auto&&... a) { return colls::dynamic::barrier(a...), result{}; };
    static constexpr auto scatter_v = [](auto&&... a) { return colls::dynamic::scatter_v(a...), result{}; };
    static constexpr auto gather_v = [](auto&&... a) { return colls::dynamic::gather_v(a...), result{}; };
    static constexpr auto all_gather_v = [](auto&&... a) { return colls::dynamic::all_gather_v(a...), result{}; };
    static constexpr auto reduce_scatter_v = [](auto&&... a) {
        return colls::dynamic::reduce_scatter_v(a...), result{};
    };
    static constexpr auto all_to_all_v = [](auto&&... a) { return colls::dynamic::all_to_all_v(a...), result{}; };
};
inline void finish(blocking::result) {}
inline void finish(colls::operation done) { done.wait(); }
inline void finish(colls::plan prepared) {
    prepared.run();
    prepared.start().wait();  // into the same output
}
inline void finish_once(blocking::result) {}
inline void finish_once(colls::operation done) { done.wait(); }
inline void finish_once(colls::plan prepared) { prepared.run(); }

}  // namespace support
