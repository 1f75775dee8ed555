// colls for C, and for all languages that call C: groups of ranks, collectives and messages between them.
//
//   colls_comm comm;
//   if (colls_world(&comm) != COLLS_OK) { fputs(colls_error_text(), stderr); return 1; }
//   colls_all_reduce(comm, x, x, 1000, COLLS_FLOAT32, COLLS_SUM, NULL);   // in place
//   colls_comm_free(&comm);
//
// Terms. n is the number of ranks of a group; ranks are 0 to n - 1.
//   Status     Every function returns one, but those that only read a number or a text. Where it is not COLLS_OK,
//              colls_error_text() says which rank, what is wrong, where, and what to do; results are not set.
//   Handle     A communicator, request, plan, layout or operator. NULL, or 0, is none. A function that ends one takes
//              its address and sets it to none. One that was freed, or is of another kind, is refused
//              (COLLS_INVALID_HANDLE), unless some millions of handles were made since.
//   Buffer     Elements in a row, unless colls_options gives a layout. Counts are in elements, and may be 0; then the
//              pointer may be NULL. A count that was negative before it became a size_t is refused.
//   Block      Where a buffer has a block for each rank, the blocks lie one after the other in rank order. Of m
//              elements the first m % n blocks have m / n + 1, the others m / n; so all are equal where n divides m.
//              The calls ..._v take the length of every block instead.
//   In place   The same pointer as input and output. Where one of the two is a single block: the rank's own block
//              within the other. Buffers that overlap otherwise are refused.
//   Forms      colls_X returns when the call is over on this rank. colls_start_X starts it and makes a request, to be
//              waited for; colls_prepare_X checks it and makes a plan, to be run many times. Buffers must outlive
//              requests and plans; counts, displacements, options, layouts and operators need not, but what an
//              operator's `context` points to must.
//   Options    NULL: the library chooses the schedule, and elements lie in a row.
// All ranks of a group make the same collective calls in the same order; the library checks that they do. One thread at
// a time uses a communicator, with its requests and plans. A handle is not used while another thread frees it.
//
// This header is C11 and C++. Structs grow at their end, and say by `size` how long the caller knows them to be.
#ifndef COLLS_H
#define COLLS_H

#include <stddef.h>
#include <stdint.h>

/// The number of this header. A library of another number may differ in anything: colls_check_abi() compares.
#define COLLS_C_ABI 0

#if defined(__GNUC__)
#define COLLS_API __attribute__((visibility("default")))
#else
#define COLLS_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Errors

/// What has gone wrong. After COLLS_MISMATCH, COLLS_TIMEOUT and COLLS_PEER_FAILED the group is broken on every rank,
/// and colls_shrink makes a new one. After the others it is as before, and nothing has moved.
typedef enum colls_status {
    COLLS_OK = 0,
    COLLS_INVALID_ARGUMENT = 1,  ///< this rank's own arguments are wrong
    COLLS_UNSUPPORTED = 2,       ///< the schedule does not work for this group size or operator
    COLLS_WRONG_SCHEDULE = 3,    ///< the proof rejects the schedule
    COLLS_MISMATCH = 4,          ///< the ranks have made different calls
    COLLS_TIMEOUT = 5,           ///< a rank did not take part within the deadline
    COLLS_PEER_FAILED = 6,       ///< a rank has died, left the group, or reported an error
    COLLS_INVALID_HANDLE = 7,    ///< a handle is none, was freed, or is of another kind
    COLLS_OUT_OF_MEMORY = 8,     ///< there is not enough memory
    COLLS_STORE_FAILED = 9,      ///< a function of the caller's colls_store has reported an error
    COLLS_INTERNAL = 10          ///< the system, or the library: the text says which
} colls_status;

/// "mismatch" for COLLS_MISMATCH; "unknown" for a number that is no status. Static.
COLLS_API const char* colls_status_name(colls_status status);
/// The text of the latest error of the calling thread; "" before the first. Valid until its next one.
COLLS_API const char* colls_error_text(void);
/// That error's status; the rank that has it; the rank that it is about, such as the one that has died; the round of
/// the schedule. -1 where there is none.
COLLS_API colls_status colls_error_status(void);
COLLS_API int colls_error_rank(void);
COLLS_API int colls_error_peer(void);
COLLS_API int colls_error_round(void);
/// The latest 64 calls of this rank on the group before that error, in lines; "" where it was found before the call
/// began. Valid as colls_error_text().
COLLS_API const char* colls_error_calls(void);

