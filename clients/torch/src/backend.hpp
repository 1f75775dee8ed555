// class backend: torch.distributed's backend "colls".
#pragma once

#include "call_queue.hpp"
#include "message_queue.hpp"

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace colls_torch {

using tensors = std::vector<at::Tensor>;
using tensor_lists = std::vector<std::vector<at::Tensor>>;
using c10::intrusive_ptr;

/// All functions are those of c10d::Backend, for tensors in the memory of the host.
class backend final : public c10d::Backend {
public:
    /// Forms the group over the store. Collective. `title`: with which the names of profiled events begin.
    backend(intrusive_ptr<c10d::Store> store, membership who, intrusive_ptr<Options> how, std::string title = "colls");
    ~backend() override;

    const std::string getBackendName() const override { return "colls"; }
    intrusive_ptr<Options> getBackendOptions() override { return how_; }
    void setTimeout(milliseconds timeout) override;
    std::uint64_t getSequenceNumberForGroup() override { return calls_; }
    bool supportsSplitting() const override { return true; }
    intrusive_ptr<c10d::Backend> split(const intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
        const intrusive_ptr<Options>& opts) override;
    intrusive_ptr<c10d::Backend> merge(const intrusive_ptr<c10d::Store>& store, const intrusive_ptr<Options>& opts,
        const int& rank, const int& size) override;
    void abort() override;
    void shutdown() override;

    intrusive_ptr<c10d::Work> broadcast(tensors& x, const c10d::BroadcastOptions& opts) override;
    intrusive_ptr<c10d::Work> allreduce(tensors& x, const c10d::AllreduceOptions& opts) override;
    intrusive_ptr<c10d::Work> allreduce_sparse(tensors& x, const c10d::AllreduceOptions& opts) override;
    intrusive_ptr<c10d::Work> allreduce_coalesced(tensors& x, const c10d::AllreduceCoalescedOptions& opts) override;
    intrusive_ptr<c10d::Work> reduce(tensors& x, const c10d::ReduceOptions& opts) override;
    intrusive_ptr<c10d::Work> allgather(tensor_lists& out, tensors& in, const c10d::AllgatherOptions& opts) override;
    intrusive_ptr<c10d::Work> _allgather_base(
        at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& opts) override;
    intrusive_ptr<c10d::Work> allgather_coalesced(
        tensor_lists& out, tensors& in, const c10d::AllgatherOptions& opts) override;
    intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(
        tensors& out, tensors& in, const c10d::AllgatherOptions& opts) override;
    intrusive_ptr<c10d::Work> gather(tensor_lists& out, tensors& in, const c10d::GatherOptions& opts) override;
    intrusive_ptr<c10d::Work> scatter(tensors& out, tensor_lists& in, const c10d::ScatterOptions& opts) override;
    intrusive_ptr<c10d::Work> reduce_scatter(
        tensors& out, tensor_lists& in, const c10d::ReduceScatterOptions& opts) override;
    intrusive_ptr<c10d::Work> _reduce_scatter_base(
        at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& opts) override;
    intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(
        tensors& out, tensors& in, const c10d::ReduceScatterOptions& opts) override;
    intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<std::int64_t>& out_rows,
        std::vector<std::int64_t>& in_rows, const c10d::AllToAllOptions& opts) override;
    intrusive_ptr<c10d::Work> alltoall(tensors& out, tensors& in, const c10d::AllToAllOptions& opts) override;
    intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& opts) override;
    void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;
    intrusive_ptr<c10d::Work> send(tensors& x, int peer, int tag) override;
    intrusive_ptr<c10d::Work> recv(tensors& x, int peer, int tag) override;
    intrusive_ptr<c10d::Work> recvAnysource(tensors& x, int tag) override;

private:
    c10d::Store& own_store();
    /// Makes a work with these outputs, and runs f as its call.
    template <class Opts, class F>
    intrusive_ptr<c10d::Work> run(
        c10d::OpType type, const char* call, const Opts& opts, const tensors& inputs, tensor_lists outputs, F&& f);
    profiled_call profiled(const char* call, const tensors& inputs) const;
    work_pointer message(c10d::OpType type, const char* call, const tensors& x);
    void check_peer(const char* call, int peer) const;

    const membership who_;
    const std::string title_;
    const intrusive_ptr<Options> how_;
    const intrusive_ptr<c10d::Store> store_;
    std::mutex own_store_mutex_;
    intrusive_ptr<c10d::Store> own_store_;
    std::atomic<std::uint64_t> calls_{0}, messages_{0};
    std::uint64_t monitored_ = 0;
    std::shared_ptr<call_queue> calls_of_group_;
    std::shared_ptr<message_queue> messages_of_group_;
};

}  // namespace colls_torch
