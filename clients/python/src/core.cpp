// colls._core: the functions of colls.h for the classes of the package, which have the names, the defaults and the
// documentation. It finds the address, the type and the layout of arrays, releases the interpreter's lock while a call
// waits, and turns a status into an exception.
//
// Within Python's stable ABI, so one module serves every Python from 3.11 on. It needs no header of NumPy: an array is
// an object with the buffer protocol and an attribute `dtype`, whose code is looked up by identity.
#include "core.hpp"

#include "interrupts.hpp"

#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace colls_python {

namespace {

/// What the package gives at its import.
struct package_parts {
    PyObject* error = nullptr;      // (text, code, rank, peer, round, calls) -> an exception
    PyObject* type_code = nullptr;  // dtype -> its code; raises TypeError, in words
    PyObject* ops = nullptr;        // {name: code}
    PyObject* dtype = nullptr;      // the text "dtype"
};
package_parts parts;

/// dtypes whose code was looked up, by identity; they are never freed. Nearly all programs use one or two.
struct known_type {
    PyObject* dtype;
    colls_type code;
    std::size_t bytes;
};
std::vector<known_type> known_types;

enum class form { now, start, prepare };
enum class kind {
    broadcast,
    scatter,
    gather,
    all_gather,
    all_to_all,
    reduce,
    all_reduce,
    reduce_scatter,
    inclusive_scan,
    exclusive_scan,
    barrier,
    send,
    recv
};

PyObject* raise_error(
    const char* text, colls_status code, int rank, int peer = -1, int round = -1, const char* calls = "") {
    PyObject* const e =
        PyObject_CallFunction(parts.error, "siiiis", text, static_cast<int>(code), rank, peer, round, calls);
    if (e != nullptr) {
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(e)), e);
        Py_DECREF(e);
    }
    return nullptr;
}
/// The exception for the latest error of this thread.
PyObject* raise_latest() {
    // An interrupt has ended the call where there is one.
    if (PyErr_CheckSignals() != 0) return nullptr;
    return raise_error(colls_error_text(), colls_error_status(), colls_error_rank(), colls_error_peer(),
        colls_error_round(), colls_error_calls());
}

/// Python objects of this module. Each holds what its handle needs.
struct comm_object {
    PyObject_HEAD colls_comm handle;
    int rank, size;
    int calls;  // of any thread, that are under way
};
struct op_object {
    PyObject_HEAD colls_op code;
    PyObject* function;  // null of a factor
    PyObject* dtype;     // null: any
    std::size_t bytes;   // of an element
    PyObject* raised;    // what the function has raised in the call under way
};
struct memory_object {
    PyObject_HEAD void* data;
    Py_ssize_t bytes;
};
/// A request or a plan.
struct call_object {
    PyObject_HEAD comm_object* comm;
    PyObject *in, *out, *op, *result;
    colls_request request;
    colls_plan plan;
    PyObject* failure;  // the exception of a request that has failed
};
PyTypeObject *comm_type, *op_type, *memory_type, *request_type, *plan_type;

int threads_in_library = 0;  // that may run an operator, or wait for another thread's call

/// In the library, without the interpreter's lock: an operator of another thread's call needs that while this thread
/// waits for the call.
class in_library {
public:
    explicit in_library(comm_object* comm = nullptr) : comm_(comm) {
        count(1);
        state_ = PyEval_SaveThread();
    }
    in_library(const in_library&) = delete;
    in_library& operator=(const in_library&) = delete;
    ~in_library() {
        PyEval_RestoreThread(state_);
        count(-1);
    }

private:
    void count(int n) const {
        threads_in_library += n;
        if (comm_ != nullptr) comm_->calls += n;
    }
    comm_object* const comm_;
    PyThreadState* state_;
};
template <class F>
auto without_interpreter(F f) {
    const in_library free;
    return f();
}
/// A call of a communicator under way, which an interrupt ends.
class without_lock {
public:
    explicit without_lock(comm_object* comm) : main_(interrupts::enter(comm->handle)), inside_(comm) {}
    without_lock(const without_lock&) = delete;
    without_lock& operator=(const without_lock&) = delete;
    ~without_lock() {
        if (main_) interrupts::leave();
    }

private:
    const bool main_;
    const in_library inside_;
};

// Arguments

/// Refuses a collective: ranks that wait for this one get to know why.
PyObject* refuse(comm_object* comm, const char* call, const char* why) {
    {
        const without_lock free(comm);
        colls_refuse(comm->handle, call, why);
    }
    return raise_latest();
}
/// The same with the exception that is set. A message is refused on this rank alone.
PyObject* refuse_with_raised(comm_object* comm, const char* call, bool message = false) {
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    PyObject* const text =
        message ? PyUnicode_FromFormat("colls: rank %d in %s: %S", comm->rank, call, value) : PyObject_Str(value);
    PyObject* const bytes = text ? PyUnicode_AsUTF8String(text) : nullptr;
    PyErr_Clear();
    const char* const why = bytes ? PyBytes_AsString(bytes) : "an argument is wrong";
    if (message)
        raise_error(why, COLLS_INVALID_ARGUMENT, comm->rank);
    else
        refuse(comm, call, why);
    Py_XDECREF(text);
    Py_XDECREF(bytes);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return nullptr;
}

const known_type* type_of(PyObject* array) {
    PyObject* const dtype = PyObject_GetAttr(array, parts.dtype);
    if (dtype == nullptr) {
        PyErr_Clear();
        PyObject* const name = PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(array)), "__name__");
        PyErr_Format(
            PyExc_TypeError, "an array of NumPy is needed, and this is of type %S: numpy.asarray makes one", name);
        Py_XDECREF(name);
        return nullptr;
    }
    for (const known_type& t : known_types)
        if (t.dtype == dtype) {
            Py_DECREF(dtype);
            return &t;
        }
    PyObject* const code = PyObject_CallFunctionObjArgs(parts.type_code, dtype, nullptr);
    if (code == nullptr) {
        Py_DECREF(dtype);
        return nullptr;
    }
    known_type t{dtype, PyLong_AsUnsignedLongLong(code), 0};
    Py_DECREF(code);
    if (PyErr_Occurred() || colls_type_size(t.code, &t.bytes) != COLLS_OK) {
        Py_DECREF(dtype);
        if (!PyErr_Occurred()) raise_latest();
        return nullptr;
    }
    known_types.push_back(t);  // keeps dtype
    return &known_types.back();
}

