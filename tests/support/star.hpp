#pragma once

#include <colls/schedules/ring.hpp>

namespace support {

/// A star whose root is the last rank: a part of a hierarchy whose root is not rank 0.
struct star {
    struct broadcast {
        static constexpr colls::collective implements = colls::collective::broadcast;
        static constexpr int rounds(int n) { return n - 1; }
        static constexpr int root(int n) { return n - 1; }
        static constexpr colls::step at(int r, int n, int k) {
            if (r == n - 1) return {.send = {k, colls::block(0)}};
            if (r == k) return {.recv = {n - 1, colls::block(0)}};
            return {};
        }
    };
    struct scatter {
        static constexpr colls::collective implements = colls::collective::scatter;
        static constexpr int rounds(int n) { return n - 1; }
        static constexpr int root(int n) { return n - 1; }
        static constexpr colls::step at(int r, int n, int k) {
            if (r == n - 1) return {.send = {k, colls::block(k)}};
            if (r == k) return {.recv = {n - 1, colls::block(k)}};
            return {};
        }
    };
    using inclusive_scan = colls::ring::inclusive_scan;
    using exclusive_scan = colls::ring::exclusive_scan;
};

}  // namespace support