// Versions

/// The version of the library: 10000 major + 100 minor + patch.
COLLS_API int colls_version(void);
/// COLLS_C_ABI of the library.
COLLS_API int colls_abi(void);
/// Refuses (COLLS_INVALID_ARGUMENT) a header of another ABI: call colls_check_abi(COLLS_C_ABI) first.
COLLS_API colls_status colls_check_abi(int abi);

// Groups

/// One rank's membership in a group.
typedef struct colls_comm_handle* colls_comm;

/// The group of all ranks that mpirun, mpiexec, srun or torchrun has started, or of those whose environment has
/// COLLS_RANK and COLLS_SIZE; one rank without any of these. Shared memory within a host, TCP between hosts
/// (COLLS_TRANSPORT chooses otherwise). Collective: every rank calls it within COLLS_TIMEOUT seconds.
COLLS_API colls_status colls_world(colls_comm* comm);
/// The same with what else the environment says: this rank, the number of ranks, the name or address of the host at
/// which rank 0 listens, its port (1 to 65535), and a secret of the job, alike on all ranks but `rank`.
COLLS_API colls_status colls_world_at(
    int rank, int size, const char* host, int port, const char* token, colls_comm* comm);

/// A key/value store of the caller, which all members of a group reach: etcd, Redis, torch's TCPStore, ... A function
/// returns 0, or another number for an error (COLLS_STORE_FAILED, with that number in the text).
typedef struct colls_store {
    size_t size;    ///< sizeof(colls_store)
    void* context;  ///< passed to both
    /// Stores `bytes` bytes, at most 64, under a key that has no value yet.
    int (*set)(void* context, const char* key, const void* value, size_t bytes);
    /// Waits until the key has a value, of `bytes` bytes, and copies it to `value`. To wait for too long is an error.
    int (*get)(void* context, const char* key, void* value, size_t bytes);
} colls_store;

/// A group of `size` processes, of which this is rank `rank`, over a store. `name` is the group's: keys begin with it,
/// and no other group may ever use it with this store. Needs no launcher, and no process but the members. Collective.
COLLS_API colls_status colls_bootstrap(
    int rank, int size, const colls_store* store, const char* name, colls_comm* comm);
/// The same over files in a folder that all members see, which exists. The files NAME... stay there: a later group
/// takes another name, or another folder. `name` has no slash. Waits for COLLS_TIMEOUT.
COLLS_API colls_status colls_bootstrap_folder(
    int rank, int size, const char* folder, const char* name, colls_comm* comm);
/// The same over an all_gather that the members have: `bytes` bytes, at most 64, from `own` of every member go to `all`
/// of every member, in rank order. It returns 0, or another number for an error (COLLS_STORE_FAILED).
COLLS_API colls_status colls_bootstrap_exchange(int rank, int size,
    int (*all_gather)(void* context, const void* own, size_t bytes, void* all), void* context, colls_comm* comm);

