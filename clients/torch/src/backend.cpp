#include "backend.hpp"

#include "buffers.hpp"

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <ATen/record_function.h>

#include <algorithm>
#include <set>

namespace colls_torch {

using c10d::OpType;

namespace {

/// Tensors that a call of the host's memory takes.
void check(const char* call, const at::Tensor& t) {
    TORCH_CHECK(t.defined() && t.device().is_cpu(), "colls: ", call,
        " takes tensors in the memory of the host, not of ", t.defined() ? t.device().str() : "no device");
    TORCH_CHECK(t.layout() == at::kStrided, "colls: ", call, " takes dense tensors");
}
/// The only tensor of a list, as torch.distributed gives it.
at::Tensor& only(const char* call, tensors& list) {
    TORCH_CHECK(list.size() == 1, "colls: ", call, " takes one tensor from each rank, not ", list.size());
    check(call, list[0]);
    return list[0];
}
const tensors& only(const char* call, const tensor_lists& lists) {
    TORCH_CHECK(lists.size() == 1, "colls: ", call, " takes one list of tensors from each rank, not ", lists.size());
    return lists[0];
}
/// A tensor for each rank, of the same type.
void check_list(const char* call, const tensors& list, int size, const at::Tensor& other) {
    TORCH_CHECK(static_cast<int>(list.size()) == size, "colls: ", call, " needs a tensor for each of the ", size,
        " ranks, and has ", list.size());
    for (const at::Tensor& t : list) {
        check(call, t);
        TORCH_CHECK(t.scalar_type() == other.scalar_type(), "colls: ", call, " has tensors of types ",
            name_of(t.scalar_type()), " and ", name_of(other.scalar_type()));
    }
}
void check_pair(const char* call, const at::Tensor& whole, const at::Tensor& part, int size) {
    check(call, whole);
    check(call, part);
    TORCH_CHECK(whole.scalar_type() == part.scalar_type(), "colls: ", call, " has tensors of types ",
        name_of(whole.scalar_type()), " and ", name_of(part.scalar_type()));
    TORCH_CHECK(whole.numel() == part.numel() * size, "colls: ", call, " has tensors of ", whole.numel(), " and ",
        part.numel(), " elements: with ", size, " ranks the one must be ", size, " times the other");
}
bool equally_long(const tensors& list) {
    return std::all_of(list.begin(), list.end(), [&](const at::Tensor& t) { return t.numel() == list[0].numel(); });
}
void check_equally_long(const char* call, const tensors& list, const at::Tensor& part) {
    TORCH_CHECK(equally_long(list) && list[0].numel() == part.numel(), " ", call,
        " needs tensors of the same size for all ranks");
}

void all_reduce_dense(colls::communicator& comm, const at::Tensor& any, const c10d::ReduceOp& op) {
    const at::Tensor x = reducible(any, op);
    const plain_output own(x, true);
    dynamic::all_reduce(comm, output(own.tensor()), reduction_of(op, x));
    own.deliver();
}
void all_gather_dense(colls::communicator& comm, const at::Tensor& out, const at::Tensor& in) {
    const plain_output whole(out);
    dynamic::all_gather(comm, input(plain(in)), output(whole.tensor()));
    whole.deliver();
}
void reduce_scatter_dense(
    colls::communicator& comm, const at::Tensor& any_out, const at::Tensor& any_in, const c10d::ReduceOp& op) {
    const at::Tensor out = reducible(any_out, op), in = reducible(any_in, op);
    const plain_output own(out);
    dynamic::reduce_scatter(comm, input(plain(in)), output(own.tensor()), reduction_of(op, in));
    own.deliver();
}
/// The elements of each block of rows.
std::vector<std::size_t> counts_of(const std::vector<std::int64_t>& rows, const at::Tensor& t, int size) {
    if (rows.empty()) {
        TORCH_CHECK(t.dim() > 0 && t.size(0) % size == 0, "colls: all_to_all_single has a tensor of ",
            t.dim() > 0 ? t.size(0) : 0, " rows, which ", size, " ranks cannot share evenly: give split sizes");
    } else {
        TORCH_CHECK(static_cast<int>(rows.size()) == size &&
                        std::accumulate(rows.begin(), rows.end(), std::int64_t{0}) == (t.dim() > 0 ? t.size(0) : 0),
            "colls: all_to_all_single has ", rows.size(), " split sizes for ", size,
            " ranks: there must be one for each, and together they must be the ", t.dim() > 0 ? t.size(0) : 0,
            " rows of the tensor");
    }
    std::vector<std::size_t> counts(static_cast<std::size_t>(size)), offsets(counts);
    c10d::computeLengthsAndOffsets(rows, t, &counts, &offsets);
    return counts;
}
/// The tensors of all ranks, which differ in their first dimension: `rows` has that of each.
tensors gather_rows(colls::communicator& comm, const at::Tensor& own, const std::vector<std::int64_t>& rows) {
    std::vector<std::int64_t> shape = own.sizes().vec();
    shape[0] = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    const at::Tensor all = at::empty(shape, own.options());
    dynamic::all_gather_v(comm, input(plain(own)), output(all), counts_of(rows, all, static_cast<int>(rows.size())));
    return all.split_with_sizes(rows);
}

}  // namespace

backend::backend(
    no_group, intrusive_ptr<c10d::Store> store, const membership& who, intrusive_ptr<Options> how, std::string title)
    : c10d::Backend(who.rank, who.size),
      title_(std::move(title)),
      how_(std::move(how)),
      store_(std::move(store)),
      why_no_group_("has no members yet: call reconfigure first, as enable_reconfigure says") {
    init();
}
backend::backend(
    intrusive_ptr<c10d::Store> store, membership who, intrusive_ptr<Options> how, std::string title, const char* call)
    : backend(no_group{}, std::move(store), who, std::move(how), std::move(title)) {
    // A program may leave a group and form one of the same name over the same store again.
    const std::string turn = std::to_string(store_->add("colls/turn/" + std::to_string(who.rank), 1));
    store_of_torch keys(store_, who, call);
    try {
        auto calls = colls::bootstrap(who.rank, who.size, keys, "colls/calls/" + turn);
        auto messages = colls::bootstrap(who.rank, who.size, keys, "colls/messages/" + turn);
        const auto g = group::made_of(who, std::move(calls), std::move(messages), how_->timeout, hooks_);
        g->uuid = "turn " + turn;  // that of a join is a number
        become(g);
    } catch (...) {
        std::rethrow_exception(as_torch_error(who));
    }
}
backend::~backend() { shutdown(); }

backend::group_pointer backend::current(const char* call) const {
    const std::lock_guard lock(group_mutex_);
    if (!group_)
        C10_THROW_ERROR(DistBackendError, "colls: " + std::string(call) + ": this process group " + why_no_group_);
    return group_;
}
backend::group_pointer backend::current_or_none() const {
    const std::lock_guard lock(group_mutex_);
    return group_;
}
void backend::become(group_pointer g) {
    const std::lock_guard lock(group_mutex_);
    group_ = std::move(g);
    rank_ = group_->who.rank;
    size_ = group_->who.size;
    why_no_group_ = "has been destroyed";
}
std::uint64_t backend::getSequenceNumberForGroup() {
    const group_pointer g = current_or_none();
    return g ? g->calls_made.load() : 0;
}

// A connection of its own, so that a wait for a rank does not hold up other users of the store. It is made when it is
// needed: some stores take a quarter of a second for one, and most groups need none.
c10d::Store& backend::own_store() {
    const std::lock_guard lock(own_store_mutex_);
    if (!own_store_) own_store_ = store_->clone();
    return *own_store_;
}

void backend::setTimeout(milliseconds timeout) {
    TORCH_CHECK(timeout > milliseconds(0), "colls: the timeout of a process group is above 0, and not ",
        timeout.count(), " ms");
    how_->timeout = timeout;
    if (const group_pointer g = current_or_none()) g->messages->set_timeout(timeout);
}
void backend::shutdown() {
    group_pointer g;
    {
        const std::lock_guard lock(group_mutex_);
        g.swap(group_);
        own_endpoint_.reset();
    }
    if (!g) return;
    g->messages->stop();
    g->calls->stop();
}
void backend::abort(const char* why) {
    const group_pointer g = current_or_none();
    if (!g) return;
    g->calls->abort(why);
    g->messages->abort(why);
}
intrusive_ptr<c10d::Backend> backend::split(
    const intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks, const intrusive_ptr<Options>& opts) {
    const auto g = current("split_group");
    const auto at = std::find(ranks.begin(), ranks.end(), g->who.rank);
    if (at == ranks.end()) return nullptr;
    return c10::make_intrusive<backend>(
        store, g->who.part(ranks, static_cast<int>(at - ranks.begin())), opts ? opts : how_->clone(), title_);
}
intrusive_ptr<c10d::Backend> backend::merge(
    const intrusive_ptr<c10d::Store>& store, const intrusive_ptr<Options>& opts, const int& rank, const int& size) {
    return c10::make_intrusive<backend>(store, membership{rank, size, {}}, opts ? opts : how_->clone(), title_);
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE

std::shared_ptr<own_endpoint> backend::own_endpoint_of_group() const {
    const std::lock_guard lock(group_mutex_);
    try {
        if (!own_endpoint_) own_endpoint_ = std::make_shared<own_endpoint>();
    } catch (...) {
        std::rethrow_exception(as_torch_error({}));
    }
    return own_endpoint_;
}
backend::group_pointer backend::join(own_endpoint& own, const std::string& uuid, std::vector<std::string> handles,
    milliseconds timeout, std::function<void()> accepted) {
    const auto until = std::chrono::steady_clock::now() + timeout;
    auto calls = own.join(uuid, handles, until, std::move(accepted));
    auto messages = own.join(uuid + ", messages", handles, until);
    const membership who{calls.rank(), calls.size(), {}};
    const auto g = group::made_of(who, std::move(calls), std::move(messages), how_->timeout, hooks_);
    g->uuid = uuid;
    g->handles = std::move(handles);
    return g;
}
// By handles, a set is in the same order for all.
intrusive_ptr<c10d::Work> backend::reconfigure(const c10d::ReconfigureOptions& opts) {
    const std::lock_guard one_at_a_time(reconfiguring_);
    std::vector<std::string> handles =
        std::visit([](const auto& all) { return std::vector<std::string>(all.begin(), all.end()); }, opts.handles);
    if (opts.handles.index() == 0) std::sort(handles.begin(), handles.end());
    const milliseconds timeout = opts.timeout.value_or(how_->timeout);
    TORCH_CHECK_VALUE(
        timeout > milliseconds(0), "colls: reconfigure: the timeout is above 0, and not ", timeout.count(), " ms");
    const std::string uuid = std::to_string(opts.uuid);
    const auto own = own_endpoint_of_group();
    bool left = false;
    const auto leave = [&] {
        group_pointer g;
        {
            const std::lock_guard lock(group_mutex_);
            g.swap(group_);
            why_no_group_ = "is being reconfigured";
            left = true;
        }
        if (!g) return;
        g->calls->leave("the process group is reconfigured");
        g->messages->leave("the process group is reconfigured");
    };
    try {
        become(join(*own, uuid, std::move(handles), timeout, leave));
    } catch (...) {
        const std::string text = text_of(as_torch_error({getRank(), getSize(), {}}));
        // What is wrong with the arguments is found before anything has changed.
        if (!left) C10_THROW_ERROR(ValueError, text);
        const std::lock_guard lock(group_mutex_);
        why_no_group_ = "has no members, since its reconfiguration has failed (" + text +
                        "): call reconfigure again, with another uuid";
        C10_THROW_ERROR(DistBackendError, text);
    }
    const auto w =
        c10::make_intrusive<work>(getRank(), OpType::UNKNOWN, profiled_call{}, nullptr, 0, timeout, tensor_lists{});
    w->end(nullptr);
    return w;
}
// Those that are left out do not make this call, and need not be dead: so it is not communicator::shrink, which waits
// for them, but a new group of those that stay.
intrusive_ptr<c10d::Backend> backend::shrink(
    const std::vector<std::int64_t>& ranks_to_exclude, int shrink_flags, const intrusive_ptr<Options>& opts) {
    constexpr int aborts = 1;  // torch.distributed.distributed_c10d.SHRINK_ABORT
    const auto g = current("shrink_group");
    std::string without;
    std::vector<int> staying;
    for (const std::int64_t r : ranks_to_exclude)
        TORCH_CHECK_VALUE(r >= 0 && r < g->who.size, "colls: shrink_group: rank ", r,
            " is not in the group, which has ", g->who.size, " ranks");
    for (int r = 0; r < g->who.size; ++r)
        if (std::find(ranks_to_exclude.begin(), ranks_to_exclude.end(), r) == ranks_to_exclude.end())
            staying.push_back(r);
        else
            without += (without.empty() ? "" : ",") + std::to_string(r);
    const auto at = std::find(staying.begin(), staying.end(), g->who.rank);
    TORCH_CHECK_VALUE(at != staying.end(), "colls: shrink_group: rank ", g->who.rank,
        " is to be left out: the ranks that stay call it, without this one");
    if ((shrink_flags & aborts) != 0) abort("the process group is shrunk");

    const membership who = g->who.part(staying, static_cast<int>(at - staying.begin()));
    const intrusive_ptr<Options> how = opts ? opts : how_->clone();
    const std::string name = "shrink " + std::to_string(++g->shrunk) + " without " + without;
    const auto keys = c10::make_intrusive<c10d::PrefixStore>("colls/" + g->uuid + "/" + name, store_->clone());
    if (g->handles.empty()) {
        keys->setTimeout(how->timeout);
        return c10::make_intrusive<backend>(keys, who, how, title_, "shrink_group");
    }
    std::vector<std::string> handles;
    for (const int r : staying) handles.push_back(g->handles[static_cast<std::size_t>(r)]);
    auto next = c10::make_intrusive<backend>(no_group{}, keys, who, how, title_);
    next->own_endpoint_ = own_endpoint_of_group();
    try {
        next->become(next->join(*next->own_endpoint_, g->uuid + ", " + name, std::move(handles), how->timeout, {}));
    } catch (...) {
        std::rethrow_exception(as_torch_error(g->who));
    }
    return next;
}

#endif

template <class Opts, class F>
intrusive_ptr<c10d::Work> backend::run(const group& g, OpType type, const char* call, const Opts& opts,
    const tensors& inputs, tensor_lists outputs, F&& f) {
    const milliseconds timeout = opts.timeout > milliseconds(0) ? opts.timeout : how_->timeout;
    auto w = c10::make_intrusive<work>(
        g.who.rank, type, profiled(call, inputs), g.calls, ++g.calls_made, timeout, std::move(outputs));
    return g.calls->run(std::move(w), opts.asyncOp, timeout, std::forward<F>(f));
}
profiled_call backend::profiled(const char* call, const tensors& inputs) const {
    if (!at::hasCallbacks()) return {};
    // A profiler keeps the pointer.
    static std::mutex mutex;
    static std::set<std::string> titles;
    const std::lock_guard lock(mutex);
    return {titles.insert(title_ + ":" + call).first->c_str(), inputs};
}

intrusive_ptr<c10d::Work> backend::broadcast(tensors& x, const c10d::BroadcastOptions& opts) {
    const auto g = current("broadcast");
    const at::Tensor& t = only("broadcast", x);
    const int root = static_cast<int>(opts.rootRank);
    return run(*g, OpType::BROADCAST, "broadcast", opts, x, {x}, [t, root](colls::communicator& comm) {
        const plain_output own(t, comm.rank() == root, true);
        dynamic::broadcast(comm, output(own.tensor()), root);
        if (comm.rank() != root) own.deliver();
    });
}

intrusive_ptr<c10d::Work> backend::allreduce(tensors& x, const c10d::AllreduceOptions& opts) {
    const auto g = current("all_reduce");
    if (x.size() == 1 && x[0].layout() == at::kSparse) return allreduce_sparse(x, opts);
    const at::Tensor& t = only("all_reduce", x);
    return run(*g, OpType::ALLREDUCE, "all_reduce", opts, x, {x},
        [t, op = opts.reduceOp](colls::communicator& comm) { all_reduce_dense(comm, t, op); });
}
intrusive_ptr<c10d::Work> backend::allreduce_sparse(tensors& x, const c10d::AllreduceOptions& opts) {
    const auto g = current("all_reduce");
    TORCH_CHECK(x.size() == 1 && x[0].layout() == at::kSparse && x[0].device().is_cpu(),
        "colls: all_reduce of a sparse tensor takes one tensor of layout torch.sparse_coo in the memory of the host");
    TORCH_CHECK(opts.reduceOp == c10d::ReduceOp::SUM, "colls: sparse tensors can be summed alone");
    return run(*g, OpType::_ALLREDUCE_SPARSE, "all_reduce", opts, x, {x}, [t = x[0]](colls::communicator& comm) {
        const at::Tensor own = t.coalesce();
        std::vector<std::int64_t> elements(static_cast<std::size_t>(comm.size()));
        const std::int64_t here = own._nnz();
        dynamic::all_gather(
            comm, {&here, 1, dynamic::type::int64}, {elements.data(), elements.size(), dynamic::type::int64});
        // By rows, so that the blocks of ranks lie one after the other.
        const tensors indices = gather_rows(comm, own.indices().t().contiguous(), elements);
        const tensors values = gather_rows(comm, own.values(), elements);
        at::Tensor sum = at::sparse_coo_tensor(indices[0].t(), values[0], t.sizes(), t.options());
        for (std::size_t r = 1; r < indices.size(); ++r)
            sum = sum + at::sparse_coo_tensor(indices[r].t(), values[r], t.sizes(), t.options());
        at::Tensor(t).copy_(sum.coalesce());
    });
}
intrusive_ptr<c10d::Work> backend::allreduce_coalesced(tensors& x, const c10d::AllreduceCoalescedOptions& opts) {
    const auto g = current("all_reduce_coalesced");
    for (const at::Tensor& t : x) check("all_reduce_coalesced", t);
    return run(*g, OpType::ALLREDUCE_COALESCED, "all_reduce", opts, x, {x},
        [x, op = opts.reduceOp](colls::communicator& comm) {
            for (const at::Tensor& t : x) all_reduce_dense(comm, t, op);
        });
}
intrusive_ptr<c10d::Work> backend::reduce(tensors& x, const c10d::ReduceOptions& opts) {
    const auto g = current("reduce");
    const at::Tensor& t = only("reduce", x);
    return run(*g, OpType::REDUCE, "reduce", opts, x, {x},
        [any = t, op = opts.reduceOp, root = static_cast<int>(opts.rootRank)](colls::communicator& comm) {
            const at::Tensor t = reducible(any, op);
            const plain_output own(t, true);
            dynamic::reduce(comm, input(own.tensor()), output(own.tensor()), reduction_of(op, t), root);
            if (comm.rank() == root) own.deliver();
        });
}

intrusive_ptr<c10d::Work> backend::allgather(tensor_lists& out, tensors& in, const c10d::AllgatherOptions& opts) {
    const auto g = current("all_gather");
    const at::Tensor& t = only("all_gather", in);
    const tensors& all = only("all_gather", out);
    check_list("all_gather", all, g->who.size, t);
    return run(*g, OpType::ALLGATHER, "all_gather", opts, in, out, [all, t](colls::communicator& comm) {
        const joined whole(all, false);
        if (equally_long(all))
            dynamic::all_gather(comm, input(plain(t)), whole.buffer());
        else
            dynamic::all_gather_v(comm, input(plain(t)), whole.buffer(), whole.counts());
        whole.deliver();
    });
}
intrusive_ptr<c10d::Work> backend::_allgather_base(
    at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& opts) {
    const auto g = current("all_gather_into_tensor");
    check_pair("all_gather_into_tensor", out, in, g->who.size);
    return run(*g, OpType::_ALLGATHER_BASE, "all_gather", opts, {in}, {{out}},
        [out, in](colls::communicator& comm) { all_gather_dense(comm, out, in); });
}
intrusive_ptr<c10d::Work> backend::allgather_coalesced(
    tensor_lists& out, tensors& in, const c10d::AllgatherOptions& opts) {
    const auto g = current("all_gather_coalesced");
    TORCH_CHECK(static_cast<int>(out.size()) == g->who.size,
        "colls: all_gather_coalesced needs a list for each of the ", g->who.size, " ranks, and has ", out.size());
    std::vector<tensors> by_input(in.size());  // where each input of every rank goes
    for (std::size_t i = 0; i < in.size(); ++i) {
        for (tensors& of_rank : out) {
            TORCH_CHECK(of_rank.size() == in.size(), "colls: all_gather_coalesced has ", in.size(), " inputs and ",
                of_rank.size(), " outputs of a rank");
            by_input[i].push_back(of_rank[i]);
        }
        check_list("all_gather_coalesced", by_input[i], g->who.size, in[i]);
        check_equally_long("all_gather_coalesced", by_input[i], in[i]);
    }
    return run(*g, OpType::ALLGATHER_COALESCED, "all_gather", opts, in, out, [by_input, in](colls::communicator& comm) {
        for (std::size_t i = 0; i < in.size(); ++i) {
            const joined whole(by_input[i], false);
            dynamic::all_gather(comm, input(plain(in[i])), whole.buffer());
            whole.deliver();
        }
    });
}
intrusive_ptr<c10d::Work> backend::allgather_into_tensor_coalesced(
    tensors& out, tensors& in, const c10d::AllgatherOptions& opts) {
    const auto g = current("all_gather_into_tensor_coalesced");
    TORCH_CHECK(out.size() == in.size(), "colls: all_gather_into_tensor_coalesced has ", in.size(), " inputs and ",
        out.size(), " outputs");
    for (std::size_t i = 0; i < in.size(); ++i)
        check_pair("all_gather_into_tensor_coalesced", out[i], in[i], g->who.size);
    return run(*g, OpType::ALLGATHER_INTO_TENSOR_COALESCED, "all_gather", opts, in, {out},
        [out, in](colls::communicator& comm) {
            for (std::size_t i = 0; i < in.size(); ++i) all_gather_dense(comm, out[i], in[i]);
        });
}

intrusive_ptr<c10d::Work> backend::gather(tensor_lists& out, tensors& in, const c10d::GatherOptions& opts) {
    const auto g = current("gather");
    const at::Tensor& t = only("gather", in);
    const int root = static_cast<int>(opts.rootRank);
    tensors all;
    if (g->who.rank == root) {
        all = only("gather", out);
        check_list("gather", all, g->who.size, t);
        check_equally_long("gather", all, t);
    } else {
        TORCH_CHECK(out.empty(), "colls: gather takes a list of outputs on the root alone");
    }
    return run(*g, OpType::GATHER, "gather", opts, in, out, [all, t, root](colls::communicator& comm) {
        if (comm.rank() != root) {
            dynamic::gather(comm, input(plain(t)), {nullptr, 0, element_type_of(t)}, root);
            return;
        }
        const joined whole(all, false);
        dynamic::gather(comm, input(plain(t)), whole.buffer(), root);
        whole.deliver();
    });
}
intrusive_ptr<c10d::Work> backend::scatter(tensors& out, tensor_lists& in, const c10d::ScatterOptions& opts) {
    const auto g = current("scatter");
    const at::Tensor& t = only("scatter", out);
    const int root = static_cast<int>(opts.rootRank);
    tensors all;
    if (g->who.rank == root) {
        all = only("scatter", in);
        check_list("scatter", all, g->who.size, t);
        check_equally_long("scatter", all, t);
    } else {
        TORCH_CHECK(in.empty(), "colls: scatter takes a list of inputs on the root alone");
    }
    return run(*g, OpType::SCATTER, "scatter", opts, all, {out}, [all, t, root](colls::communicator& comm) {
        const plain_output own(t);
        if (comm.rank() == root)
            dynamic::scatter(comm, joined(all, true).buffer(), output(own.tensor()), root);
        else
            dynamic::scatter(comm, {nullptr, 0, element_type_of(t)}, output(own.tensor()), root);
        own.deliver();
    });
}

intrusive_ptr<c10d::Work> backend::reduce_scatter(
    tensors& out, tensor_lists& in, const c10d::ReduceScatterOptions& opts) {
    const auto g = current("reduce_scatter");
    const at::Tensor& t = only("reduce_scatter", out);
    const tensors& all = only("reduce_scatter", in);
    check_list("reduce_scatter", all, g->who.size, t);
    TORCH_CHECK(all[static_cast<std::size_t>(g->who.rank)].numel() == t.numel(),
        "colls: reduce_scatter needs an output as long as the own input");
    return run(*g, OpType::REDUCE_SCATTER, "reduce_scatter", opts, all, {out},
        [any_all = all, any_t = t, op = opts.reduceOp](colls::communicator& comm) {
            tensors all;
            for (const at::Tensor& part : any_all) all.push_back(reducible(part, op));
            const at::Tensor t = reducible(any_t, op);
            const joined whole(all, true);
            const plain_output own(t);
            if (equally_long(all))
                dynamic::reduce_scatter(comm, whole.buffer(), output(own.tensor()), reduction_of(op, t));
            else
                dynamic::reduce_scatter_v(
                    comm, whole.buffer(), output(own.tensor()), whole.counts(), reduction_of(op, t));
            own.deliver();
        });
}
intrusive_ptr<c10d::Work> backend::_reduce_scatter_base(
    at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& opts) {
    const auto g = current("reduce_scatter_tensor");
    check_pair("reduce_scatter_tensor", in, out, g->who.size);
    return run(*g, OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", opts, {in}, {{out}},
        [out, in, op = opts.reduceOp](colls::communicator& comm) { reduce_scatter_dense(comm, out, in, op); });
}
intrusive_ptr<c10d::Work> backend::reduce_scatter_tensor_coalesced(
    tensors& out, tensors& in, const c10d::ReduceScatterOptions& opts) {
    const auto g = current("reduce_scatter_tensor_coalesced");
    TORCH_CHECK(out.size() == in.size(), "colls: reduce_scatter_tensor_coalesced has ", in.size(), " inputs and ",
        out.size(), " outputs");
    for (std::size_t i = 0; i < in.size(); ++i)
        check_pair("reduce_scatter_tensor_coalesced", in[i], out[i], g->who.size);
    return run(*g, OpType::REDUCE_SCATTER_TENSOR_COALESCED, "reduce_scatter", opts, in, {out},
        [out, in, op = opts.reduceOp](colls::communicator& comm) {
            for (std::size_t i = 0; i < in.size(); ++i) reduce_scatter_dense(comm, out[i], in[i], op);
        });
}

intrusive_ptr<c10d::Work> backend::alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<std::int64_t>& out_rows,
    std::vector<std::int64_t>& in_rows, const c10d::AllToAllOptions& opts) {
    const auto g = current("all_to_all_single");
    check("all_to_all_single", out);
    check("all_to_all_single", in);
    TORCH_CHECK(out.scalar_type() == in.scalar_type(), "colls: all_to_all_single has tensors of types ",
        name_of(in.scalar_type()), " and ", name_of(out.scalar_type()));
    std::vector<std::size_t> received = counts_of(out_rows, out, g->who.size),
                             sent = counts_of(in_rows, in, g->who.size);
    return run(*g, OpType::ALLTOALL_BASE, "all_to_all", opts, {in}, {{out}},
        [out, in, received = std::move(received), sent = std::move(sent), even = out_rows.empty() && in_rows.empty()](
            colls::communicator& comm) {
            const plain_output own(out);
            if (even)
                dynamic::all_to_all(comm, input(plain(in)), output(own.tensor()));
            else
                dynamic::all_to_all_v(comm, input(plain(in)), output(own.tensor()), sent, received);
            own.deliver();
        });
}
intrusive_ptr<c10d::Work> backend::alltoall(tensors& out, tensors& in, const c10d::AllToAllOptions& opts) {
    const auto g = current("all_to_all");
    TORCH_CHECK(!in.empty() && !out.empty(), "colls: all_to_all needs a tensor for each rank");
    check_list("all_to_all", in, g->who.size, in[0]);
    check_list("all_to_all", out, g->who.size, in[0]);
    return run(*g, OpType::ALLTOALL, "all_to_all", opts, in, {out}, [out, in](colls::communicator& comm) {
        const joined sent(in, true), received(out, false);
        dynamic::all_to_all_v(comm, sent.buffer(), received.buffer(), sent.counts(), received.counts());
        received.deliver();
    });
}
intrusive_ptr<c10d::Work> backend::barrier(const c10d::BarrierOptions& opts) {
    const auto g = current("barrier");
    return run(*g, OpType::BARRIER, "barrier", opts, {}, {}, [](colls::communicator& comm) { dynamic::barrier(comm); });
}

// Through the store, so that the group stays whole where a rank does not come.
void backend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
    const auto g = current("monitored_barrier");
    const milliseconds timeout = opts.timeout != c10d::kUnsetTimeout ? opts.timeout : how_->timeout;
    c10d::Store& store = own_store();
    const std::string name = "colls/monitored/" + g->uuid + "/" + std::to_string(g->monitored++) + "/";
    const auto failed = [&](const std::string& ranks) {
        C10_THROW_ERROR(DistBackendError,
            "colls: " + ranks + " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) + " ms");
    };
    if (g->who.rank != 0) {
        store.set(name + std::to_string(g->who.rank), "here");
        std::string answer;
        try {
            // Rank 0 may wait for another rank first.
            store.wait({name + "answer"}, timeout + std::chrono::seconds(1));
            answer = store.get_to_str(name + "answer");
        } catch (const std::exception&) {
            answer = "it has not come";
        }
        if (!answer.empty() && answer != "passed")
            C10_THROW_ERROR(DistBackendError,
                "colls: Rank " + std::to_string(g->who.rank) +
                    " successfully reached monitoredBarrier, but received errors while waiting for send/recv from "
                    "rank 0. Please check rank 0 logs for faulty rank. (" +
                    answer + ")");
        return;
    }
    const auto until = std::chrono::steady_clock::now() + timeout;
    std::string missing;
    int many = 0;
    for (int r = 1; r < g->who.size; ++r) {
        const auto left = std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
        const std::string key = name + std::to_string(r);
        if (left <= milliseconds(0) && !wait_all_ranks) {
            store.set(name + "answer", std::string("rank 0 has waited for too long"));
            C10_THROW_ERROR(DistBackendError, "colls: Rank 0 timed out in monitoredBarrier after " +
                                                  std::to_string(timeout.count()) + " ms, before rank " +
                                                  std::to_string(r));
        }
        try {
            if (left > milliseconds(0))
                store.wait({key}, left);
            else
                TORCH_CHECK(store.check({key}));
        } catch (const std::exception&) {
            missing += (many++ > 0 ? ", " : "") + std::to_string(r);
            if (!wait_all_ranks) break;
        }
    }
    store.set(name + "answer", many == 0 ? std::string("passed") : "missing: " + missing);
    if (many > 0) failed((many > 1 ? "Ranks " : "Rank ") + missing);
}

work_pointer backend::message(const group& g, OpType type, const char* call, const tensors& x) {
    return c10::make_intrusive<work>(
        g.who.rank, type, profiled(call, x), g.messages, ++g.messages_made, how_->timeout, tensor_lists{});
}
void backend::check_peer(const group& g, const char* call, int peer) {
    TORCH_CHECK(peer >= 0 && peer < g.who.size && peer != g.who.rank, "colls: ", call, ": rank ", peer,
        peer == g.who.rank ? " is this rank itself" : " is not in the group", ", which has ", g.who.size, " ranks");
}
intrusive_ptr<c10d::Work> backend::send(tensors& x, int peer, int tag) {
    const auto g = current("send");
    const at::Tensor& t = only("send", x);
    check_peer(*g, "send", peer);
    auto w = message(*g, OpType::SEND, "send", x);
    g->messages->send(w, plain(t), peer, tag);
    return w;
}
intrusive_ptr<c10d::Work> backend::recv(tensors& x, int peer, int tag) {
    const auto g = current("recv");
    const at::Tensor& t = only("recv", x);
    check_peer(*g, "recv", peer);
    auto w = message(*g, OpType::RECV, "recv", x);
    g->messages->receive(w, t, peer, tag);
    return w;
}
intrusive_ptr<c10d::Work> backend::recvAnysource(tensors& x, int tag) {
    const auto g = current("recv");
    const at::Tensor& t = only("recv", x);
    auto w = message(*g, OpType::RECVANYSOURCE, "recvAnySource", x);
    g->messages->receive(w, t, message_queue::any_source, tag);
    return w;
}

}  // namespace colls_torch
