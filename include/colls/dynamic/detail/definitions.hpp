// The calls of dynamic.hpp.
// IWYU pragma: private, include <colls/dynamic.hpp>
//
// Included with them; or compiled once, in src/dynamic.cpp, for units that define COLLS_SEPARATE.
#pragma once

#include <colls/detail/call/make_request.hpp>
#include <colls/detail/call/modes.hpp>
#include <colls/detail/request/request.hpp>
#include <colls/detail/support/process_lock.hpp>
#include <colls/dynamic.hpp>
#include <colls/dynamic/detail/buffer_packer.hpp>
#include <colls/dynamic/detail/data_layouts.hpp>
#include <colls/dynamic/detail/exact_calls.hpp>
#include <colls/dynamic/detail/function_fold.hpp>
#include <colls/dynamic/detail/op_tables.hpp>

#include <string>
#include <string_view>
#include <type_traits>

namespace colls::inline v1 {
namespace detail {

/// The one copy of a name, which lives as long as the process: ranks' records of their calls refer to it.
inline const hashed_name* kept_name(std::string_view text) {
    struct kept {
        std::string text;
        std::string_view view;
        hashed_name name;
        kept* next;
    };
    const process_lock lock;
    static kept* first = nullptr;  // never destroyed: threads may outlive main
    for (kept* k = first; k != nullptr; k = k->next)
        if (k->view == text) return &k->name;
    kept* const k = new kept{std::string(text), {}, {}, first};
    k->view = k->text;
    k->name = {&k->view, hash_text(text)};
    first = k;
    return &k->name;
}
/// The schedule of a family for a collective; null: there is none.
inline const candidate* named_candidate(collective what, std::string_view name) {
    const candidates all = all_candidates_of(what);
    for (int i = 0; i < all.count; ++i)
        if (all.first[i].name == name) return &all.first[i];
    return nullptr;
}
/// The schedule of a candidate, which is proven before it runs: the proof finds in which order it folds.
inline const any_schedule* proven_schedule(const candidate& of) {
    struct kept {
        const candidate* of;
        schedule_table table;
        any_schedule schedule;
        kept* next;
    };
    const process_lock lock;
    static kept* first = nullptr;  // never destroyed: threads may outlive main
    for (kept* k = first; k != nullptr; k = k->next)
        if (k->of == &of) return &k->schedule;
    first = new kept{&of, {}, of.schedule, first};
    first->schedule = of.schedule.to_be_proven(first->table);
    return &first->schedule;
}

/// From a call whose types are known at run time to a request: what make_request.hpp and calls.hpp do for typed calls.
class dynamic_request {
public:
    dynamic_request(communicator& comm, collective what, const dynamic::options& how)
        : packer_(comm, what), how_(how), q_(what) {
        q_.reproducible = how.reproducible;
    }

    void set_buffers(const dynamic::const_buffer& in, const dynamic::buffer& out) {
        if (!(in.type == out.type)) refuse_types(in.type, out.type);
        detail::set_type(q_.c, out.type.size(), name_of(out.type));
        q_.c.in = static_cast<const std::byte*>(in.data);
        q_.in_count = in.count;
        q_.c.out = static_cast<std::byte*>(out.data);
        q_.out_count = out.count;
        type_ = out.type;
        if (in.layout || out.layout || in_blocks_ || out_blocks_) pack_buffers(in, out);
    }
    void set_root(int root) { q_.c.root = root; }
    /// After the buffers. The operator outlives a call that is not blocking, as a copy.
    template <bool keeps>
    void set_operator(const dynamic::reduction& op) {
        if (op.code() == dynamic::op::function) {
            if (op.function_ == nullptr) refuse(error_text() << "the vector function is null");
            function_ = {op.function_, op.context_, type_.size(), op.commutative_};
            return detail::set_operator<keeps>(q_, function_tables[op.commutative_], *op.name_, function_);
        }
        const auto code = static_cast<std::size_t>(type_.code());
        const op_table* const table = known_types[code].table(op.code(), op.by_integer_);
        if (table == nullptr) refuse_operator(op, type_);
        if (table->finish != nullptr && is_scan(q_.c.what))
            refuse(error_text() << "a scan has no use for " << op.name()
                                << ": the ranks' results are of different numbers of contributions");
        const hashed_name& name = name_of(op);
        if (op.code() != dynamic::op::premul_sum)
            detail::set_operator<keeps>(q_, *table, name, bytes_ = type_.size());
        else if (op.by_integer_)
            detail::set_operator<keeps>(q_, *table, name, integer_ = integer_factor(op.integer_));
        else
            detail::set_operator<keeps>(q_, *table, name, real_ = real_factor(op.real_));
    }
    /// Before the buffers, as the root.
    void set_counts(const dynamic::count_list& counts) {
        detail::set_counts(q_, q_.sends, counts);
        packer_.is_of_counts();
        const bool of_output = traits_of(q_.c.what).in == content::own_block;
        if (counts.is_displaced()) (of_output ? out_blocks_ : in_blocks_) = &counts;
    }
    void set_received(const dynamic::count_list& counts) {
        detail::set_counts(q_, q_.receives, counts);
        if (counts.is_displaced()) out_blocks_ = &counts;
    }

