#include "try_plan.hpp"

#include <colls/dynamic.hpp>
#include <colls/transports/threads.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

namespace exchange {

namespace {

using colls::collective;
namespace dynamic = colls::dynamic;
using value = std::int64_t;

/// Element i of rank r's input; no two are equal.
value input(int r, std::size_t i) { return static_cast<value>(i) * 1009 + r; }

struct sizes {
    std::size_t in = 0, out = 0;
};
sizes sizes_of(collective c, int n, std::size_t elements) {
    const auto all = elements * static_cast<std::size_t>(n);
    switch (c) {
        case collective::gather:
        case collective::all_gather:
            return {elements, all};
        case collective::scatter:
        case collective::reduce_scatter:
            return {all, elements};
        case collective::all_to_all:
            return {all, all};
        default:
            return {elements, elements};
    }
}

/// Element i of rank r's output.
value expected(collective c, int n, int root, int r, std::size_t i, std::size_t elements) {
    const auto block = static_cast<int>(i / elements);
    const auto sum = [&](std::size_t j) {
        value all = 0;
        for (int other = 0; other < n; ++other) all += input(other, j);
        return all;
    };
    switch (c) {
        case collective::broadcast:
            return input(root, i);
        case collective::scatter:
            return input(root, static_cast<std::size_t>(r) * elements + i);
        case collective::gather:
        case collective::all_gather:
            return input(block, i % elements);
        case collective::reduce_scatter:
            return sum(static_cast<std::size_t>(r) * elements + i);
        case collective::all_to_all:
            return input(block, static_cast<std::size_t>(r) * elements + i % elements);
        default:
            return sum(i);
    }
}

void call(colls::communicator& comm, collective c, int root, std::vector<value>& in, std::vector<value>& out,
    const dynamic::options& how) {
    const dynamic::const_buffer from{in.data(), in.size(), dynamic::type::int64};
    const dynamic::buffer to{out.data(), out.size(), dynamic::type::int64};
    switch (c) {
        case collective::broadcast:
            out = in;
            return dynamic::broadcast(comm, {out.data(), out.size(), dynamic::type::int64}, root, how);
        case collective::scatter:
            return dynamic::scatter(comm, from, to, root, how);
        case collective::gather:
            return dynamic::gather(comm, from, to, root, how);
        case collective::all_gather:
            return dynamic::all_gather(comm, from, to, how);
        case collective::reduce:
            return dynamic::reduce(comm, from, to, dynamic::op::sum, root, how);
        case collective::reduce_scatter:
            return dynamic::reduce_scatter(comm, from, to, dynamic::op::sum, how);
        case collective::all_to_all:
            return dynamic::all_to_all(comm, from, to, how);
        default:
            return dynamic::all_reduce(comm, from, to, dynamic::op::sum, how);
    }
}

}  // namespace

std::string try_plan(const colls::any_schedule& s, int n, int elements) {
    const collective c = s.implements;
    const int root = s.root(n);
    const bool at_root = c == collective::gather || c == collective::reduce;
    const sizes length = sizes_of(c, n, static_cast<std::size_t>(elements));
    std::mutex saying;
    std::string difference;
    try {
        colls::threads::run(n, [&](colls::communicator& comm) {
            const int r = comm.rank();
            std::vector<value> in(length.in), out(length.out, -1);
            for (std::size_t i = 0; i < in.size(); ++i) in[i] = input(r, i);
            call(comm, c, root, in, out, {.given = &s});
            for (std::size_t i = 0; i < out.size() && (!at_root || r == root); ++i) {
                const value wanted = expected(c, n, root, r, i, static_cast<std::size_t>(elements));
                if (out[i] == wanted) continue;
                const std::lock_guard lock(saying);
                if (difference.empty())
                    difference = fmt::format("rank {}: element {} is {}, not {}", r, i, out[i], wanted);
                return;
            }
        });
    } catch (const colls::error& e) {
        if (e.code() == colls::errc::unsupported) throw;
        return e.what();
    } catch (const std::exception& e) {
        return e.what();
    }
    return difference;
}

}  // namespace exchange