/// An array of a call.
class array {
public:
    array() = default;
    array(const array&) = delete;
    array& operator=(const array&) = delete;
    ~array() {
        if (view_.obj != nullptr) PyBuffer_Release(&view_);
        colls_layout_free(&layout_);
    }
    /// False: an exception is set.
    bool take(PyObject* object, bool written, const char* name) {
        const known_type* const t = type_of(object);
        if (t == nullptr) return false;
        type_ = *t;
        if (PyObject_GetBuffer(object, &view_, PyBUF_STRIDES) != 0) return false;
        if (written && view_.readonly) {
            PyErr_Format(PyExc_ValueError, "%s is read-only, and the call writes into it: pass a copy", name);
            return false;
        }
        count_ = type_.bytes == 0 ? 0 : static_cast<std::size_t>(view_.len) / type_.bytes;
        return PyBuffer_IsContiguous(&view_, 'C') || make_layout(written, name);
    }
    void* data() const { return view_.buf; }
    /// Elements.
    std::size_t elements() const { return count_; }
    /// What the call is given: elements, or one repetition of the layout.
    std::size_t count() const { return layout_ ? 1 : count_; }
    const known_type& type() const { return type_; }
    colls_layout layout() const { return layout_; }
    /// As elements in a row are in one repetition, beside another array that has a layout.
    bool as_one() {
        if (layout_ != nullptr || count_ == 0) return true;
        return colls_layout_contiguous(count_, COLLS_ELEMENTS, &layout_) == COLLS_OK || raise_latest() != nullptr;
    }

private:
    bool make_layout(bool written, const char* name) {
        if (count_ == 0) return true;
        for (int d = 0; d < view_.ndim; ++d)
            if (view_.shape[d] > 1 && (view_.strides[d] < 0 || (written && view_.strides[d] == 0))) {
                PyErr_Format(PyExc_ValueError,
                    "%s has the stride %zd in its axis %d: %s; pass a copy (numpy.ascontiguousarray)", name,
                    view_.strides[d], d,
                    view_.strides[d] < 0 ? "elements in reverse order are not taken"
                                         : "its elements are the same memory");
                return false;
            }
        colls_status s = colls_layout_contiguous(type_.bytes, COLLS_UNIT_BYTES, &layout_);
        for (int d = view_.ndim - 1; d >= 0 && s == COLLS_OK; --d) {
            if (view_.shape[d] == 1) continue;
            colls_layout outer = nullptr;
            s = colls_layout_repeated(
                layout_, static_cast<std::size_t>(view_.shape[d]), static_cast<std::size_t>(view_.strides[d]), &outer);
            colls_layout_free(&layout_);
            layout_ = outer;
        }
        if (s != COLLS_OK) raise_latest();
        return s == COLLS_OK;
    }

    Py_buffer view_ = {};
    known_type type_ = {};
    std::size_t count_ = 0;
    colls_layout layout_ = nullptr;
};

/// Else an exception is set.
bool have_same_type(const array& in, const array& out) {
    if (in.type().code == out.type().code) return true;
    PyErr_Format(
        PyExc_TypeError, "x is of %S, and out of %S: both must have the same dtype", in.type().dtype, out.type().dtype);
    return false;
}

/// A list of n counts, or None; an empty one of a rank that need not know them. The library refuses negative ones.
class count_list {
public:
    bool take(PyObject* object, int n, const char* name, bool may_be_unknown = false) {
        if (object == Py_None) return true;
        PyObject* const all = PySequence_List(object);
        if (all == nullptr) return false;
        const Py_ssize_t length = PyList_Size(all);
        given_ = true;
        known_ = length > 0 || !may_be_unknown;
        if (known_ && length != n)
            PyErr_Format(
                PyExc_ValueError, "%s has %zd numbers, and the group %d ranks: pass one for each", name, length, n);
        for (Py_ssize_t i = 0; i < length && !PyErr_Occurred(); ++i) {
            PyObject* const number = PyNumber_Index(PyList_GetItem(all, i));
            const Py_ssize_t value = number ? PyLong_AsSsize_t(number) : -1;
            Py_XDECREF(number);
            if (PyErr_Occurred()) break;
            numbers_.push_back(static_cast<std::size_t>(value));
        }
        Py_DECREF(all);
        return !PyErr_Occurred();
    }
    bool is_given() const { return given_; }
    const std::size_t* get() const { return known_ ? numbers_.data() : nullptr; }

private:
    bool given_ = false, known_ = false;
    std::vector<std::size_t> numbers_;
};

/// The code of an operator's name or object; false: an exception is set.
bool op_of(PyObject* op, PyObject* dtype, colls_op& code) {
    if (Py_TYPE(op) == op_type) {
        auto* const o = reinterpret_cast<op_object*>(op);
        code = o->code;
        if (o->dtype == nullptr) return true;
        const int same = PyObject_RichCompareBool(o->dtype, dtype, Py_EQ);
        if (same == 0) PyErr_Format(PyExc_TypeError, "the operator is for %S, and the array is of %S", o->dtype, dtype);
        return same == 1;
    }
    PyObject* const found = PyDict_GetItemWithError(parts.ops, op);
    if (found == nullptr) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "there is no operator %R: colls.OPERATORS lists their names", op);
        return false;
    }
    code = PyLong_AsUnsignedLongLong(found);
    return true;
}

/// Makes the call in its form.
struct call_forms {
    form how;
    colls_request request = nullptr;
    colls_plan plan = nullptr;

    template <class... P>
    colls_status make(colls_status (*now)(P...), std::type_identity_t<colls_status (*)(P..., colls_request*)> start,
        std::type_identity_t<colls_status (*)(P..., colls_plan*)> prepare, std::type_identity_t<P>... arguments) {
        switch (how) {
            case form::now:
                return now(arguments...);
            case form::start:
                return start(arguments..., &request);
            case form::prepare:
                break;
        }
        return prepare(arguments..., &plan);
    }
};
#define COLLS_FORMS(name) colls_##name, colls_start_##name, colls_prepare_##name

/// The first exception of an operator's function in a call, which ends the group: other ranks have wrong results.
PyObject* raised_by_operator(comm_object* comm, PyObject* op) {
    if (op == nullptr || Py_TYPE(op) != op_type) return nullptr;
    PyObject* const raised = std::exchange(reinterpret_cast<op_object*>(op)->raised, nullptr);
    if (raised == nullptr) return nullptr;
    colls_abort(comm->handle, "its operator has raised an exception");
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised)), raised);
    return raised;
}