    template <class Mode>
    typename Mode::result run() {
        set_schedule();
        return Mode::run(packer_.handle(), q_);
    }

    /// A call by op::exact, which is several calls.
    void run_exact(communicator& comm, const dynamic_arguments<>& a, bool blocks) {
        if (!(a.in.type == a.out.type)) refuse_types(a.in.type, a.out.type);
        const auto make = exact_caller_of<dynamic_arguments<>>(a.in.type.code());
        if (make == nullptr) refuse_operator(*a.op, a.in.type);
        if (!blocks) refuse(error_text() << "by " << a.op->name() << " it is several calls: it cannot be started");
        if (is_scan(a.what)) refuse(error_text() << "there are no scans by " << a.op->name());
        if (a.in.layout || a.out.layout || (a.counts && a.counts->is_displaced()))
            refuse(error_text() << "by " << a.op->name() << " it takes neither layouts nor displacements");
        if (how_.given != nullptr || !how_.schedule.empty())
            refuse(error_text() << "by " << a.op->name() << " the library chooses its schedules: give none");
        make(comm, a);
    }

    /// The message of the call `name`, to be sent or to be received.
    static call message_of(communicator& comm, const char* name, const dynamic::const_buffer& data, bool is_sent) {
        call c;
        set_type(c, data.type.size(), name_of(data.type));
        buffer_placement p{
            "buffer", static_cast<std::byte*>(const_cast<void*>(data.data)), data.count, data.layout, nullptr};
        if (data.layout) {
            auto* const made = new packed_buffers;
            const shared_packing owner(made);
            made->unpacks_output = !is_sent;
            buffer_packer(comm, name).pack(p, data.type.size(), !is_sent, is_sent ? made->in : made->out);
            if (made->in || made->out) c.packed = owner;
        }
        if (is_sent)
            c.in = p.data;
        else
            c.out = p.data;
        c.count = p.count;
        return c;
    }