/// This rank, 0 to n - 1.
COLLS_API colls_status colls_rank(colls_comm comm, int* rank);
/// n.
COLLS_API colls_status colls_size(colls_comm comm, int* size);
/// Divides the group: ranks with the same `color` form one, ordered by `key`, then by their rank here. A negative color
/// joins none: `part` is then NULL. With color 0 and key 0 on all ranks it is a duplicate. Collective.
COLLS_API colls_status colls_split(colls_comm comm, int color, int key, colls_comm* part);
/// After an error: a group of the ranks that still call it, in their order. The old one ends, but for its handle, which
/// is yet to be freed. Collective among these; a rank that does not call it within the deadline is left out.
COLLS_API colls_status colls_shrink(colls_comm comm, colls_comm* rest);
/// Breaks the group: the current or the next call of every rank is COLLS_PEER_FAILED, with a text that quotes `why`.
COLLS_API colls_status colls_abort(colls_comm comm, const char* why);
/// For bindings, which find in their own arguments what is wrong: refuses `call` (such as "all_reduce") as the library
/// does, always with COLLS_INVALID_ARGUMENT. The ranks that wait for this one in a collective get to know `why`.
COLLS_API colls_status colls_refuse(colls_comm comm, const char* call, const char* why);
/// Sets the deadline of this rank's waits on this communicator, and on those split from it later, in seconds above 0;
/// INFINITY: none. By default COLLS_TIMEOUT, 300.
COLLS_API colls_status colls_set_timeout(colls_comm comm, double seconds);
/// Prints to stderr in which call every rank is, and for which rank it waits.
COLLS_API colls_status colls_dump(colls_comm comm);
/// Frees the handle. The rank leaves the group when its requests and plans are freed, too. None: COLLS_OK.
COLLS_API colls_status colls_comm_free(colls_comm* comm);

/// Memory of `bytes` bytes that ranks reach directly where they share memory, so that calls move its data faster;
/// aligned to 128 bytes. It may outlive the communicator.
COLLS_API colls_status colls_allocate(colls_comm comm, size_t bytes, void** data);
/// Frees memory of colls_allocate, and sets `*data` to NULL. NULL: COLLS_OK.
COLLS_API colls_status colls_deallocate(void** data);

// Element types

/// One of the codes below, or colls_bytes(k).
typedef uint64_t colls_type;
enum {
    COLLS_INT8 = 0,
    COLLS_INT16 = 1,
    COLLS_INT32 = 2,
    COLLS_INT64 = 3,
    COLLS_UINT8 = 4,
    COLLS_UINT16 = 5,
    COLLS_UINT32 = 6,
    COLLS_UINT64 = 7,
    COLLS_HALF = 8,      ///< 16 bits, IEEE 754
    COLLS_BFLOAT16 = 9,  ///< the upper 16 bits of a float
    COLLS_FLOAT32 = 10,
    COLLS_FLOAT64 = 11,
    COLLS_LONG_DOUBLE = 12,
    COLLS_COMPLEX_FLOAT32 = 13,
    COLLS_COMPLEX_FLOAT64 = 14,
    COLLS_BOOL = 15,           ///< of one byte, 0 or 1
    COLLS_FLOAT32_INDEX = 16,  ///< struct { float value; int index; }, for COLLS_MINLOC and COLLS_MAXLOC
    COLLS_FLOAT64_INDEX = 17,  ///< struct { double value; int index; }
    COLLS_INT16_INDEX = 18,    ///< struct { short value; int index; }
    COLLS_INT32_INDEX = 19,    ///< struct { int value; int index; }
    COLLS_INT64_INDEX = 20,    ///< struct { long value; int index; }
    COLLS_LONG_DOUBLE_INDEX = 21,
    COLLS_BYTES = 22  ///< one byte of any meaning
};
/// An element of k bytes of any meaning, k from 1 to 2^55. Bitwise operators and functions of the caller reduce it.
COLLS_API colls_type colls_bytes(size_t k);
/// Bytes of an element.
COLLS_API colls_status colls_type_size(colls_type type, size_t* size);

// Operators

/// One of the codes below, or one of colls_premul_sum, colls_premul_sum_integer and colls_op_function.
typedef uint64_t colls_op;
enum {
    COLLS_SUM = 0,          ///< of integers, wrapping; of floating-point and complex numbers; of bool: or
    COLLS_PROD = 1,         ///< as sum; of bool: and
    COLLS_MIN = 2,          ///< of integers and floating-point numbers; of bool: and
    COLLS_MAX = 3,          ///< of integers and floating-point numbers; of bool: or
    COLLS_AVG = 4,          ///< of all numbers but bool; not in scans
    COLLS_LOGICAL_AND = 6,  ///< of integers and bool
    COLLS_LOGICAL_OR = 7,
    COLLS_LOGICAL_XOR = 8,
    COLLS_BIT_AND = 9,  ///< of integers, bool and bytes
    COLLS_BIT_OR = 10,
    COLLS_BIT_XOR = 11,
    COLLS_MINLOC = 12,  ///< of the types ..._INDEX
    COLLS_MAXLOC = 13,
    COLLS_EXACT = 14  ///< a sum whose bits do not depend on the order; of HALF to FLOAT64, blocking, not in scans
};
/// Folds two vectors: inout[i] = in[i] op inout[i] for all i below count; `in` is the contribution of the lower rank.
/// The two do not overlap. It is called for any part of the elements, must not call this library, and must return. It
/// must be associative.
typedef void (*colls_function)(const void* in, void* inout, size_t count, void* context);