// Requests that a program has dropped before they are over: their arrays live until they are.
PyObject* dropped = nullptr;  // a list of requests

/// Takes a reference to a request.
void keep_until_over(PyObject* request) {
    if (dropped == nullptr) dropped = PyList_New(0);
    if (dropped == nullptr || PyList_Append(dropped, request) != 0)
        PyErr_Clear();  // it is kept for ever
    else
        Py_DECREF(request);
}
/// Is a dropped request over, as far as it may be tested now? `user` is the group that this thread may use, or null.
bool is_known_over(call_object* r, const comm_object* user) {
    int over = 0;
    if (threads_in_library == 0) {
        // Nothing to wait for. With the interpreter's lock, so that no other thread begins a call with the group
        // meanwhile.
        ++threads_in_library;
        if (colls_test(&r->request, &over) != COLLS_OK)
            r->request = nullptr;  // failed, or of the parent of this process
        --threads_in_library;
    } else if (r->comm == user && user->calls == 0) {
        const in_library free(r->comm);
        colls_test(&r->request, &over);  // refused where an operator asks for it
    }
    return r->request == nullptr;
}
void look_after_dropped(const comm_object* user) {
    PyObject* const all = std::exchange(dropped, nullptr);
    if (all == nullptr) return;
    for (Py_ssize_t i = 0; i < PyList_Size(all); ++i) {
        PyObject* const r = PyList_GetItem(all, i);
        if (!is_known_over(reinterpret_cast<call_object*>(r), user)) keep_until_over(Py_NewRef(r));
    }
    Py_DECREF(all);
}

PyObject* new_call(PyTypeObject* type, comm_object* comm, PyObject* in, PyObject* out, PyObject* op, PyObject* result) {
    auto* const c = PyObject_New(call_object, type);
    if (c == nullptr) return nullptr;
    c->comm = comm;
    Py_INCREF(reinterpret_cast<PyObject*>(comm));
    c->in = Py_NewRef(in);
    c->out = Py_NewRef(out);
    c->op = Py_NewRef(op);
    c->result = Py_NewRef(result);
    c->request = nullptr;
    c->plan = nullptr;
    c->failure = nullptr;
    return reinterpret_cast<PyObject*>(c);
}

constexpr const char* call_names[] = {"broadcast", "scatter", "gather", "all_gather", "all_to_all", "reduce",
    "all_reduce", "reduce_scatter", "inclusive_scan", "exclusive_scan", "barrier", "send", "recv"};

/// (form, kind, in, out, op, root, result[, schedule, reproducible[, counts, displacements, received,
/// received_displacements]])
PyObject* comm_call(PyObject* self, PyObject* const* a, Py_ssize_t n) {
    auto* const comm = reinterpret_cast<comm_object*>(self);
    if (n != 7 && n != 9 && n != 13) {
        PyErr_SetString(PyExc_TypeError, "call takes 7, 9 or 13 arguments");
        return nullptr;
    }
    const auto how = static_cast<form>(PyLong_AsLong(a[0]));
    const auto what = static_cast<kind>(PyLong_AsLong(a[1]));
    PyObject *const in_object = a[2], *const out_object = a[3], *const op_object_ = a[4];
    const bool message = what == kind::send || what == kind::recv;
    const char* const name = call_names[static_cast<int>(what)];
    const auto wrong = [&] { return refuse_with_raised(comm, name, message); };

    int root = 0;
    if (a[5] != Py_None) {
        root = static_cast<int>(PyLong_AsLong(a[5]));
        if (PyErr_Occurred()) return wrong();
    }
    // One count is for both.
    const bool equal = what == kind::all_to_all || what == kind::reduce || what == kind::all_reduce ||
                       what == kind::inclusive_scan || what == kind::exclusive_scan;
    const bool reads = in_object != Py_None, writes = out_object != Py_None, at_root = root == comm->rank;
    const bool in_place = equal && !writes && (what != kind::reduce || at_root);
    array in, out;
    if (reads && !in.take(in_object, in_place || (what == kind::broadcast && !at_root), "x")) return wrong();
    if (writes && !out.take(out_object, true, "out")) return wrong();
    if (reads && writes && !have_same_type(in, out)) return wrong();
    const known_type& type = reads ? in.type() : out.type();
    if (equal && n != 13 && reads && writes && in.elements() != out.elements()) {
        PyErr_Format(
            PyExc_ValueError, "x has %zu elements, and out %zu: both must have as many", in.elements(), out.elements());
        return wrong();
    }
    if (equal && reads && writes && (in.layout() || out.layout()) && !(in.as_one() && out.as_one())) return wrong();
    colls_op op = COLLS_SUM;
    if (op_object_ != Py_None && !op_of(op_object_, type.dtype, op)) return wrong();

    colls_options options = COLLS_OPTIONS_INIT;
    options.in_layout = in.layout();
    options.out_layout = writes ? out.layout() : in.layout();
    PyObject* schedule = nullptr;  // its text
    if (n >= 9) {
        if (a[7] != Py_None) {
            schedule = PyUnicode_Check(a[7]) ? PyUnicode_AsUTF8String(a[7]) : nullptr;
            if (schedule == nullptr) {
                if (!PyErr_Occurred())
                    PyErr_Format(PyExc_TypeError, "schedule is %R: it is a name, such as \"ring\"", a[7]);
                return wrong();
            }
            options.schedule = PyBytes_AsString(schedule);
        }
        options.reproducible = PyObject_IsTrue(a[8]) == 1;
    }
    const bool elsewhere = (what == kind::scatter || what == kind::gather) && !at_root;
    count_list counts, displacements, received, received_displacements;
    if (n == 13 &&
        !(counts.take(a[9], comm->size, "counts", elsewhere) &&
            displacements.take(a[10], comm->size, "displacements") && received.take(a[11], comm->size, "received") &&
            received_displacements.take(a[12], comm->size, "received_displacements"))) {
        Py_XDECREF(schedule);
        return wrong();
    }
    if (how == form::start) look_after_dropped(comm);

    call_forms c{how};
    const colls_options* const o = &options;
    const std::size_t in_count = in.count(), out_count = out.count(), one_count = reads ? in_count : out_count;
    void* const from = reads ? in.data() : nullptr;
    void* const to = writes ? out.data() : in_place ? from : nullptr;
    const std::size_t *const cs = counts.get(), *const ds = displacements.get();
    const bool v = counts.is_given() || received.is_given();
    colls_status s = COLLS_OK;
    {
        const without_lock free(comm);
        const colls_comm g = comm->handle;
        switch (what) {
            case kind::broadcast:
                s = c.make(COLLS_FORMS(broadcast), g, from, in_count, type.code, root, o);
                break;
            case kind::scatter:
                s = v ? c.make(COLLS_FORMS(scatter_v), g, from, in_count, to, out_count, cs, ds, type.code, root, o)
                      : c.make(COLLS_FORMS(scatter), g, from, in_count, to, out_count, type.code, root, o);
                break;
            case kind::gather:
                s = v ? c.make(COLLS_FORMS(gather_v), g, from, in_count, to, out_count, cs, ds, type.code, root, o)
                      : c.make(COLLS_FORMS(gather), g, from, in_count, to, out_count, type.code, root, o);
                break;
            case kind::all_gather:
                s = v ? c.make(COLLS_FORMS(all_gather_v), g, from, in_count, to, out_count, cs, ds, type.code, o)
                      : c.make(COLLS_FORMS(all_gather), g, from, in_count, to, out_count, type.code, o);
                break;
            case kind::all_to_all:
                s = v ? c.make(COLLS_FORMS(all_to_all_v), g, from, in_count, to, writes ? out_count : in_count, cs, ds,
                            received.get(), received_displacements.get(), type.code, o)
                      : c.make(COLLS_FORMS(all_to_all), g, from, to, one_count, type.code, o);
                break;
            case kind::reduce:
                s = c.make(COLLS_FORMS(reduce), g, from, to, one_count, type.code, op, root, o);
                break;
            case kind::all_reduce:
                s = c.make(COLLS_FORMS(all_reduce), g, from, to, one_count, type.code, op, o);
                break;
            case kind::reduce_scatter:
                s = v ? c.make(
                            COLLS_FORMS(reduce_scatter_v), g, from, in_count, to, out_count, cs, ds, type.code, op, o)
                      : c.make(COLLS_FORMS(reduce_scatter), g, from, in_count, to, out_count, type.code, op, o);
                break;
            case kind::inclusive_scan:
                s = c.make(COLLS_FORMS(inclusive_scan), g, from, to, one_count, type.code, op, o);
                break;
            case kind::exclusive_scan:
                s = c.make(COLLS_FORMS(exclusive_scan), g, from, to, one_count, type.code, op, o);
                break;
            case kind::barrier:
                s = c.make(COLLS_FORMS(barrier), g, o);
                break;
            case kind::send:
                s = how == form::now ? colls_send(g, from, in_count, type.code, root, o)
                                     : colls_start_send(g, from, in_count, type.code, root, o, &c.request);
                break;
            case kind::recv:
                s = how == form::now ? colls_recv(g, to, out_count, type.code, root, o)
                                     : colls_start_recv(g, to, out_count, type.code, root, o, &c.request);
                break;
        }
    }
    Py_XDECREF(schedule);
    if (raised_by_operator(comm, op_object_)) return nullptr;
    if (s != COLLS_OK) return raise_latest();
    PyObject* const result = a[6];
    if (how == form::now) return Py_NewRef(result);
    PyObject* const made =
        new_call(how == form::start ? request_type : plan_type, comm, in_object, out_object, op_object_, result);
    if (made == nullptr) return nullptr;
    reinterpret_cast<call_object*>(made)->request = c.request;
    reinterpret_cast<call_object*>(made)->plan = c.plan;
    return made;
}