    static const hashed_name& name_of(const dynamic::element_type& type) {
        return type.name_ ? *type.name_ : *known_types[static_cast<std::size_t>(type.code())].name;
    }
    static const hashed_name& name_of(const dynamic::reduction& op) {
        if (op.name_) return *op.name_;
        if (op.code() == dynamic::op::function) return name_of_type<void>;
        if (op.code() == dynamic::op::premul_sum && op.by_integer_) return name_of_type<integer_factor>;
        return *known_operators[static_cast<std::size_t>(op.code())];
    }
    static std::size_t size_of(const dynamic::element_type& type) {
        return known_types[static_cast<std::size_t>(type.code())].size * type.bytes_;
    }
    static dynamic::element_type type_of_bytes(std::size_t k) {
        if (k == 0) throw error(errc::invalid_argument, "colls: an element type of 0 bytes: it has one at least");
        dynamic::element_type t = dynamic::type::bytes;
        if (k == 1) return t;
        t.bytes_ = k;
        t.name_ = kept_name((error_text() << "std::array<std::byte, " << k << ">").text());
        return t;
    }
    static dynamic::reduction function_of(
        dynamic::vector_function f, void* context, bool commutative, std::string_view name) {
        dynamic::reduction r(dynamic::op::function);
        r.function_ = f;
        r.context_ = context;
        r.commutative_ = commutative;
        r.name_ = kept_name(name);
        return r;
    }

private:
    [[noreturn]] void refuse(const error_text& why) const { packer_.refuse(why); }
    [[noreturn]] void refuse_types(const dynamic::element_type& in, const dynamic::element_type& out) const {
        refuse(error_text() << "the input is of type " << in.name() << ", and the output of type " << out.name()
                            << ": both must be of one type");
    }
    [[noreturn]] void refuse_operator(const dynamic::reduction& op, const dynamic::element_type& type) const {
        refuse(error_text() << "the operator " << op.name() << " does not take elements of type " << type.name());
    }
    /// A gather, scatter or all_to_all with counts goes by `direct`: ranks between would not know how much they pass
    /// on.
    bool goes_direct() const {
        return q_.with_counts && q_.c.what != collective::all_gather && q_.c.what != collective::reduce_scatter;
    }
    void set_schedule() {
        if (how_.given != nullptr && !how_.schedule.empty())
            refuse(error_text() << "a schedule and the name " << how_.schedule << " are given: give one of them");
        if (how_.given != nullptr) {
            if (how_.given->implements != q_.c.what)
                refuse(error_text() << "the schedule " << how_.given->name() << " implements "
                                    << v1::name_of(how_.given->implements));
            if (goes_direct() && how_.given->type() != direct_candidate().schedule.type()) refuse_indirect();
            q_.given = how_.given;
        } else if (!how_.schedule.empty()) {
            if (goes_direct() && how_.schedule != "direct") refuse_indirect();
            const candidate& c = candidate_of_name();
            const bool depends_on_order = q_.c.op && (!q_.c.op->commutative || q_.reproducible);
            q_.given = depends_on_order ? proven_schedule(c) : &c.schedule;
        }
        // Rotation to another root would break the order of ranks: a fold at the root itself keeps it.
        if (q_.given && q_.c.what == collective::reduce && !q_.c.op->commutative && q_.c.root != 0)
            q_.instead = &direct_candidate().schedule;
    }
    const candidate& direct_candidate() const { return *named_candidate(q_.c.what, "direct"); }
    const candidate& candidate_of_name() const {
        if (const candidate* const c = named_candidate(q_.c.what, how_.schedule)) return *c;
        error_text text;
        text << "there is no schedule named " << how_.schedule << " for it; the names are";
        const candidates all = all_candidates_of(q_.c.what);
        for (int i = 0; i < all.count; ++i) text << (i > 0 ? ", " : " ") << all.first[i].name;
        refuse(text);
    }
    [[noreturn]] void refuse_indirect() const {
        refuse(
            error_text() << "it goes straight from rank to rank (direct), since ranks between would not know how much "
                            "they pass on: give no other schedule");
    }

    /// Replaces buffers whose elements do not lie in a row by packed ones.
    void pack_buffers(const dynamic::const_buffer& in, const dynamic::buffer& out) {
        using enum collective;
        const collective what = q_.c.what;
        const bool root = q_.c.root == packer_.rank(), fans_in = what == gather || what == reduce;
        std::byte* const input = static_cast<std::byte*>(const_cast<void*>(in.data));
        auto* const made = new packed_buffers;
        const shared_packing owner(made);
        if (what == broadcast) {
            made->packs_output = root;
            made->unpacks_output = !root;
        } else {
            const bool alike = in.data == out.data && in.count == out.count && in.layout == out.layout;
            made->packs_output = alike && !in_blocks_ && !out_blocks_;
            made->unpacks_output = !(fans_in && !root) && !(what == exclusive_scan && packer_.rank() == 0);
        }
        if (!fans_in || root) {
            buffer_placement p{"output", static_cast<std::byte*>(out.data), out.count, out.layout, out_blocks_};
            packer_.pack(p, type_.size(), made->unpacks_output, made->out);
            q_.c.out = p.data;
            q_.out_count = p.count;
            if (what == broadcast || (made->out && made->packs_output)) {
                q_.c.in = p.data;
                q_.in_count = p.count;
                q_.c.packed = owner;
                return;
            }
        }
        if (what != scatter || root) {
            buffer_placement p{"input", input, in.count, in.layout, in_blocks_};
            packer_.pack(p, type_.size(), false, made->in);
            q_.c.in = p.data;
            q_.in_count = p.count;
        }
        if (made->in || made->out) q_.c.packed = owner;
    }