/// The sum of every rank's contribution times `factor`, which may differ between ranks; of all numbers but bool.
COLLS_API colls_status colls_premul_sum(double factor, colls_op* op);
COLLS_API colls_status colls_premul_sum_integer(int64_t factor, colls_op* op);
/// A function of the caller, of every type. `commutative` (0 or 1): operands may be swapped; else contributions are
/// folded in rank order. Ranks compare their calls by `name`, which is the same on all of them.
COLLS_API colls_status colls_op_function(
    colls_function function, void* context, int commutative, const char* name, colls_op* op);
/// Frees an operator of the three functions above, and sets it to COLLS_SUM. Codes: COLLS_OK.
COLLS_API colls_status colls_op_free(colls_op* op);

// Layouts, for buffers whose elements do not lie in a row

/// Blocks of memory, in the order in which a call takes them, and the extent after which they repeat: a buffer with a
/// layout has `count` repetitions of it. To the call its elements are as if they lay in a row.
typedef struct colls_layout_handle* colls_layout;
/// What the numbers of a layout count: elements of the call's type, or bytes.
typedef int colls_unit;
enum { COLLS_ELEMENTS = 0, COLLS_UNIT_BYTES = 1 };

/// One block of `length` units, which is also the extent.
COLLS_API colls_status colls_layout_contiguous(size_t length, colls_unit unit, colls_layout* layout);
/// `blocks` blocks of `length` units, each `stride` units after the one before.
COLLS_API colls_status colls_layout_vector(
    size_t blocks, size_t length, size_t stride, colls_unit unit, colls_layout* layout);
/// Block i of `blocks` begins at offsets[i] and has lengths[i] units. Both are copied.
COLLS_API colls_status colls_layout_indexed(
    size_t blocks, const size_t* offsets, const size_t* lengths, colls_unit unit, colls_layout* layout);
/// Another layout `times` times, each `stride` units after the one before.
COLLS_API colls_status colls_layout_repeated(colls_layout of, size_t times, size_t stride, colls_layout* layout);
/// The blocks of another layout with another extent, in units: with 1 the columns of a matrix follow each other.
COLLS_API colls_status colls_layout_with_extent(colls_layout of, size_t extent, colls_layout* layout);
/// Frees it. None: COLLS_OK.
COLLS_API colls_status colls_layout_free(colls_layout* layout);

/// How data moves. Begin with COLLS_OPTIONS_INIT.
typedef struct colls_options {
    size_t size;           ///< sizeof(colls_options)
    const char* schedule;  ///< a family as COLLS_SCHEDULE names it: "ring", "tree<4>"; NULL: the library chooses
    int reproducible;      ///< 1: the bits of a result depend on the contributions alone
    // Each is of its own buffer alone, in place, too: without one a buffer's elements lie in a row. A count is of the
    // repetitions of the buffer's own layout, so where one count is of both buffers, an in_layout of three elements
    // needs an out_layout of three, such as colls_layout_contiguous(3, COLLS_ELEMENTS, ...).
    colls_layout in_layout;   ///< of the input; of broadcast, send and the sent buffer of exchange: of what is sent
    colls_layout out_layout;  ///< of the output; of recv, recv_any and the received buffer of exchange
} colls_options;
#define COLLS_OPTIONS_INIT {sizeof(colls_options), NULL, 0, NULL, NULL}

// Requests: calls and messages that were started

/// A started call or message. All ranks start their collectives in the same order, and wait in any order. A group has
/// 32 places for them. Each test and wait advances all requests of the thread.
typedef struct colls_request_handle* colls_request;