// Communicators

PyObject* new_comm(colls_comm handle) {
    auto* const comm = PyObject_New(comm_object, comm_type);
    if (comm == nullptr) {
        colls_comm_free(&handle);
        return nullptr;
    }
    comm->handle = handle;
    comm->calls = 0;
    colls_rank(handle, &comm->rank);
    colls_size(handle, &comm->size);
    interrupts::watch();
    return reinterpret_cast<PyObject*>(comm);
}
void free_comm(comm_object* comm) {
    interrupts::forget(comm->handle);
    const in_library free;  // a rank that leaves may wait for others
    colls_comm_free(&comm->handle);
}
void comm_dealloc(PyObject* self) {
    free_comm(reinterpret_cast<comm_object*>(self));
    PyTypeObject* const type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}
PyObject* comm_close(PyObject* self, PyObject*) {
    auto* const comm = reinterpret_cast<comm_object*>(self);
    if (comm->calls > 0) {
        PyErr_SetString(PyExc_RuntimeError, "close: another thread is in a call with this communicator: join it first");
        return nullptr;
    }
    free_comm(comm);
    Py_RETURN_NONE;
}
PyObject* comm_rank(PyObject* self, PyObject*) { return PyLong_FromLong(reinterpret_cast<comm_object*>(self)->rank); }
PyObject* comm_size(PyObject* self, PyObject*) { return PyLong_FromLong(reinterpret_cast<comm_object*>(self)->size); }