    buffer_packer packer_;
    const dynamic::options& how_;
    const dynamic::count_list *in_blocks_ = nullptr, *out_blocks_ = nullptr;  // with displacements
    dynamic::element_type type_ = dynamic::type::bytes;
    // What op_value points to, as the operator needs.
    std::size_t bytes_ = 1;
    real_factor real_{1};
    integer_factor integer_{1};
    function_operator function_{};
    request q_;
};

template <class Mode>
typename Mode::result dynamic_call(communicator& comm, const dynamic_arguments<>& a, const dynamic::options& how) {
    dynamic_request r(comm, a.what, how);
    if (a.op && a.op->code() == dynamic::op::exact) {
        r.run_exact(comm, a, std::is_void_v<typename Mode::result>);
        if constexpr (std::is_void_v<typename Mode::result>) return;
    }
    r.set_root(a.root);
    if (a.counts) r.set_counts(*a.counts);
    if (a.received) r.set_received(*a.received);
    if (a.what != collective::barrier) r.set_buffers(a.in, a.out);
    if (a.op) r.set_operator<Mode::keeps>(*a.op);
    return r.run<Mode>();
}
template <class Mode>
typename Mode::result dynamic_message(communicator& comm, bool sends, const dynamic::const_buffer& data, int peer) {
    return Mode::run_message(comm.handle(), sends ? operation_kind::send : operation_kind::recv,
        dynamic_request::message_of(comm, sends ? "send" : "recv", data, sends), peer);
}

}  // namespace detail

namespace dynamic {

COLLS_INLINE element_type element_type::bytes(std::size_t k) {
    return colls::detail::dynamic_request::type_of_bytes(k);
}
COLLS_INLINE std::size_t element_type::size() const { return colls::detail::dynamic_request::size_of(*this); }
COLLS_INLINE std::string_view element_type::name() const {
    return *colls::detail::dynamic_request::name_of(*this).text;
}
COLLS_INLINE reduction reduction::function(vector_function f, void* context, bool commutative, std::string_view name) {
    return colls::detail::dynamic_request::function_of(f, context, commutative, name);
}
COLLS_INLINE std::string_view reduction::name() const { return *colls::detail::dynamic_request::name_of(*this).text; }

COLLS_INLINE int recv_any(communicator& comm, buffer data) {
    return comm.handle().by->perform_recv_any(
        comm.context(), colls::detail::dynamic_request::message_of(comm, "recv_any", data, false));
}
COLLS_INLINE void exchange(communicator& comm, const_buffer sent, int to, buffer received, int from) {
    comm.handle().by->perform_exchange(comm.context(),
        colls::detail::dynamic_request::message_of(comm, "exchange", sent, true), to,
        colls::detail::dynamic_request::message_of(comm, "exchange", received, false), from);
}

}  // namespace dynamic

#ifdef COLLS_SEPARATE_SOURCE  // for units that define COLLS_SEPARATE
namespace detail {
template void dynamic_call<blocking_mode>(communicator&, const dynamic_arguments<>&, const dynamic::options&);
template operation dynamic_call<start_mode>(communicator&, const dynamic_arguments<>&, const dynamic::options&);
template plan dynamic_call<prepare_mode>(communicator&, const dynamic_arguments<>&, const dynamic::options&);
template void dynamic_message<blocking_mode>(communicator&, bool, const dynamic::const_buffer&, int);
template operation dynamic_message<start_mode>(communicator&, bool, const dynamic::const_buffer&, int);
}  // namespace detail
#endif

}  // namespace colls::inline v1