/// Waits until it is over, and frees it, after an error too. None: COLLS_OK.
COLLS_API colls_status colls_wait(colls_request* request);
/// The same for at most `seconds`, 0 or more: `*over` is 1, and the request freed, if it is over, else 0.
COLLS_API colls_status colls_wait_for(colls_request* request, double seconds, int* over);
/// Advances it without waiting: `*over` is 1, and the request freed, if it is over, else 0. None: 1.
COLLS_API colls_status colls_test(colls_request* request, int* over);
/// Waits for all of `count` requests, and frees them; some may be none. Where one fails it still waits for the others,
/// and then reports the first error.
COLLS_API colls_status colls_wait_all(size_t count, colls_request* requests);
/// Waits for one of `count` requests, frees it, and sets `*index` to its place; to -1 where all are none. After an
/// error, `*index` is the place of the one that has failed, which is freed.
COLLS_API colls_status colls_wait_any(size_t count, colls_request* requests, int* index);

// Plans: calls that were prepared

/// A prepared call, which costs the collective alone. All ranks run and start their plans in the same order.
typedef struct colls_plan_handle* colls_plan;

/// Makes the call, and returns when it is over.
COLLS_API colls_status colls_plan_run(colls_plan plan);
/// Starts the call. The next run or start needs this request to be over, as a test or wait has found.
COLLS_API colls_status colls_plan_start(colls_plan plan, colls_request* request);
/// Frees it; its last request may go on. None: COLLS_OK.
COLLS_API colls_status colls_plan_free(colls_plan* plan);

// Collectives. `type` is that of both buffers. `root` is the same on every rank.

/// Copies the root's buffer to every rank, on which it has the same count.
COLLS_API colls_status colls_broadcast(
    colls_comm comm, void* inout, size_t count, colls_type type, int root, const colls_options* options);