/// The result of f(handle), made without the interpreter's lock.
template <class F>
PyObject* done(PyObject* self, F f) {
    auto* const comm = reinterpret_cast<comm_object*>(self);
    colls_status s;
    {
        const without_lock free(comm);
        s = f(comm->handle);
    }
    if (s != COLLS_OK) return raise_latest();
    Py_RETURN_NONE;
}
template <class F>
PyObject* another(PyObject* self, F f) {
    colls_comm made = nullptr;
    PyObject* const none = done(self, [&](colls_comm c) { return f(c, &made); });
    if (none == nullptr || made == nullptr) return none;
    Py_DECREF(none);
    return new_comm(made);
}
PyObject* comm_split(PyObject* self, PyObject* arguments) {
    int color = 0, key = 0;
    if (!PyArg_ParseTuple(arguments, "ii", &color, &key)) return nullptr;
    return another(self, [&](colls_comm c, colls_comm* made) { return colls_split(c, color, key, made); });
}
PyObject* comm_shrink(PyObject* self, PyObject*) { return another(self, colls_shrink); }
PyObject* comm_dump(PyObject* self, PyObject*) { return done(self, colls_dump); }
PyObject* comm_abort(PyObject* self, PyObject* why) {
    PyObject* const text = PyUnicode_AsUTF8String(why);
    if (text == nullptr) return nullptr;
    PyObject* const result = done(self, [&](colls_comm c) { return colls_abort(c, PyBytes_AsString(text)); });
    Py_DECREF(text);
    return result;
}
PyObject* comm_set_timeout(PyObject* self, PyObject* seconds) {
    const double s = PyFloat_AsDouble(seconds);
    if (PyErr_Occurred()) return nullptr;
    return done(self, [&](colls_comm c) { return colls_set_timeout(c, s); });
}
/// (text, name of the call): refuses the call, as `call` does with wrong arguments.
PyObject* comm_refuse(PyObject* self, PyObject* arguments) {
    const char *call = nullptr, *why = nullptr;
    if (!PyArg_ParseTuple(arguments, "ss", &call, &why)) return nullptr;
    return refuse(reinterpret_cast<comm_object*>(self), call, why);
}
/// (out): the rank from which it came.
PyObject* comm_recv_any(PyObject* self, PyObject* object) {
    array out;
    if (!out.take(object, true, "out"))
        return refuse_with_raised(reinterpret_cast<comm_object*>(self), "recv_any", true);
    colls_options options = COLLS_OPTIONS_INIT;
    options.out_layout = out.layout();
    int source = -1;
    PyObject* const none = done(self,
        [&](colls_comm c) { return colls_recv_any(c, out.data(), out.count(), out.type().code, &options, &source); });
    if (none == nullptr) return nullptr;
    Py_DECREF(none);
    return PyLong_FromLong(source);
}
PyObject* comm_probe_any(PyObject* self, PyObject*) {
    int source = -1;
    PyObject* const none = done(self, [&](colls_comm c) { return colls_probe_any(c, &source); });
    if (none == nullptr) return nullptr;
    Py_DECREF(none);
    return PyLong_FromLong(source);
}
/// (x, to, out, from)
PyObject* comm_exchange(PyObject* self, PyObject* arguments) {
    PyObject *in_object = nullptr, *out_object = nullptr;
    int to = 0, from = 0;
    if (!PyArg_ParseTuple(arguments, "OiOi", &in_object, &to, &out_object, &from)) return nullptr;
    array in, out;
    const bool taken = in.take(in_object, false, "x") && out.take(out_object, true, "out");
    if (!taken || !have_same_type(in, out))
        return refuse_with_raised(reinterpret_cast<comm_object*>(self), "exchange", true);
    colls_options options = COLLS_OPTIONS_INIT;
    options.in_layout = in.layout();
    options.out_layout = out.layout();
    PyObject* const none = done(self, [&](colls_comm c) {
        return colls_exchange(c, in.data(), in.count(), to, out.data(), out.count(), from, in.type().code, &options);
    });
    if (none == nullptr) return nullptr;
    Py_DECREF(none);
    return Py_NewRef(out_object);
}
PyObject* comm_allocate(PyObject* self, PyObject* bytes) {
    const Py_ssize_t n = PyLong_AsSsize_t(bytes);
    if (PyErr_Occurred()) return nullptr;
    void* data = nullptr;
    PyObject* const none =
        done(self, [&](colls_comm c) { return colls_allocate(c, static_cast<std::size_t>(n), &data); });
    if (none == nullptr) return nullptr;
    Py_DECREF(none);
    auto* const memory = PyObject_New(memory_object, memory_type);
    if (memory == nullptr) return nullptr;
    memory->data = data;
    memory->bytes = n;
    return reinterpret_cast<PyObject*>(memory);
}

// Memory that ranks reach directly, as a buffer

void memory_dealloc(PyObject* self) {
    colls_deallocate(&reinterpret_cast<memory_object*>(self)->data);
    PyTypeObject* const type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}
int memory_buffer(PyObject* self, Py_buffer* view, int flags) {
    auto* const m = reinterpret_cast<memory_object*>(self);
    return PyBuffer_FillInfo(view, self, m->data, m->bytes, 0, flags);
}

// Operators

