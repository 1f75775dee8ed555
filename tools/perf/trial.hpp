// One half of a row: a call of one shape, in place or not, that is made many times, and the check of what it leaves.
#pragma once

#include "buffers.hpp"
#include "calls.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace perf {

/// What is called.
struct call_kind {
    job what{};
    const element_type* type = nullptr;
    reduction op = reduction::none;
    int root = 0;
    bool in_place = false;
    int schedule = -1;        ///< as call::schedule
    std::size_t unalign = 0;  ///< elements by which buffers are moved past a cache line
};

/// A rank's part in such calls.
class trial {
public:
    /// `pairs`: one for each operation that is in flight at the same time; large enough for `s`.
    trial(colls::communicator& comm, const call_kind& kind, const shape& s, std::span<buffer_pair> pairs);

    const std::vector<call>& calls() const { return calls_; }
    const shape& buffers() const { return shape_; }

    /// Writes this rank's contributions to the inputs.
    void fill(std::uint64_t seed);
    /// Loads all outputs; the value depends on each of their bytes.
    std::uint64_t read() const;

    /// Fills the buffers, calls `perform`, and returns how many elements of this rank's buffers are wrong afterwards:
    /// results, inputs that are not outputs, outputs that the collective does not write on this rank. Guard bytes count
    /// as an element each.
    std::size_t wrong_after(std::uint64_t seed, const std::function<void()>& perform);

private:
    /// The bytes of each buffer that the call may use.
    std::size_t buffer_bytes() const { return shape_.bytes(); }
    bool reads_input() const;
    /// Writes what the output of a call is to be.
    void expect(std::byte* out, std::uint64_t seed) const;

    call_kind kind_;
    shape shape_;
    int rank_, n_;
    std::span<buffer_pair> pairs_;
    std::vector<std::size_t> sends_, receives_;
    std::vector<call> calls_;
};

}  // namespace perf
