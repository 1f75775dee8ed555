#include "types.hpp"

#include <colls/collectives.hpp>

#include <chrono>
#include <cmath>

namespace colls_c {

namespace {

/// The arguments that all calls have, and what the others become.
class call {
public:
    call(const char* function, colls_comm comm, const colls_options* options, bool is_message = false)
        : function_(function), comm_(object_of(function, comm)), is_message_(is_message) {
        checked([&] { options_ = options_of(function_, options); });
    }

    colls::communicator& comm() { return comm_; }
    void need_result(const void* at) {
        checked([&] { need(function_, at, "for the result"); });
    }
    dynamic::options how() const {
        return {.schedule = options_.schedule ? options_.schedule : "", .reproducible = options_.reproducible == 1};
    }
    dynamic::const_buffer in(const void* data, std::size_t count, colls_type type) {
        return buffer_of<dynamic::const_buffer>(data, count, type, options_.in_layout);
    }
    dynamic::buffer out(void* data, std::size_t count, colls_type type) {
        return buffer_of<dynamic::buffer>(data, count, type, options_.out_layout);
    }
    /// The output of a rank that may have none.
    dynamic::buffer out_at(int root, void* data, std::size_t count, colls_type type) {
        return out(data, root != comm_.rank() && data == nullptr ? 0 : count, type);
    }
    /// The one buffer of a broadcast: the root's is an input.
    dynamic::buffer inout(int root, void* data, std::size_t count, colls_type type) {
        return buffer_of<dynamic::buffer>(
            data, count, type, root == comm_.rank() ? options_.in_layout : options_.out_layout);
    }
    dynamic::reduction op(colls_op op) {
        return checked([&] { return op_of(function_, op); });
    }
    /// Counts that every rank has.
    dynamic::count_list counts(const std::size_t* counts, const std::size_t* displacements) {
        return counts_at(comm_.rank(), counts, displacements);
    }
    /// Counts that another rank than the root need not have.
    dynamic::count_list counts_at(int root, const std::size_t* counts, const std::size_t* displacements) {
        return checked([&]() -> dynamic::count_list {
            const auto n = static_cast<std::size_t>(comm_.size());
            if (counts == nullptr && root != comm_.rank()) return {};
            if (counts == nullptr)
                refuse(function_, error_text() << "the counts are NULL: pass " << n << ", one for each rank");
            for (std::size_t i = 0; i < n; ++i) {
                check_count(counts[i], 1, "count of a block");
                if (displacements) check_count(displacements[i], 1, "displacement");
            }
            const dynamic::count_list all(counts, n);
            return displacements ? dynamic::count_list(all, dynamic::count_list(displacements, n)) : all;
        });
    }

private:
    template <class Buffer, class Data>
    Buffer buffer_of(Data* data, std::size_t count, colls_type type, colls_layout layout) {
        return checked([&] {
            const dynamic::element_type t = type_of(function_, type);
            check_count(count, t.size(), "count");
            return Buffer{data, count, t, layout_of(function_, layout)};
        });
    }
    void check_count(std::size_t count, std::size_t element, const char* name) {
        if (count <= PTRDIFF_MAX / element) return;
        error_text text;
        if (count > PTRDIFF_MAX)
            text << "the " << name << " is " << static_cast<long long>(count) << ": it must not be negative";
        else
            text << "the " << name << " is " << count << ", of " << element
                 << " bytes each: that is more than there is memory for addresses";
        refuse(function_, text);
    }
    /// What f refuses in a collective, ranks that wait for this one get to know.
    template <class F>
    auto checked(const F& f) -> decltype(f()) {
        try {
            return f();
        } catch (const failure& e) {
            refuse_call(with_rank(e.what()), e.status());
        }
    }
    [[noreturn]] void refuse_call(const error_text& text, colls_status status) {
        if (is_message_) throw failure(status, text, comm_.rank());
        try {
            colls::detail::refuse_call(comm_.handle(), colls::errc::invalid_argument, text);
        } catch (const colls::error& x) {
            throw failure(status, x.what(), comm_.rank());
        }
    }
    error_text with_rank(const char* text) const {
        return error_text() << "colls: rank " << comm_.rank() << " in " << colls::detail::quoted(text);
    }

    const char* const function_;
    colls::communicator& comm_;
    const bool is_message_;
    colls_options options_ = COLLS_OPTIONS_INIT;
};

}  // namespace

}  // namespace colls_c

using namespace colls_c;

