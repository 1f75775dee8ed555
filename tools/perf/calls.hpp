// The calls of the library, for element types and operators that are known at run time.
#pragma once

#include "jobs.hpp"

#include <colls/collectives.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace perf {

/// `compose` composes maps x -> a x + b, which does not commute: it is for the check of order alone, and for unsigned
/// types.
enum class reduction { none, sum, prod, min, max, avg, compose };
std::string_view name_of(reduction op);

/// One call: buffers in elements, and what each collective needs beside.
struct call {
    job what{};
    reduction op = reduction::none;
    std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::size_t in_count = 0, out_count = 0;
    int root = 0;
    std::span<const std::size_t> sends, receives;  ///< of all_to_all_v, n counts each
    int schedule = -1;                             ///< of scatter and gather: schedule_list.hpp; -1: automatic
};

/// An element type, and the calls on its elements.
struct element_type {
    std::string_view name;  ///< as nccl-tests call it
    std::size_t size;
    void (*run)(colls::communicator&, const call&);
    /// Appends the operations that it starts.
    void (*start)(colls::communicator&, const call&, std::vector<colls::operation>& started);
    /// Writes elements first ... first + count - 1 of the pattern that rank `rank` contributes (data.hpp).
    void (*contribute)(
        std::byte* to, std::size_t first, std::size_t count, reduction, int rank, int n, std::uint64_t seed);
    /// The same of what ranks 0 to last - 1 of n contribute together.
    void (*fold)(std::byte* to, std::size_t first, std::size_t count, reduction, int last, int n, std::uint64_t seed);
};
/// The types of nccl-tests; and uint16, by whose size the order of two-byte elements is checked.
const std::vector<element_type>& element_types();
const element_type* type_named(std::string_view name);
/// The unsigned type of that many bytes.
const element_type& unsigned_of(std::size_t size);

}  // namespace perf