/// Calls the function of an operator, as a colls_function.
void fold(const void* in, void* inout, std::size_t count, void* context) {
    auto* const op = static_cast<op_object*>(context);
    const PyGILState_STATE state = PyGILState_Ensure();
    if (op->raised == nullptr) {
        const auto bytes = static_cast<Py_ssize_t>(count * op->bytes);
        PyObject* const lower = PyMemoryView_FromMemory(static_cast<char*>(const_cast<void*>(in)), bytes, PyBUF_READ);
        PyObject* const upper = PyMemoryView_FromMemory(static_cast<char*>(inout), bytes, PyBUF_WRITE);
        PyObject* const result =
            lower && upper ? PyObject_CallFunctionObjArgs(op->function, lower, upper, nullptr) : nullptr;
        if (result == nullptr) {
            PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
            PyErr_Fetch(&type, &value, &trace);
            PyErr_NormalizeException(&type, &value, &trace);
            if (trace != nullptr) PyException_SetTraceback(value, trace);
            op->raised = value;
            Py_XDECREF(type);
            Py_XDECREF(trace);
        }
        Py_XDECREF(result);
        Py_XDECREF(lower);
        Py_XDECREF(upper);
    }
    PyGILState_Release(state);
}
PyObject* new_op() {
    auto* const op = PyObject_New(op_object, op_type);
    if (op == nullptr) return nullptr;
    op->code = COLLS_SUM;
    op->function = op->dtype = op->raised = nullptr;
    op->bytes = 0;
    return reinterpret_cast<PyObject*>(op);
}
/// (factor): a sum of every rank's contribution times it.
PyObject* premul_sum(PyObject*, PyObject* factor) {
    PyObject* const made = new_op();
    if (made == nullptr) return nullptr;
    auto* const op = reinterpret_cast<op_object*>(made);
    const bool whole = PyLong_Check(factor);
    const std::int64_t i = whole ? PyLong_AsLongLong(factor) : 0;
    const double d = whole ? 0 : PyFloat_AsDouble(factor);
    if (!PyErr_Occurred() &&
        (whole ? colls_premul_sum_integer(i, &op->code) : colls_premul_sum(d, &op->code)) != COLLS_OK)
        raise_latest();
    if (!PyErr_Occurred()) return made;
    Py_DECREF(made);
    return nullptr;
}
/// (function of two memoryviews, dtype, bytes of an element, commutative, name)
PyObject* op_function(PyObject*, PyObject* arguments) {
    PyObject *function = nullptr, *dtype = nullptr;
    Py_ssize_t bytes = 0;
    int commutative = 0;
    const char* name = nullptr;
    if (!PyArg_ParseTuple(arguments, "OOnps", &function, &dtype, &bytes, &commutative, &name)) return nullptr;
    PyObject* const made = new_op();
    if (made == nullptr) return nullptr;
    auto* const op = reinterpret_cast<op_object*>(made);
    op->function = Py_NewRef(function);
    op->dtype = Py_NewRef(dtype);
    op->bytes = static_cast<std::size_t>(bytes);
    if (colls_op_function(fold, op, commutative, name, &op->code) == COLLS_OK) return made;
    Py_DECREF(made);
    return raise_latest();
}
void op_dealloc(PyObject* self) {
    auto* const op = reinterpret_cast<op_object*>(self);
    if (op->code != COLLS_SUM) colls_op_free(&op->code);
    Py_XDECREF(op->function);
    Py_XDECREF(op->dtype);
    Py_XDECREF(op->raised);
    PyTypeObject* const type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

// Requests and plans

/// Else an exception is set.
bool ended_well(call_object* r, colls_status s) {
    if (raised_by_operator(r->comm, r->op) == nullptr && s == COLLS_OK) return true;
    if (!PyErr_Occurred()) raise_latest();
    if (r->request == nullptr) {  // else an interrupt, and the request goes on
        PyObject *type = nullptr, *trace = nullptr;
        PyErr_Fetch(&type, &r->failure, &trace);
        PyErr_NormalizeException(&type, &r->failure, &trace);
        PyErr_Restore(type, Py_NewRef(r->failure), trace);
    }
    return false;
}
/// Raises again what a request has failed with.
bool has_failed(call_object* r) {
    if (r->failure == nullptr) return false;
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(r->failure)), r->failure);
    return true;
}
/// Is it over, after at most `limit` seconds? 1 or 0; -1: an exception is set. Signals are handled meanwhile, and after
/// one that raises the request goes on.
int over_within(call_object* r, double limit) {
    constexpr double slice = 0.1;
    if (has_failed(r)) return -1;
    for (double waited = 0; r->request != nullptr;) {
        const double now = std::fmin(slice, limit - waited);
        int is_over = 0;
        colls_status s;
        {
            const in_library free(r->comm);
            s = now > 0 ? colls_wait_for(&r->request, now, &is_over) : colls_test(&r->request, &is_over);
        }
        if (s != COLLS_OK || is_over) return ended_well(r, s) ? 1 : -1;
        if (PyErr_CheckSignals() != 0) return -1;
        if (!(now > 0)) return 0;
        waited += now;
    }
    return 1;
}
PyObject* request_wait(PyObject* self, PyObject* arguments, PyObject* named) {
    auto* const r = reinterpret_cast<call_object*>(self);
    char timeout[] = "timeout";
    char* names[] = {timeout, nullptr};
    PyObject* seconds = Py_None;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "|O", names, &seconds)) return nullptr;
    const double limit = seconds == Py_None ? INFINITY : PyFloat_AsDouble(seconds);
    if (PyErr_Occurred()) return nullptr;
    const int is_over = over_within(r, limit);
    if (is_over == 0)
        PyErr_Format(PyExc_TimeoutError, "colls: the request is not over after %S s, and goes on: wait again", seconds);
    return is_over == 1 ? Py_NewRef(r->result) : nullptr;
}
PyObject* request_test(PyObject* self, PyObject*) {
    const int is_over = over_within(reinterpret_cast<call_object*>(self), 0);
    return is_over < 0 ? nullptr : PyBool_FromLong(is_over);
}
PyObject* request_result(PyObject* self, void*) { return Py_NewRef(reinterpret_cast<call_object*>(self)->result); }
PyObject* plan_run(PyObject* self, PyObject*) {
    auto* const p = reinterpret_cast<call_object*>(self);
    colls_status s;
    {
        const without_lock free(p->comm);
        s = colls_plan_run(p->plan);
    }
    if (raised_by_operator(p->comm, p->op)) return nullptr;
    if (s != COLLS_OK) return raise_latest();
    return Py_NewRef(p->result);
}
PyObject* plan_call(PyObject* self, PyObject*, PyObject*) { return plan_run(self, nullptr); }
PyObject* plan_start(PyObject* self, PyObject*) {
    auto* const p = reinterpret_cast<call_object*>(self);
    look_after_dropped(p->comm);
    colls_request request = nullptr;
    colls_status s;
    {
        const without_lock free(p->comm);
        s = colls_plan_start(p->plan, &request);
    }
    if (raised_by_operator(p->comm, p->op)) return nullptr;
    if (s != COLLS_OK) return raise_latest();
    PyObject* const made = new_call(request_type, p->comm, p->in, p->out, p->op, p->result);
    if (made != nullptr) reinterpret_cast<call_object*>(made)->request = request;
    return made;
}
void call_dealloc(PyObject* self) {
    auto* const c = reinterpret_cast<call_object*>(self);
    if (c->request != nullptr && !is_known_over(c, nullptr)) {  // its arrays may be in use
        PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
        PyErr_Fetch(&type, &value, &trace);
        PyObject* const kept = new_call(request_type, c->comm, c->in, c->out, c->op, c->result);
        if (kept != nullptr) {
            reinterpret_cast<call_object*>(kept)->request = std::exchange(c->request, nullptr);
            keep_until_over(kept);
        }
        if (PyErr_WarnEx(PyExc_ResourceWarning,
                "a request of colls was dropped before it was over: keep it, and call its wait()", 1) != 0)
            PyErr_WriteUnraisable(nullptr);
        PyErr_Restore(type, value, trace);
    }
    if (c->plan != nullptr) {
        const in_library free;
        colls_plan_free(&c->plan);
    }
    Py_DECREF(c->comm);
    Py_XDECREF(c->in);
    Py_XDECREF(c->out);
    Py_XDECREF(c->op);
    Py_XDECREF(c->result);
    Py_XDECREF(c->failure);
    PyTypeObject* const type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

// Groups

/// What Python's functions of a store or an exchange have raised, in the group that is being formed.
struct callback {
    PyObject *first, *second = nullptr;
    int size = 0;
    PyObject* raised = nullptr;

    /// 1 if it has raised.
    int keep() {
        PyObject *type = nullptr, *trace = nullptr;
        PyObject* value = nullptr;
        PyErr_Fetch(&type, &value, &trace);
        PyErr_NormalizeException(&type, &value, &trace);
        Py_XDECREF(type);
        Py_XDECREF(trace);
        Py_XDECREF(std::exchange(raised, value));
        return 1;
    }
};
int set_of_caller(void* context, const char* key, const void* value, std::size_t bytes) {
    const PyGILState_STATE state = PyGILState_Ensure();
    auto* const c = static_cast<callback*>(context);
    PyObject* const result =
        PyObject_CallFunction(c->first, "sy#", key, static_cast<const char*>(value), static_cast<Py_ssize_t>(bytes));
    const int status = result ? 0 : c->keep();
    Py_XDECREF(result);
    PyGILState_Release(state);
    return status;
}
/// Copies `bytes` bytes of an object that must have as many.
int copy_bytes(callback* c, PyObject* from, void* to, std::size_t bytes, const char* what) {
    char* data = nullptr;
    Py_ssize_t length = 0;
    if (PyBytes_AsStringAndSize(from, &data, &length) != 0) return c->keep();
    if (static_cast<std::size_t>(length) != bytes) {
        PyErr_Format(PyExc_ValueError, "%s has returned %zd bytes and not %zu", what, length, bytes);
        return c->keep();
    }
    std::memcpy(to, data, bytes);
    return 0;
}
int get_of_caller(void* context, const char* key, void* value, std::size_t bytes) {
    const PyGILState_STATE state = PyGILState_Ensure();
    auto* const c = static_cast<callback*>(context);
    PyObject* const result = PyObject_CallFunction(c->second, "s", key);
    const int status = result ? copy_bytes(c, result, value, bytes, "the store's get") : c->keep();
    Py_XDECREF(result);
    PyGILState_Release(state);
    return status;
}
int all_gather_of_caller(void* context, const void* own, std::size_t bytes, void* all) {
    const PyGILState_STATE state = PyGILState_Ensure();
    auto* const c = static_cast<callback*>(context);
    PyObject* const result =
        PyObject_CallFunction(c->first, "y#", static_cast<const char*>(own), static_cast<Py_ssize_t>(bytes));
    PyObject* const list = result ? PySequence_List(result) : nullptr;
    int status = list ? 0 : c->keep();
    if (list != nullptr && PyList_Size(list) != c->size) {
        PyErr_Format(
            PyExc_ValueError, "the all_gather has returned %zd values for %d ranks", PyList_Size(list), c->size);
        status = c->keep();
    }
    for (int r = 0; r < c->size && status == 0; ++r)
        status = copy_bytes(c, PyList_GetItem(list, r), static_cast<char*>(all) + static_cast<std::size_t>(r) * bytes,
            bytes, "the all_gather");
    Py_XDECREF(list);
    Py_XDECREF(result);
    PyGILState_Release(state);
    return status;
}
PyObject* formed(colls_status s, colls_comm comm, PyObject* raised = nullptr) {
    if (s == COLLS_OK) {
        Py_XDECREF(raised);
        return new_comm(comm);
    }
    if (raised == nullptr) return raise_latest();
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised)), raised);
    Py_DECREF(raised);
    return nullptr;
}
/// (rank, size, set, get, name)
PyObject* bootstrap_store(PyObject*, PyObject* arguments) {
    callback c{};
    int rank = 0;
    const char* name = nullptr;
    if (!PyArg_ParseTuple(arguments, "iiOOs", &rank, &c.size, &c.first, &c.second, &name)) return nullptr;
    const colls_store store = {sizeof store, &c, set_of_caller, get_of_caller};
    colls_comm comm = nullptr;
    const colls_status s = without_interpreter([&] { return colls_bootstrap(rank, c.size, &store, name, &comm); });
    return formed(s, comm, c.raised);
}
/// (rank, size, all_gather)
PyObject* bootstrap_exchange(PyObject*, PyObject* arguments) {
    callback c{};
    int rank = 0;
    if (!PyArg_ParseTuple(arguments, "iiO", &rank, &c.size, &c.first)) return nullptr;
    colls_comm comm = nullptr;
    const colls_status s =
        without_interpreter([&] { return colls_bootstrap_exchange(rank, c.size, all_gather_of_caller, &c, &comm); });
    return formed(s, comm, c.raised);
}
/// What no function of Python takes part in: in a thread, so that the main one can handle an interrupt meanwhile.
PyObject* form_in_thread(interrupts::form_group f) {
    if (!interrupts::is_main()) {
        colls_comm comm = nullptr;
        const colls_status s = without_interpreter([&] { return f(&comm); });
        return formed(s, comm);
    }
    interrupts::forming forming(std::move(f));
    for (bool is_over = false; !is_over;) {
        is_over = without_interpreter([&] { return forming.wait(0.05); });
        if (PyErr_CheckSignals() != 0) return nullptr;
    }
    const interrupts::outcome o = forming.take();
    if (o.status == COLLS_OK) return new_comm(o.comm);
    return raise_error(o.text.c_str(), o.status, o.rank, o.peer);
}
PyObject* world(PyObject*, PyObject*) { return form_in_thread(colls_world); }
/// (rank, size, host, port, token)
PyObject* world_at(PyObject*, PyObject* arguments) {
    int rank = 0, size = 0, port = 0;
    const char *host = nullptr, *token = nullptr;
    if (!PyArg_ParseTuple(arguments, "iisis", &rank, &size, &host, &port, &token)) return nullptr;
    return form_in_thread([rank, size, port, host = std::string(host), token = std::string(token)](colls_comm* comm) {
        return colls_world_at(rank, size, host.c_str(), port, token.c_str(), comm);
    });
}
/// (rank, size, folder, name)
PyObject* bootstrap_folder(PyObject*, PyObject* arguments) {
    int rank = 0, size = 0;
    const char *folder = nullptr, *name = nullptr;
    if (!PyArg_ParseTuple(arguments, "iiss", &rank, &size, &folder, &name)) return nullptr;
    return form_in_thread([rank, size, folder = std::string(folder), name = std::string(name)](colls_comm* comm) {
        return colls_bootstrap_folder(rank, size, folder.c_str(), name.c_str(), comm);
    });
}