// A call in its forms. `in_words` is what the functions of dynamic.hpp are given, in which `c` is the call.
constexpr bool is_message(std::string_view name) { return name == "send" || name == "recv"; }
#define UNPACK(...) __VA_ARGS__
#define BLOCKING(name, parameters, in_words)                    \
    colls_status colls_##name(UNPACK parameters) {              \
        return guarded(__func__, [&, function = __func__] {     \
            call c(function, comm, options, is_message(#name)); \
            dynamic::blocking::name(UNPACK in_words);           \
        });                                                     \
    }
#define KEPT(form, handle, name, parameters, in_words)                         \
    colls_status colls_##form##_##name(UNPACK parameters, handle* result) {    \
        return guarded(__func__, [&, function = __func__] {                    \
            call c(function, comm, options, is_message(#name));                \
            c.need_result(result);                                             \
            *result = handle_of<handle>(dynamic::form::name(UNPACK in_words)); \
        });                                                                    \
    }
#define STARTED(name, parameters, in_words) KEPT(start, colls_request, name, parameters, in_words)
#define ALL_FORMS(name, parameters, in_words) \
    BLOCKING(name, parameters, in_words)      \
    STARTED(name, parameters, in_words)       \
    KEPT(prepare, colls_plan, name, parameters, in_words)

#define COMM colls_comm comm
#define OPTIONS const colls_options* options
#define BUFFERS const void *in, size_t in_count, void *out, size_t out_count
#define EQUAL_BUFFERS const void *in, void *out, size_t count, colls_type type
#define COUNTS const size_t *counts, const size_t *displacements, colls_type type
#define IN c.in(in, in_count, type)
#define OUT c.out(out, out_count, type)

ALL_FORMS(broadcast, (COMM, void* inout, size_t count, colls_type type, int root, OPTIONS),
    (c.comm(), c.inout(root, inout, count, type), root, c.how()))
ALL_FORMS(scatter, (COMM, BUFFERS, colls_type type, int root, OPTIONS), (c.comm(), IN, OUT, root, c.how()))
ALL_FORMS(gather, (COMM, BUFFERS, colls_type type, int root, OPTIONS), (c.comm(), IN, OUT, root, c.how()))
ALL_FORMS(all_gather, (COMM, BUFFERS, colls_type type, OPTIONS), (c.comm(), IN, OUT, c.how()))
ALL_FORMS(
    all_to_all, (COMM, EQUAL_BUFFERS, OPTIONS), (c.comm(), c.in(in, count, type), c.out(out, count, type), c.how()))
ALL_FORMS(reduce, (COMM, EQUAL_BUFFERS, colls_op op, int root, OPTIONS),
    (c.comm(), c.in(in, count, type), c.out_at(root, out, count, type), c.op(op), root, c.how()))
ALL_FORMS(all_reduce, (COMM, EQUAL_BUFFERS, colls_op op, OPTIONS),
    (c.comm(), c.in(in, count, type), c.out(out, count, type), c.op(op), c.how()))
ALL_FORMS(
    reduce_scatter, (COMM, BUFFERS, colls_type type, colls_op op, OPTIONS), (c.comm(), IN, OUT, c.op(op), c.how()))
ALL_FORMS(inclusive_scan, (COMM, EQUAL_BUFFERS, colls_op op, OPTIONS),
    (c.comm(), c.in(in, count, type), c.out(out, count, type), c.op(op), c.how()))
ALL_FORMS(exclusive_scan, (COMM, EQUAL_BUFFERS, colls_op op, OPTIONS),
    (c.comm(), c.in(in, count, type), c.out(out, count, type), c.op(op), c.how()))
ALL_FORMS(barrier, (COMM, OPTIONS), (c.comm(), c.how()))
ALL_FORMS(scatter_v, (COMM, BUFFERS, COUNTS, int root, OPTIONS),
    (c.comm(), IN, OUT, c.counts_at(root, counts, displacements), root, c.how()))
ALL_FORMS(gather_v, (COMM, BUFFERS, COUNTS, int root, OPTIONS),
    (c.comm(), IN, OUT, c.counts_at(root, counts, displacements), root, c.how()))
ALL_FORMS(all_gather_v, (COMM, BUFFERS, COUNTS, OPTIONS), (c.comm(), IN, OUT, c.counts(counts, displacements), c.how()))
ALL_FORMS(reduce_scatter_v, (COMM, BUFFERS, COUNTS, colls_op op, OPTIONS),
    (c.comm(), IN, OUT, c.counts(counts, displacements), c.op(op), c.how()))
ALL_FORMS(all_to_all_v,
    (COMM, BUFFERS, const size_t* sent, const size_t* sent_displacements, const size_t* received,
        const size_t* received_displacements, colls_type type, OPTIONS),
    (c.comm(), IN, OUT, c.counts(sent, sent_displacements), c.counts(received, received_displacements), c.how()))

BLOCKING(send, (COMM, const void* data, size_t count, colls_type type, int peer, OPTIONS),
    (c.comm(), c.in(data, count, type), peer))
STARTED(send, (COMM, const void* data, size_t count, colls_type type, int peer, OPTIONS),
    (c.comm(), c.in(data, count, type), peer))
BLOCKING(recv, (COMM, void* data, size_t count, colls_type type, int peer, OPTIONS),
    (c.comm(), c.out(data, count, type), peer))
STARTED(recv, (COMM, void* data, size_t count, colls_type type, int peer, OPTIONS),
    (c.comm(), c.out(data, count, type), peer))

colls_status colls_recv_any(
    colls_comm comm, void* data, size_t count, colls_type type, const colls_options* options, int* source) {
    return guarded(__func__, [&, function = __func__] {
        need(function, source, "source");
        call c(function, comm, options, true);
        *source = dynamic::recv_any(c.comm(), c.out(data, count, type));
    });
}
colls_status colls_probe_any(colls_comm comm, int* source) {
    return guarded(__func__, [&, function = __func__] {
        need(function, source, "source");
        *source = colls::probe_any(object_of(function, comm));
    });
}
colls_status colls_exchange(colls_comm comm, const void* sent, size_t sent_count, int to, void* received,
    size_t received_count, int from, colls_type type, const colls_options* options) {
    return guarded(__func__, [&, function = __func__] {
        call c(function, comm, options, true);
        dynamic::exchange(c.comm(), c.in(sent, sent_count, type), to, c.out(received, received_count, type), from);
    });
}

namespace {

using seconds = std::chrono::duration<double>;

/// Calls use(operation) for the operation behind a request, and frees that where it is over, after an error too.
template <class F>
void use_request(const char* function, colls_request* request, const F& use) {
    need(function, request, "request");
    if (*request == nullptr) return;
    colls::operation& o = object_of(function, *request);
    try {
        use(o);
    } catch (...) {
        if (o.empty()) drop(*request);
        throw;
    }
    if (o.empty()) drop(*request);
}

/// The operations behind several requests, as a range. None is an empty one.
class request_list {
public:
    request_list(const char* function, std::size_t count, colls_request* all) : all_(all) {
        if (count > 0) need(function, all, "requests");
        behind_.reserve(count);
        for (std::size_t i = 0; i < count; ++i)
            behind_.push_back(all[i] == nullptr ? &none_ : &object_of(function, all[i]));
    }
    class iterator {
    public:
        explicit iterator(colls::operation* const* at) : at_(at) {}
        colls::operation& operator*() const { return **at_; }
        iterator& operator++() {
            ++at_;
            return *this;
        }
        bool operator==(const iterator&) const = default;

    private:
        colls::operation* const* at_;
    };
    iterator begin() const { return iterator(behind_.data()); }
    iterator end() const { return iterator(behind_.data() + behind_.size()); }
    /// Frees those that are over; returns the place of the last one.
    int free_finished() {
        int last = -1;
        for (std::size_t i = 0; i < behind_.size(); ++i)
            if (all_[i] != nullptr && behind_[i]->empty()) {
                last = static_cast<int>(i);
                drop(all_[i]);
            }
        return last;
    }

private:
    colls_request* all_;
    std::vector<colls::operation*> behind_;
    colls::operation none_;
};

}  // namespace

colls_status colls_wait(colls_request* request) {
    return guarded(
        __func__, [&, function = __func__] { use_request(function, request, [](colls::operation& o) { o.wait(); }); });
}
colls_status colls_wait_for(colls_request* request, double duration, int* over) {
    return guarded(__func__, [&, function = __func__] {
        need(function, over, "over");
        if (!(duration >= 0))
            refuse(function, error_text() << "the duration is " << duration << " seconds: it is 0 or more");
        use_request(function, request, [&](colls::operation& o) { o.wait_for(seconds(duration)); });
        *over = *request == nullptr;
    });
}
colls_status colls_test(colls_request* request, int* over) {
    return guarded(__func__, [&, function = __func__] {
        need(function, over, "over");
        use_request(function, request, [](colls::operation& o) { o.test(); });
        *over = *request == nullptr;
    });
}
colls_status colls_wait_all(size_t count, colls_request* requests) {
    return guarded(__func__, [&, function = __func__] {
        request_list all(function, count, requests);
        try {
            colls::wait_all(all);
        } catch (...) {
            all.free_finished();
            throw;
        }
        all.free_finished();
    });
}
colls_status colls_wait_any(size_t count, colls_request* requests, int* index) {
    return guarded(__func__, [&, function = __func__] {
        need(function, index, "index");
        request_list all(function, count, requests);
        try {
            colls::wait_any(all);
        } catch (...) {
            *index = all.free_finished();
            throw;
        }
        *index = all.free_finished();
    });
}

colls_status colls_plan_run(colls_plan plan) {
    return guarded(__func__, [&, function = __func__] { object_of(function, plan).run(); });
}
colls_status colls_plan_start(colls_plan plan, colls_request* request) {
    return made(__func__, request, [&, function = __func__] { return object_of(function, plan).start(); });
}
colls_status colls_plan_free(colls_plan* plan) { return freed(__func__, plan); }
