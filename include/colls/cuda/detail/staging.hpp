// Buffers that the other devices of a process do not reach pass through memory that they reach.
// IWYU pragma: private, include <colls/transports/cuda.hpp>
#pragma once

#include <colls/cuda/detail/check_arguments.hpp>
#include <colls/cuda/detail/local_ranks.hpp>

#include <algorithm>

namespace colls::inline v1::cuda::detail {

/// The buffers of one call that are staged: copied to staging memory before the kernel, on its stream, and from there
/// afterwards. A later call may use the same memory: it follows on the stream, and a kernel ends when no other rank
/// reads this rank's buffers any more.
class staged_call {
public:
    /// `used`: bytes of staging memory that calls of the same launch use; this one adds its own.
    staged_call(local_ranks& ranks, cudaStream_t stream, std::size_t& used)
        : ranks_(ranks), stream_(stream), used_(used) {}

    /// Sets in `to` the staging memory for the buffers of `b`, and copies what the kernel reads. size_in, size_out:
    /// bytes of an element. Throws unsupported where staging memory does not suffice.
    void stage(collective what, const rank_buffers& b, std::size_t size_in, std::size_t size_out, kernel_buffers& to) {
        const byte_range in{b.in, b.in_count * size_in}, out{b.out, b.out_count * size_out};
        // In place: one is within the other, and has the same place in its copy.
        const bool nested = in.overlaps(out);
        const byte_range& outer = out.bytes >= in.bytes ? out : in;
        std::byte* const copy_of_outer = take(what, outer);
        const auto copy_of = [&](const byte_range& r) {
            return nested || &r == &outer ? copy_of_outer + (r.begin() - outer.begin()) : take(what, r);
        };
        std::byte *const to_in = copy_of(in), *const to_out = copy_of(out);
        copy(to_in, in.at, in.bytes);
        if (what == collective::exclusive_scan && !nested) copy(to_out, out.at, out.bytes);  // rank 0 writes nothing
        to.in = to_in;
        to.out = to_out;
        to.in_where = ranks_.address_for_peers(to_in, in.bytes);
        to.out_where = ranks_.address_for_peers(to_out, out.bytes);
        result_ = {b.out, out.bytes};
        copy_of_result_ = to_out;
    }
    /// After the launch: copies the result to the caller's buffer.
    void copy_back() const { copy(const_cast<void*>(result_.at), copy_of_result_, result_.bytes); }

private:
    /// Staging memory that begins at the same place modulo 256 as the buffer.
    std::byte* take(collective what, const byte_range& r) {
        const std::size_t from = used_ + r.begin() % 256;
        used_ = (from + r.bytes + 255) / 256 * 256;
        if (used_ <= ranks_.staging().size()) return ranks_.staging().data() + from;
        const int rank = ranks_.ranks().front().rank;
        throw error(errc::unsupported,
            (error_text()
                << "colls: cuda: " << name_of(what) << " on rank " << rank
                << ": a buffer is memory of a pool (cudaMallocAsync) or of cuMemCreate, which other devices do "
                   "not reach, and to stage it takes "
                << used_ << " bytes of options.arena_bytes, which is " << ranks_.staging().size()
                << ": raise it, or take memory of cudaMalloc or of allocate")
                .text(),
            rank);
    }
    void copy(void* to, const void* from, std::size_t bytes) const {
        if (bytes == 0) return;
        check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync",
            ranks_.ranks().front().rank);
    }

    local_ranks& ranks_;
    const cudaStream_t stream_;
    std::size_t& used_;
    byte_range result_;
    const std::byte* copy_of_result_ = nullptr;
};

}  // namespace colls::inline v1::cuda::detail
