// class backend: torch.distributed's backend "colls".
#pragma once

#include "call_queue.hpp"
#include "message_queue.hpp"
#include "own_endpoint.hpp"

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace colls_torch {

using tensors = std::vector<at::Tensor>;
using tensor_lists = std::vector<std::vector<at::Tensor>>;
using c10::intrusive_ptr;

/// All functions are those of c10d::Backend, for tensors in the memory of the host.
class backend final : public c10d::Backend {
    /// The ranks that this process is in a group with, until shutdown or reconfigure.
    struct group {
        group(membership of, colls::communicator for_calls, colls::communicator for_messages, milliseconds timeout,
            std::shared_ptr<const abort_hooks> hooks)
            : who(of),
              calls(std::make_shared<call_queue>(std::move(for_calls), of, hooks)),
              messages(std::make_shared<message_queue>(std::move(for_messages), of, timeout, hooks)) {}
        /// A process that was forked from the rank never frees it: the threads that wait in its queues are not there.
        template <class... A>
        static std::shared_ptr<group> made_of(A&&... parts) {
            return {new group(std::forward<A>(parts)...), [rank = getpid()](const group* g) {
                        if (getpid() == rank) delete g;
                    }};
        }

        const membership who;
        const std::shared_ptr<call_queue> calls;
        const std::shared_ptr<message_queue> messages;
        std::string uuid{};                  ///< of the join, or its turn among the groups over the store
        std::vector<std::string> handles{};  ///< by rank, of a join
        mutable std::atomic<std::uint64_t> calls_made{0}, messages_made{0}, monitored{0}, shrunk{0};
    };
    using group_pointer = std::shared_ptr<const group>;

public:
    /// Forms the group over the store. Collective. `title`: with which the names of profiled events begin. `call`:
    /// which one all ranks make.
    backend(intrusive_ptr<c10d::Store> store, membership who, intrusive_ptr<Options> how, std::string title = "colls",
        const char* call = "init_process_group");
    /// Without a group, until reconfigure.
    struct no_group {};
    backend(no_group, intrusive_ptr<c10d::Store> store, const membership& who, intrusive_ptr<Options> how,
        std::string title = "colls");
    ~backend() override;

    const std::string getBackendName() const override { return "colls"; }
    intrusive_ptr<Options> getBackendOptions() override { return how_; }
    void setTimeout(milliseconds timeout) override;
    std::uint64_t getSequenceNumberForGroup() override;
    bool supportsSplitting() const override { return true; }
    intrusive_ptr<c10d::Backend> split(const intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
        const intrusive_ptr<Options>& opts) override;
    intrusive_ptr<c10d::Backend> merge(const intrusive_ptr<c10d::Store>& store, const intrusive_ptr<Options>& opts,
        const int& rank, const int& size) override;
    void abort() override { abort("the process group was aborted"); }
    void shutdown() override;

#ifdef C10D_BACKEND_HAS_RECONFIGURE
    bool supportsShrinking() const override { return true; }
    intrusive_ptr<c10d::Backend> shrink(const std::vector<std::int64_t>& ranks_to_exclude, int shrink_flags,
        const intrusive_ptr<Options>& opts) override;
    bool supportsReconfigure() const override { return true; }
    c10d::ReconfigureHandle get_reconfigure_handle() const override { return own_endpoint_of_group()->handle(); }
    intrusive_ptr<c10d::Work> reconfigure(const c10d::ReconfigureOptions& opts) override;
#endif
#ifdef C10D_BACKEND_HAS_HOOKS
    bool supportsAbortHooks() const override { return true; }
    void registerAbortHook(std::int64_t id, c10d::AbortHook hook) override { hooks_->add(id, std::move(hook)); }
    void unregisterAbortHook(std::int64_t id) override { hooks_->remove(id); }
#endif

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
    /// Throws where this process is in none.
    group_pointer current(const char* call) const;
    /// The same, or null.
    group_pointer current_or_none() const;
    void become(group_pointer g);
    void abort(const char* why);
    /// Makes a work with these outputs, and runs f as its call.
    template <class Opts, class F>
    intrusive_ptr<c10d::Work> run(const group& g, c10d::OpType type, const char* call, const Opts& opts,
        const tensors& inputs, tensor_lists outputs, F&& f);
    profiled_call profiled(const char* call, const tensors& inputs) const;
    work_pointer message(const group& g, c10d::OpType type, const char* call, const tensors& x);
    static void check_peer(const group& g, const char* call, int peer);
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    std::shared_ptr<own_endpoint> own_endpoint_of_group() const;
    group_pointer join(own_endpoint& own, const std::string& uuid, std::vector<std::string> handles,
        milliseconds timeout, std::function<void()> accepted);
#endif

    const std::string title_;
    const intrusive_ptr<Options> how_;
    const intrusive_ptr<c10d::Store> store_;
    const std::shared_ptr<abort_hooks> hooks_ = std::make_shared<abort_hooks>();
    std::mutex own_store_mutex_;
    intrusive_ptr<c10d::Store> own_store_;
    std::mutex reconfiguring_;
    mutable std::mutex group_mutex_;  ///< of what is below
    group_pointer group_;
    std::string why_no_group_ = "has been destroyed";
    mutable std::shared_ptr<own_endpoint> own_endpoint_;
};

}  // namespace colls_torch