COLLS_API colls_status colls_start_broadcast(colls_comm comm, void* inout, size_t count, colls_type type, int root,
    const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_broadcast(colls_comm comm, void* inout, size_t count, colls_type type, int root,
    const colls_options* options, colls_plan* plan);

/// Hands block r of the root's input to rank r. Elsewhere the input is not read, and may be NULL with count 0. In
/// place: on the root, out is its own block of in.
COLLS_API colls_status colls_scatter(colls_comm comm, const void* in, size_t in_count, void* out, size_t out_count,
    colls_type type, int root, const colls_options* options);
COLLS_API colls_status colls_start_scatter(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, colls_type type, int root, const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_scatter(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, colls_type type, int root, const colls_options* options, colls_plan* plan);

/// Collects the input of rank r as block r of the root's output. Elsewhere the output is not written, and may be NULL
/// with count 0. In place: on the root, in is its own block of out.
COLLS_API colls_status colls_gather(colls_comm comm, const void* in, size_t in_count, void* out, size_t out_count,
    colls_type type, int root, const colls_options* options);
COLLS_API colls_status colls_start_gather(colls_comm comm, const void* in, size_t in_count, void* out, size_t out_count,
    colls_type type, int root, const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_gather(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, colls_type type, int root, const colls_options* options, colls_plan* plan);

/// Collects the input of rank r as block r of every rank's output. In place: in is the rank's own block of out.
COLLS_API colls_status colls_all_gather(colls_comm comm, const void* in, size_t in_count, void* out, size_t out_count,
    colls_type type, const colls_options* options);
COLLS_API colls_status colls_start_all_gather(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, colls_type type, const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_all_gather(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, colls_type type, const colls_options* options, colls_plan* plan);

/// Sends block b of rank r's input to rank b, which stores it as block r of its output. Both have `count` elements, a
/// multiple of n. In place: out is in.
COLLS_API colls_status colls_all_to_all(
    colls_comm comm, const void* in, void* out, size_t count, colls_type type, const colls_options* options);
COLLS_API colls_status colls_start_all_to_all(colls_comm comm, const void* in, void* out, size_t count, colls_type type,
    const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_all_to_all(colls_comm comm, const void* in, void* out, size_t count,
    colls_type type, const colls_options* options, colls_plan* plan);

/// Reduces the inputs of all ranks, of `count` elements each, to the root's output: in_0[i] op ... op in_(n-1)[i].
/// Elsewhere the output is not written, and may be NULL. In place: on the root, out is in.
COLLS_API colls_status colls_reduce(colls_comm comm, const void* in, void* out, size_t count, colls_type type,
    colls_op op, int root, const colls_options* options);
COLLS_API colls_status colls_start_reduce(colls_comm comm, const void* in, void* out, size_t count, colls_type type,
    colls_op op, int root, const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_reduce(colls_comm comm, const void* in, void* out, size_t count, colls_type type,
    colls_op op, int root, const colls_options* options, colls_plan* plan);

/// Reduces the inputs of all ranks to every rank's output, of `count` elements each. In place: out is in.
COLLS_API colls_status colls_all_reduce(colls_comm comm, const void* in, void* out, size_t count, colls_type type,
    colls_op op, const colls_options* options);
COLLS_API colls_status colls_start_all_reduce(colls_comm comm, const void* in, void* out, size_t count, colls_type type,
    colls_op op, const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_all_reduce(colls_comm comm, const void* in, void* out, size_t count,
    colls_type type, colls_op op, const colls_options* options, colls_plan* plan);

/// Reduces the inputs of all ranks, of the same count, and hands block r of the result to rank r. In place: out is the
/// rank's own block of in.
COLLS_API colls_status colls_reduce_scatter(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, colls_type type, colls_op op, const colls_options* options);
COLLS_API colls_status colls_start_reduce_scatter(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, colls_type type, colls_op op, const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_reduce_scatter(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, colls_type type, colls_op op, const colls_options* options, colls_plan* plan);

/// Reduces the inputs of ranks 0 to r to the output of rank r. In place: out is in.
COLLS_API colls_status colls_inclusive_scan(colls_comm comm, const void* in, void* out, size_t count, colls_type type,
    colls_op op, const colls_options* options);
COLLS_API colls_status colls_start_inclusive_scan(colls_comm comm, const void* in, void* out, size_t count,
    colls_type type, colls_op op, const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_inclusive_scan(colls_comm comm, const void* in, void* out, size_t count,
    colls_type type, colls_op op, const colls_options* options, colls_plan* plan);

/// Reduces the inputs of ranks 0 to r - 1 to the output of rank r; rank 0's stays as it is. In place: out is in.
COLLS_API colls_status colls_exclusive_scan(colls_comm comm, const void* in, void* out, size_t count, colls_type type,
    colls_op op, const colls_options* options);
COLLS_API colls_status colls_start_exclusive_scan(colls_comm comm, const void* in, void* out, size_t count,
    colls_type type, colls_op op, const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_exclusive_scan(colls_comm comm, const void* in, void* out, size_t count,
    colls_type type, colls_op op, const colls_options* options, colls_plan* plan);

/// Returns when every rank has called it.
COLLS_API colls_status colls_barrier(colls_comm comm, const colls_options* options);
COLLS_API colls_status colls_start_barrier(colls_comm comm, const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_barrier(colls_comm comm, const colls_options* options, colls_plan* plan);

// Collectives with a count for each block. `counts` has n numbers. `displacements` has the element at which each block
// begins, in any order and with gaps; NULL: the blocks follow each other. The count of a buffer with displacements is
// that of the elements in which its blocks lie.

/// As colls_scatter, with counts[r] elements for rank r. Other ranks than the root may pass NULL for counts.
COLLS_API colls_status colls_scatter_v(colls_comm comm, const void* in, size_t in_count, void* out, size_t out_count,
    const size_t* counts, const size_t* displacements, colls_type type, int root, const colls_options* options);
COLLS_API colls_status colls_start_scatter_v(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, const size_t* counts, const size_t* displacements, colls_type type, int root,
    const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_scatter_v(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, const size_t* counts, const size_t* displacements, colls_type type, int root,
    const colls_options* options, colls_plan* plan);

/// As colls_gather, with counts[r] elements from rank r. Other ranks than the root may pass NULL for counts.
COLLS_API colls_status colls_gather_v(colls_comm comm, const void* in, size_t in_count, void* out, size_t out_count,
    const size_t* counts, const size_t* displacements, colls_type type, int root, const colls_options* options);
COLLS_API colls_status colls_start_gather_v(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, const size_t* counts, const size_t* displacements, colls_type type, int root,
    const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_gather_v(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, const size_t* counts, const size_t* displacements, colls_type type, int root,
    const colls_options* options, colls_plan* plan);

/// As colls_all_gather, with counts[r] elements from rank r; the counts are the same on every rank.
COLLS_API colls_status colls_all_gather_v(colls_comm comm, const void* in, size_t in_count, void* out, size_t out_count,
    const size_t* counts, const size_t* displacements, colls_type type, const colls_options* options);
COLLS_API colls_status colls_start_all_gather_v(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, const size_t* counts, const size_t* displacements, colls_type type, const colls_options* options,
    colls_request* request);
COLLS_API colls_status colls_prepare_all_gather_v(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, const size_t* counts, const size_t* displacements, colls_type type, const colls_options* options,
    colls_plan* plan);

/// As colls_reduce_scatter, with counts[r] elements for rank r; the counts are the same on every rank.
COLLS_API colls_status colls_reduce_scatter_v(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, const size_t* counts, const size_t* displacements, colls_type type, colls_op op,
    const colls_options* options);
COLLS_API colls_status colls_start_reduce_scatter_v(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, const size_t* counts, const size_t* displacements, colls_type type, colls_op op,
    const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_reduce_scatter_v(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, const size_t* counts, const size_t* displacements, colls_type type, colls_op op,
    const colls_options* options, colls_plan* plan);

/// As colls_all_to_all, with sent[b] elements for rank b, and received[a] from rank a, which must be what rank a sends.
COLLS_API colls_status colls_all_to_all_v(colls_comm comm, const void* in, size_t in_count, void* out, size_t out_count,
    const size_t* sent, const size_t* sent_displacements, const size_t* received, const size_t* received_displacements,
    colls_type type, const colls_options* options);
COLLS_API colls_status colls_start_all_to_all_v(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, const size_t* sent, const size_t* sent_displacements, const size_t* received,
    const size_t* received_displacements, colls_type type, const colls_options* options, colls_request* request);
COLLS_API colls_status colls_prepare_all_to_all_v(colls_comm comm, const void* in, size_t in_count, void* out,
    size_t out_count, const size_t* sent, const size_t* sent_displacements, const size_t* received,
    const size_t* received_displacements, colls_type type, const colls_options* options, colls_plan* plan);

// Messages between two ranks. Of the options they take layouts alone. Those from one rank to another arrive in the
// order in which they were sent; one that is received with another length or type is an error on both ranks.

/// Sends a message; returns when the receiver has copied it.
COLLS_API colls_status colls_send(
    colls_comm comm, const void* data, size_t count, colls_type type, int peer, const colls_options* options);
COLLS_API colls_status colls_start_send(colls_comm comm, const void* data, size_t count, colls_type type, int peer,
    const colls_options* options, colls_request* request);
/// Receives the next message from a rank.
COLLS_API colls_status colls_recv(
    colls_comm comm, void* data, size_t count, colls_type type, int peer, const colls_options* options);
COLLS_API colls_status colls_start_recv(colls_comm comm, void* data, size_t count, colls_type type, int peer,
    const colls_options* options, colls_request* request);
/// Receives the next message from any rank, each in turn where several send, and sets `*source` to that rank.
COLLS_API colls_status colls_recv_any(
    colls_comm comm, void* data, size_t count, colls_type type, const colls_options* options, int* source);
/// Sets `*source` to the rank whose message colls_recv_any would receive now; to -1 where there is none.
COLLS_API colls_status colls_probe_any(colls_comm comm, int* source);
/// Sends one message and receives another at the same time.
COLLS_API colls_status colls_exchange(colls_comm comm, const void* sent, size_t sent_count, int to, void* received,
    size_t received_count, int from, colls_type type, const colls_options* options);

#ifdef __cplusplus
}
#endif
#endif