// The module

/// (error, type_code, ops)
PyObject* set_parts(PyObject*, PyObject* arguments) {
    PyObject *error = nullptr, *type_code = nullptr, *ops = nullptr;
    if (!PyArg_ParseTuple(arguments, "OOO", &error, &type_code, &ops)) return nullptr;
    parts = {Py_NewRef(error), Py_NewRef(type_code), Py_NewRef(ops), PyUnicode_InternFromString("dtype")};
    Py_RETURN_NONE;
}
/// (identifier of Python's main thread): at import, and in a forked child.
PyObject* set_main(PyObject*, PyObject* thread) {
    const unsigned long t = PyLong_AsUnsignedLong(thread);
    if (PyErr_Occurred()) return nullptr;
    interrupts::set_main(t);
    threads_in_library = 0;  // a child has none of the others
    Py_RETURN_NONE;
}
/// The code of k bytes of any meaning.
PyObject* bytes_code(PyObject*, PyObject* k) {
    const std::size_t n = PyLong_AsSize_t(k);
    if (PyErr_Occurred()) return nullptr;
    return PyLong_FromUnsignedLongLong(colls_bytes(n));
}
PyObject* version(PyObject*, PyObject*) { return PyLong_FromLong(colls_version()); }

template <class F>
PyCFunction function_of(F* f) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

template <class F>
void* slot_of(F* f) {
    return reinterpret_cast<void*>(f);
}
/// Python copies it.
void* text_of(const char* text) { return const_cast<char*>(text); }

PyMethodDef comm_methods[] = {
    {"call", function_of(comm_call), METH_FASTCALL, nullptr},
    {"rank", comm_rank, METH_NOARGS, nullptr},
    {"size", comm_size, METH_NOARGS, nullptr},
    {"close", comm_close, METH_NOARGS, nullptr},
    {"split", comm_split, METH_VARARGS, nullptr},
    {"shrink", comm_shrink, METH_NOARGS, nullptr},
    {"abort", comm_abort, METH_O, nullptr},
    {"dump", comm_dump, METH_NOARGS, nullptr},
    {"set_timeout", comm_set_timeout, METH_O, nullptr},
    {"refuse", comm_refuse, METH_VARARGS, nullptr},
    {"recv_any", comm_recv_any, METH_O, nullptr},
    {"probe_any", comm_probe_any, METH_NOARGS, nullptr},
    {"exchange", comm_exchange, METH_VARARGS, nullptr},
    {"allocate", comm_allocate, METH_O, nullptr},
    {},
};
PyMethodDef request_methods[] = {
    {"wait", function_of(request_wait), METH_VARARGS | METH_KEYWORDS,
        "wait(timeout=None)\n\nWaits until it is over; returns the array with the result. If that takes longer than "
        "`timeout` seconds, raises\nTimeoutError, and the request goes on; so it does after KeyboardInterrupt."},
    {"test", request_test, METH_NOARGS, "test()\n\nAdvances it without waiting: is it over?"},
    {},
};
PyGetSetDef request_properties[] = {
    {"result", request_result, nullptr, "The array that has the result once it is over.", nullptr},
    {},
};
PyMethodDef plan_methods[] = {
    {"run", plan_run, METH_NOARGS, "run()\n\nMakes the call; returns the array with the result."},
    {"start", plan_start, METH_NOARGS,
        "start()\n\nStarts the call; returns a request. The next run or start needs this request to be over."},
    {},
};
PyType_Slot comm_slots[] = {
    {Py_tp_dealloc, slot_of(comm_dealloc)},
    {Py_tp_methods, comm_methods},
    {},
};
PyType_Slot op_slots[] = {
    {Py_tp_dealloc, slot_of(op_dealloc)},
    {Py_tp_doc, text_of("An operator of the program: of colls.premul_sum or colls.operator.")},
    {},
};
PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, slot_of(memory_dealloc)},
    {Py_bf_getbuffer, slot_of(memory_buffer)},
    {},
};
PyType_Slot request_slots[] = {
    {Py_tp_dealloc, slot_of(call_dealloc)},
    {Py_tp_methods, request_methods},
    {Py_tp_getset, request_properties},
    {Py_tp_doc,
        text_of("A call or message that was started. All ranks start their collectives in the same order, and wait "
                "in any order.\nIts arrays are kept until it is over. A group has 32 places for requests.")},
    {},
};
PyType_Slot plan_slots[] = {
    {Py_tp_dealloc, slot_of(call_dealloc)},
    {Py_tp_methods, plan_methods},
    {Py_tp_call, slot_of(plan_call)},
    {Py_tp_doc,
        text_of("A prepared call: plan() costs the collective alone. All ranks run and start their plans in the "
                "same order.\nIts arrays are kept as long as it is.")},
    {},
};
PyMethodDef functions[] = {
    {"set_parts", set_parts, METH_VARARGS, nullptr},
    {"set_main", set_main, METH_O, nullptr},
    {"world", world, METH_NOARGS, nullptr},
    {"world_at", world_at, METH_VARARGS, nullptr},
    {"bootstrap_folder", bootstrap_folder, METH_VARARGS, nullptr},
    {"bootstrap_store", bootstrap_store, METH_VARARGS, nullptr},
    {"bootstrap_exchange", bootstrap_exchange, METH_VARARGS, nullptr},
    {"premul_sum", premul_sum, METH_O, nullptr},
    {"op_function", op_function, METH_VARARGS, nullptr},
    {"bytes_code", bytes_code, METH_O, nullptr},
    {"version", version, METH_NOARGS, nullptr},
    {},
};
PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT, "colls._core", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

/// A type that only this module makes objects of.
PyTypeObject* new_type(PyObject* module, const char* name, std::size_t bytes, PyType_Slot* slots) {
    PyType_Spec spec = {name, static_cast<int>(bytes), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, slots};
    PyObject* const type = PyType_FromSpec(&spec);
    if (type == nullptr || PyModule_AddObjectRef(module, std::strrchr(name, '.') + 1, type) != 0) return nullptr;
    return reinterpret_cast<PyTypeObject*>(type);
}

}  // namespace

}  // namespace colls_python

PyMODINIT_FUNC PyInit__core() {
    using namespace colls_python;
    if (colls_check_abi(COLLS_C_ABI) != COLLS_OK) {
        PyErr_SetString(PyExc_ImportError, colls_error_text());
        return nullptr;
    }
    PyObject* const module = PyModule_Create(&module_definition);
    if (module == nullptr) return nullptr;
    comm_type = new_type(module, "colls._core.Comm", sizeof(comm_object), comm_slots);
    op_type = new_type(module, "colls.Operator", sizeof(op_object), op_slots);
    memory_type = new_type(module, "colls._core.Memory", sizeof(memory_object), memory_slots);
    request_type = new_type(module, "colls.Request", sizeof(call_object), request_slots);
    plan_type = new_type(module, "colls.Plan", sizeof(call_object), plan_slots);
    if (comm_type && op_type && memory_type && request_type && plan_type) return module;
    Py_DECREF(module);
    return nullptr;
}
