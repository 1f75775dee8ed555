// One rank of the tests of colls.h: C11, and C++ too. tests/check starts it.
//
//     program collectives    every function in every form against a serial reference, with guards around each buffer
//     program refusals       what is refused, and in which words
//     program death          the last rank is killed in a call: the others have an error that names it, and go on
#include <colls.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int rank_, size_;
static long checked, wrong;
static const char* where = "";

static void expect_at(int line, int holds, const char* what) {
    ++checked;
    if (holds) return;
    fprintf(stderr, "rank %d of %d, line %d, %s: %s; latest error: %s\n", rank_, size_, line, where, what,
        colls_error_text());
    if (++wrong == 8) exit(1);
}
#define EXPECT(...) expect_at(__LINE__, (__VA_ARGS__), #__VA_ARGS__)
#define OK(...) EXPECT((__VA_ARGS__) == COLLS_OK)

// Buffers with guards

enum { guard = 64 };
static unsigned char* guarded(size_t bytes) {
    unsigned char* const at = (unsigned char*)malloc(bytes + 2 * guard + 8);
    if (at == NULL) exit(3);
    memcpy(at, &bytes, 8);
    memset(at + 8, 0xa5, bytes + 2 * guard);
    return at + 8 + guard;
}
static void release(void* data) {
    unsigned char* const at = (unsigned char*)data - guard - 8;
    size_t bytes, i;
    int whole = 1;
    memcpy(&bytes, at, 8);
    for (i = 0; i < guard; ++i) whole = whole && at[8 + i] == 0xa5 && at[8 + guard + bytes + i] == 0xa5;
    EXPECT(whole);
    free(at);
}
static int64_t* numbers(size_t count) { return (int64_t*)(void*)guarded(count * sizeof(int64_t)); }

// The serial reference: element i of rank r, of 64-bit integers

static int64_t input(int r, size_t i) { return (int64_t)(r + 1) * 1000003 + (int64_t)i * 7919; }
static int64_t* inputs(int r, size_t count) {
    int64_t* const x = numbers(count);
    size_t i;
    for (i = 0; i < count; ++i) x[i] = input(r, i);
    return x;
}
static int64_t sum(int first, int last, size_t i) {
    int64_t all = 0;
    int r;
    for (r = first; r < last; ++r) all += input(r, i);
    return all;
}
static int is_untouched(const int64_t* x, size_t count) {
    const unsigned char* const all = (const unsigned char*)x;
    size_t i;
    for (i = 0; i < count * 8; ++i)
        if (all[i] != 0xa5) return 0;
    return 1;
}
// Block r of `count` elements: where it begins.
static size_t begin_of(size_t count, int r) {
    const size_t n = (size_t)size_, b = (size_t)r, rest = count % n;
    return count / n * b + (b < rest ? b : rest);
}
static size_t length_of(size_t count, int r) { return begin_of(count, r + 1) - begin_of(count, r); }

// Each call in its forms: blocking, started, prepared (run, and started again)

static int form;
#define FORMS(name, ...)                                                 \
    do {                                                                 \
        where = #name;                                                   \
        if (form == 0) {                                                 \
            OK(colls_##name(__VA_ARGS__));                               \
        } else if (form == 1) {                                          \
            colls_request request = NULL;                                \
            OK(colls_start_##name(__VA_ARGS__, &request));               \
            OK(colls_wait(&request));                                    \
            EXPECT(request == NULL);                                     \
        } else {                                                         \
            colls_plan plan = NULL;                                      \
            colls_request request = NULL;                                \
            int over = 0;                                                \
            OK(colls_prepare_##name(__VA_ARGS__, &plan));                \
            OK(colls_plan_run(plan));                                    \
            if (form == 3) {                                             \
                OK(colls_plan_start(plan, &request));                    \
                while (!over) OK(colls_wait_for(&request, 0.01, &over)); \
            }                                                            \
            OK(colls_plan_free(&plan));                                  \
            EXPECT(plan == NULL && request == NULL);                     \
        }                                                                \
    } while (0)

static void moves(colls_comm comm, size_t count, int root) {
    const size_t own = length_of(count, rank_), begin = begin_of(count, rank_), whole = count * (size_t)size_;
    const int is_root = rank_ == root;
    int64_t *x, *y;
    size_t i;
    int r;

    x = is_root ? inputs(root, count) : numbers(count);
    FORMS(broadcast, comm, x, count, COLLS_INT64, root, NULL);
    for (i = 0; i < count; ++i) EXPECT(x[i] == input(root, i));
    release(x);

    x = is_root ? inputs(root, count) : NULL;
    y = numbers(own);
    FORMS(scatter, comm, x, is_root ? count : 0, y, own, COLLS_INT64, root, NULL);
    for (i = 0; i < own; ++i) EXPECT(y[i] == input(root, begin + i));
    if (x) release(x);
    release(y);

    x = inputs(rank_, own);
    y = is_root ? numbers(count) : NULL;
    FORMS(gather, comm, x, own, y, is_root ? count : 0, COLLS_INT64, root, NULL);
    for (r = 0; is_root && r < size_; ++r)
        for (i = 0; i < length_of(count, r); ++i) EXPECT(y[begin_of(count, r) + i] == input(r, i));
    release(x);
    if (y) release(y);

    x = inputs(rank_, own);
    y = numbers(count);
    FORMS(all_gather, comm, x, own, y, count, COLLS_INT64, NULL);
    for (r = 0; r < size_; ++r)
        for (i = 0; i < length_of(count, r); ++i) EXPECT(y[begin_of(count, r) + i] == input(r, i));
    release(x);
    // In place.
    memset(y, 0, count * 8);
    for (i = 0; i < own; ++i) y[begin + i] = input(rank_, i);
    FORMS(all_gather, comm, y + begin, own, y, count, COLLS_INT64, NULL);
    for (r = 0; r < size_; ++r)
        for (i = 0; i < length_of(count, r); ++i) EXPECT(y[begin_of(count, r) + i] == input(r, i));
    release(y);

    x = inputs(rank_, whole);
    y = numbers(whole);
    FORMS(all_to_all, comm, x, y, whole, COLLS_INT64, NULL);
    for (r = 0; r < size_; ++r)
        for (i = 0; i < count; ++i) EXPECT(y[(size_t)r * count + i] == input(r, (size_t)rank_ * count + i));
    release(x);
    release(y);

    FORMS(barrier, comm, NULL);
}

static void reductions(colls_comm comm, size_t count, int root) {
    const size_t own = length_of(count, rank_), begin = begin_of(count, rank_);
    const int is_root = rank_ == root;
    int64_t *x = inputs(rank_, count), *y = is_root ? numbers(count) : NULL;
    size_t i;

    FORMS(reduce, comm, x, y, count, COLLS_INT64, COLLS_SUM, root, NULL);
    for (i = 0; is_root && i < count; ++i) EXPECT(y[i] == sum(0, size_, i));
    if (y) release(y);

    y = numbers(count);
    FORMS(all_reduce, comm, x, y, count, COLLS_INT64, COLLS_MAX, NULL);
    for (i = 0; i < count; ++i) EXPECT(y[i] == input(size_ - 1, i));
    FORMS(all_reduce, comm, x, y, count, COLLS_INT64, COLLS_SUM, NULL);
    for (i = 0; i < count; ++i) EXPECT(y[i] == sum(0, size_, i));
    FORMS(inclusive_scan, comm, x, y, count, COLLS_INT64, COLLS_SUM, NULL);
    for (i = 0; i < count; ++i) EXPECT(y[i] == sum(0, rank_ + 1, i));
    release(y);
    y = numbers(count);
    FORMS(exclusive_scan, comm, x, y, count, COLLS_INT64, COLLS_SUM, NULL);
    if (rank_ == 0) EXPECT(is_untouched(y, count));
    for (i = 0; rank_ > 0 && i < count; ++i) EXPECT(y[i] == sum(0, rank_, i));
    release(y);

    y = numbers(own);
    FORMS(reduce_scatter, comm, x, count, y, own, COLLS_INT64, COLLS_SUM, NULL);
    for (i = 0; i < own; ++i) EXPECT(y[i] == sum(0, size_, begin + i));
    for (i = 0; i < count; ++i) EXPECT(x[i] == input(rank_, i));
    release(y);
    release(x);
}

// The calls with counts: block r has (r * 5 + extra) % 7 elements. Displaced: the blocks lie in the reverse order, with
// two elements before each.
static void calls_with_counts(colls_comm comm, size_t extra, int displaced, int root) {
    size_t counts[64], displacements[64], received[64], received_at[64], all = 0, all_received = 0, i;
    const size_t* const at = displaced ? displacements : NULL;
    const size_t* const from = displaced ? received_at : NULL;
    const int is_root = rank_ == root;
    int64_t *x, *y;
    int r;

    for (r = 0; r < size_; ++r) {
        const int b = displaced ? size_ - 1 - r : r;
        counts[b] = ((size_t)b * 5 + extra) % 7;
        displacements[b] = all += displaced ? 2 : 0;
        all += counts[b];
    }
    const size_t own = counts[rank_];

    x = is_root ? inputs(root, all) : NULL;
    y = numbers(own);
    FORMS(scatter_v, comm, x, is_root ? all : 0, y, own, is_root ? counts : NULL, is_root ? at : NULL, COLLS_INT64,
        root, NULL);
    for (i = 0; i < own; ++i) EXPECT(y[i] == input(root, displacements[rank_] + i));
    if (x) release(x);
    release(y);

    x = inputs(rank_, own);
    y = is_root ? numbers(all) : NULL;
    FORMS(gather_v, comm, x, own, y, is_root ? all : 0, is_root ? counts : NULL, is_root ? at : NULL, COLLS_INT64, root,
        NULL);
    for (r = 0; is_root && r < size_; ++r) {
        for (i = 0; i < counts[r]; ++i) EXPECT(y[displacements[r] + i] == input(r, i));
        if (displaced) EXPECT(is_untouched(y + displacements[r] - 2, 2));
    }
    if (y) release(y);

    y = numbers(all);
    FORMS(all_gather_v, comm, x, own, y, all, counts, at, COLLS_INT64, NULL);
    for (r = 0; r < size_; ++r) {
        for (i = 0; i < counts[r]; ++i) EXPECT(y[displacements[r] + i] == input(r, i));
        if (displaced) EXPECT(is_untouched(y + displacements[r] - 2, 2));
    }
    release(x);
    release(y);

    x = inputs(rank_, all);
    y = numbers(own);
    FORMS(reduce_scatter_v, comm, x, all, y, own, counts, at, COLLS_INT64, COLLS_SUM, NULL);
    for (i = 0; i < own; ++i) EXPECT(y[i] == sum(0, size_, displacements[rank_] + i));
    release(x);
    release(y);

    // Rank a sends (a + 2 b + extra) % 5 elements to rank b.
    for (all = 0, r = 0; r < size_; ++r) {
        const int b = displaced ? size_ - 1 - r : r;
        counts[b] = ((size_t)rank_ + 2 * (size_t)b + extra) % 5;
        received[b] = ((size_t)b + 2 * (size_t)rank_ + extra) % 5;
        displacements[b] = all += displaced ? 2 : 0;
        received_at[b] = all_received += displaced ? 3 : 0;
        all += counts[b];
        all_received += received[b];
    }
    x = inputs(rank_, all);
    for (r = 0; r < size_; ++r)
        for (i = 0; i < counts[r]; ++i) x[displacements[r] + i] = input(rank_, (size_t)r * 100 + i);
    y = numbers(all_received);
    FORMS(all_to_all_v, comm, x, all, y, all_received, counts, at, received, from, COLLS_INT64, NULL);
    for (r = 0; r < size_; ++r) {
        for (i = 0; i < received[r]; ++i) EXPECT(y[received_at[r] + i] == input(r, (size_t)rank_ * 100 + i));
        if (displaced) EXPECT(is_untouched(y + received_at[r] - 3, 3));
    }
    release(x);
    release(y);
}

static void messages(colls_comm comm, size_t count) {
    const int next = (rank_ + 1) % size_, before = (rank_ + size_ - 1) % size_;
    int64_t *x = inputs(rank_, count), *y = numbers(count + 1);
    colls_request requests[3] = {NULL, NULL, NULL};
    size_t i;
    int index = 7, source = -5, r;

    where = "exchange";
    OK(colls_exchange(comm, x, count, next, y, count, before, COLLS_INT64, NULL));
    for (i = 0; i < count; ++i) EXPECT(y[i] == input(before, i));
    memset(y, 0, count * 8);

    if (size_ > 1) {
        where = "a request that is not over";
        int over = 0;
        OK(colls_wait(&requests[1]));  // none
        OK(colls_test(&requests[1], &over));
        EXPECT(over == 1);
        OK(colls_wait_for(&requests[1], 0, &over));
        OK(colls_wait_all(3, requests));
        over = 7;
        OK(colls_start_recv(comm, y, count, COLLS_INT64, before, NULL, &requests[1]));
        OK(colls_test(&requests[1], &over));
        EXPECT(over == 0 && requests[1] != NULL);
        over = 7;
        OK(colls_wait_for(&requests[1], 0.001, &over));
        EXPECT(over == 0 && requests[1] != NULL);
        // One of several requests that is not over stays.
        OK(colls_start_barrier(comm, NULL, &requests[0]));
        OK(colls_wait_any(3, requests, &index));
        EXPECT(index == 0 && requests[0] == NULL && requests[1] != NULL);
        OK(colls_barrier(comm, NULL));
        OK(colls_send(comm, x, count, COLLS_INT64, next, NULL));
        while (!over) OK(colls_wait_for(&requests[1], 60, &over));
        EXPECT(over == 1 && requests[1] == NULL);
        for (i = 0; i < count; ++i) EXPECT(y[i] == input(before, i));
        memset(y, 0, count * 8);
    }

    where = "start_send, start_recv";
    OK(colls_start_send(comm, x, count, COLLS_INT64, next, NULL, &requests[2]));
    OK(colls_start_recv(comm, y, count, COLLS_INT64, before, NULL, &requests[0]));
    OK(colls_wait_any(3, requests, &index));
    EXPECT((index == 0 || index == 2) && requests[index] == NULL);
    OK(colls_wait_all(3, requests));
    EXPECT(requests[0] == NULL && requests[2] == NULL);
    OK(colls_wait_any(3, requests, &index));
    EXPECT(index == -1);
    for (i = 0; i < count; ++i) EXPECT(y[i] == input(before, i));
    memset(y, 0, count * 8);

    if (size_ > 1) {
        where = "send, recv_any, probe_any";
        if (rank_ > 0) {
            OK(colls_send(comm, x, count, COLLS_INT64, 0, NULL));
            OK(colls_recv(comm, y, count, COLLS_INT64, 0, NULL));
            for (i = 0; i < count; ++i) EXPECT(y[i] == input(0, i));
        } else {
            long seen = 0;
            for (r = 1; r < size_; ++r) {
                int probed = -1;
                while (probed == -1) OK(colls_probe_any(comm, &probed));
                OK(colls_recv_any(comm, y, count, COLLS_INT64, NULL, &source));
                EXPECT(probed > 0 && probed < size_ && source > 0 && source < size_);
                for (i = 0; i < count; ++i) EXPECT(y[i] == input(source, i));
                seen |= 1L << source;
            }
            EXPECT(seen == (1L << size_) - 2);
            for (r = 1; r < size_; ++r) OK(colls_send(comm, x, count, COLLS_INT64, r, NULL));
        }
    }
    release(x);
    release(y);
}

// x -> a x + b, which does not commute.
struct map {
    int64_t a, b;
};
static void compose(const void* in, void* inout, size_t count, void* context) {
    const struct map* const first = (const struct map*)in;
    struct map* const second = (struct map*)inout;
    size_t i;
    for (i = 0; i < count; ++i) {
        second[i].b += second[i].a * first[i].b;
        second[i].a *= first[i].a;
    }
    *(long*)context += (long)count;
}

static void add(const void* in, void* inout, size_t count, void* context) {
    size_t i;
    for (i = 0; i < count; ++i) ((int64_t*)inout)[i] += ((const int64_t*)in)[i];
    *(long*)context += (long)count;
}

static void types_and_operators(colls_comm comm) {
    long called = 0;
    colls_op op = COLLS_SUM, times = COLLS_SUM;
    struct map own, whole = {1, 0};
    size_t bytes = 0, i;
    int r;
    static const size_t sizes[] = {
        1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, sizeof(long double), 8, 16, 1, 8, 16, 8, 8, 16, 32, 1};

    where = "type_size";
    for (i = 0; i <= COLLS_BYTES; ++i) {
        OK(colls_type_size(i, &bytes));
        EXPECT(bytes == sizes[i]);
    }
    OK(colls_type_size(colls_bytes(12), &bytes));
    EXPECT(bytes == 12 && colls_bytes(1) == COLLS_BYTES);

    where = "op_function";
    OK(colls_op_function(compose, &called, 0, "compose", &op));
    own.a = rank_ + 2, own.b = rank_ + 1;
    for (r = 0; r < size_; ++r) whole.b = (r + 2) * whole.b + r + 1, whole.a *= r + 2;
    OK(colls_all_reduce(comm, &own, &own, 1, colls_bytes(sizeof own), op, NULL));
    EXPECT(own.a == whole.a && own.b == whole.b);
    EXPECT(called > 0 || size_ == 1 || rank_ > 0);  // one rank may fold for all
    OK(colls_op_free(&op));
    EXPECT(op == COLLS_SUM);

    {
        colls_options ring = COLLS_OPTIONS_INIT;
        int64_t all = rank_ + 1;
        ring.schedule = "ring";  // of operators that commute
        called = 0;
        OK(colls_op_function(add, &called, 1, "add", &op));
        OK(colls_all_reduce(comm, &all, &all, 1, COLLS_INT64, op, &ring));
        EXPECT(all == (int64_t)size_ * (size_ + 1) / 2);
        OK(colls_op_free(&op));
    }

    where = "premul_sum";
    {
        double x = 3, expected = 0;
        int32_t y = 3, whole_y = 0;
        for (r = 0; r < size_; ++r) expected += 3 * (r + 0.5), whole_y += 3 * (r + 2);
        OK(colls_premul_sum(rank_ + 0.5, &times));
        OK(colls_all_reduce(comm, &x, &x, 1, COLLS_FLOAT64, times, NULL));
        EXPECT(fabs(x - expected) < 1e-9);
        OK(colls_op_free(&times));
        OK(colls_premul_sum_integer(rank_ + 2, &times));
        OK(colls_all_reduce(comm, &y, &y, 1, COLLS_INT32, times, NULL));
        EXPECT(y == whole_y);
        OK(colls_op_free(&times));
    }
    where = "minloc, avg, exact, bit_xor";
    {
        struct {
            float value;
            int index;
        } least;
        double mean = rank_, x = rank_ == 0 ? 1e17 : rank_ == size_ - 1 && size_ > 1 ? -1e17 : 1;
        unsigned char bits[3], all[3] = {0, 0, 0};
        least.value = (float)(size_ - rank_), least.index = 10 + rank_;
        OK(colls_all_reduce(comm, &least, &least, 1, COLLS_FLOAT32_INDEX, COLLS_MINLOC, NULL));
        EXPECT((int)least.value == 1 && least.index == 10 + size_ - 1);
        OK(colls_all_reduce(comm, &mean, &mean, 1, COLLS_FLOAT64, COLLS_AVG, NULL));
        EXPECT(fabs(mean - (size_ - 1) / 2.0) < 1e-12);
        OK(colls_all_reduce(comm, &x, &x, 1, COLLS_FLOAT64, COLLS_EXACT, NULL));
        if (size_ > 1) EXPECT(fabs(x - (size_ - 2)) < 1e-9);
        for (i = 0; i < 3; ++i) {
            bits[i] = (unsigned char)(rank_ * 7 + (int)i);
            for (r = 0; r < size_; ++r) all[i] ^= (unsigned char)(r * 7 + (int)i);
        }
        OK(colls_all_reduce(comm, bits, bits, 1, colls_bytes(3), COLLS_BIT_XOR, NULL));
        EXPECT(memcmp(bits, all, 3) == 0);
    }
}

static void options_and_layouts(colls_comm comm) {
    colls_options options = COLLS_OPTIONS_INIT;
    colls_layout column = NULL, vector = NULL, pairs = NULL, row = NULL, rows = NULL;
    static const size_t offsets[] = {3, 0}, lengths[] = {1, 2};
    enum { height = 6, width = 4 };
    const size_t n = (size_t)size_;
    int32_t a[height][width], b[height * width * 64];
    int64_t* x;
    size_t i, j;
    int r;

    where = "schedule";
    options.schedule = "ring";
    for (r = 0; r < 2; ++r) {
        x = inputs(rank_, 100);
        OK(colls_all_reduce(comm, x, x, 100, COLLS_INT64, COLLS_SUM, &options));
        for (i = 0; i < 100; ++i) EXPECT(x[i] == sum(0, size_, i));
        release(x);
        options.schedule = NULL;
        options.reproducible = 1;
    }
    // Both at once: a ring is not reproducible from three ranks on.
    options.schedule = "ring";
    int32_t one = 1;
    EXPECT(colls_all_reduce(comm, &one, &one, 1, COLLS_INT32, COLLS_SUM, &options) ==
           (size_ > 2 ? COLLS_UNSUPPORTED : COLLS_OK));
    options.schedule = NULL;
    options.reproducible = 0;

    where = "layouts";
    for (i = 0; i < height; ++i)
        for (j = 0; j < width; ++j) a[i][j] = (int32_t)((size_t)rank_ * 1000 + i * 10 + j);
    OK(colls_layout_vector(height, 1, width, COLLS_ELEMENTS, &vector));
    OK(colls_layout_with_extent(vector, 1, &column));
    OK(colls_layout_free(&vector));
    // Column 2 of every rank, gathered in a row.
    options.in_layout = column;
    OK(colls_all_gather(comm, &a[0][2], 1, b, n * height, COLLS_INT32, &options));
    for (r = 0; r < size_; ++r)
        for (i = 0; i < height; ++i) EXPECT(b[(size_t)r * height + i] == (int32_t)((size_t)r * 1000 + i * 10 + 2));
    // What one rank has in a row becomes the column of another: both kinds of layout, in a broadcast and in messages.
    memset(b, 0, sizeof b);
    options.out_layout = column;
    options.in_layout = NULL;
    for (i = 0; i < height; ++i) b[i] = rank_ == 0 ? (int32_t)i + 70 : -1;
    OK(colls_broadcast(
        comm, rank_ == 0 ? (void*)b : (void*)&a[0][1], rank_ == 0 ? height : 1, COLLS_INT32, 0, &options));
    for (i = 0; rank_ > 0 && i < height; ++i)
        EXPECT(a[i][1] == (int32_t)i + 70 && a[i][2] == (int32_t)((size_t)rank_ * 1000 + i * 10 + 2));
    for (i = 0; i < height; ++i) b[i] = rank_ * 100 + (int32_t)i;
    OK(colls_exchange(
        comm, b, height, (rank_ + 1) % size_, &a[0][3], 1, (rank_ + size_ - 1) % size_, COLLS_INT32, &options));
    for (i = 0; i < height; ++i) EXPECT(a[i][3] == (rank_ + size_ - 1) % size_ * 100 + (int32_t)i);
    OK(colls_layout_free(&column));
    EXPECT(column == NULL);

    // Elements 3, 0 and 1, twice, six elements apart; in bytes.
    OK(colls_layout_indexed(2, offsets, lengths, COLLS_ELEMENTS, &pairs));
    OK(colls_layout_repeated(pairs, 2, 6, &rows));
    OK(colls_layout_contiguous(24, COLLS_UNIT_BYTES, &row));
    for (i = 0; i < 12; ++i) b[i] = rank_ == 0 ? (int32_t)i : -1, b[100 + i] = -1;
    options.in_layout = rows;
    options.out_layout = row;
    OK(colls_broadcast(comm, rank_ == 0 ? b : b + 100, 1, COLLS_INT32, 0, &options));
    static const int32_t expected[] = {3, 0, 1, 9, 6, 7};
    for (i = 0; rank_ > 0 && i < 6; ++i) EXPECT(b[100 + i] == expected[i]);
    OK(colls_layout_free(&pairs));
    OK(colls_layout_free(&row));
    OK(colls_layout_free(&rows));
}

// More handles than a table has places for at first, freed in another order: each stands for its own object.
static void many_handles(colls_comm comm) {
    enum { most = 300 };
    static colls_layout all[most];
    static unsigned char x[most], y[most];
    colls_options options = COLLS_OPTIONS_INIT;
    size_t i, turn;
    where = "many handles";
    for (i = 0; i < most; ++i) x[i] = (unsigned char)(i * 7 + 1);
    for (turn = 0; turn < 3; ++turn) {
        for (i = 0; i < most; ++i)
            if (all[i] == NULL) OK(colls_layout_contiguous(i + 1, COLLS_ELEMENTS, &all[i]));
        for (i = turn; i < most; i += 3) {
            memset(y, 0, most);
            options.in_layout = all[i];
            OK(colls_exchange(comm, x, 1, rank_, y, i + 1, rank_, COLLS_UINT8, &options));
            EXPECT(memcmp(x, y, i + 1) == 0);
        }
        for (i = 0; i < most; ++i)
            if (turn == 2 || (i * 5 + turn) % 3 != 0) OK(colls_layout_free(&all[i]));
    }
    // Places that are free again are taken again: the lower half of a handle is its place.
    for (i = 0; i < 4 * most; ++i) {
        OK(colls_layout_contiguous(1, COLLS_ELEMENTS, &all[0]));
        EXPECT((uint32_t)(uintptr_t)all[0] < most);
        OK(colls_layout_free(&all[0]));
    }
}

// Groups

/// A port of this host at which nothing listens, below those that the system gives to connections.
static int free_port(void) {
    struct sockaddr_in at;
    int port, taken = 1;
    memset(&at, 0, sizeof at);
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (port = 20000 + (int)getpid() % 10000; taken; ++port) {
        const int s = socket(AF_INET, SOCK_STREAM, 0);
        at.sin_port = htons((unsigned short)port);
        taken = bind(s, (const struct sockaddr*)&at, sizeof at) != 0;
        close(s);
    }
    return port - 1;
}
static int gather_nothing(void* context, const void* own, size_t bytes, void* all) {
    (void)own, (void)bytes, (void)all;
    return *(const int*)context;
}
static int get_nothing(void* context, const char* key, void* value, size_t bytes) {
    (void)context, (void)key, (void)value, (void)bytes;
    return -3;
}

/// An all_gather for colls_bootstrap_exchange, over a group that is there already.
static int gather_by(void* context, const void* own, size_t bytes, void* all) {
    return colls_all_gather(*(colls_comm*)context, own, bytes, all, bytes * (size_t)size_, COLLS_BYTES, NULL) !=
           COLLS_OK;
}
/// A store over a group that is there already: each rank sets one key for each exchange, and then gets those of all.
struct store {
    colls_comm comm;
    unsigned char all[64 * 64];
};
static int set_in_memory(void* context, const char* key, const void* value, size_t bytes) {
    struct store* const s = (struct store*)context;
    if (strncmp(key, "stored/", 7) != 0 || bytes > 64) return 5;
    return colls_all_gather(s->comm, value, bytes, s->all, bytes * (size_t)size_, COLLS_BYTES, NULL) != COLLS_OK;
}
static int get_from_memory(void* context, const char* key, void* value, size_t bytes) {
    memcpy(value, ((struct store*)context)->all + (size_t)atoi(strrchr(key, '/') + 1) * bytes, bytes);
    return 0;
}
static void use_group(colls_comm comm, int size) {
    int32_t x = 1;
    int n = 0;
    OK(colls_size(comm, &n));
    EXPECT(n == size);
    OK(colls_all_reduce(comm, &x, &x, 1, COLLS_INT32, COLLS_SUM, NULL));
    EXPECT(x == size);
}
static void groups(colls_comm comm) {
    colls_comm part = NULL, none = comm;
    struct store s;
    colls_store store;
    void* data = NULL;
    int r = -1, i;
    const char* const folder = getenv("COLLS_C_TEST_FOLDER");

    where = "split";
    OK(colls_split(comm, rank_ % 2, -rank_, &part));
    OK(colls_rank(part, &r));
    EXPECT(r == (size_ - 1 - rank_) / 2);
    use_group(part, rank_ % 2 ? size_ / 2 : (size_ + 1) / 2);
    OK(colls_comm_free(&part));
    EXPECT(part == NULL);
    OK(colls_split(comm, rank_ == 0 ? -1 : 0, 0, &none));
    EXPECT((none == NULL) == (rank_ == 0));
    if (none) use_group(none, size_ - 1);
    OK(colls_comm_free(&none));
    OK(colls_comm_free(&none));

    where = "bootstrap_exchange";
    OK(colls_bootstrap_exchange(rank_, size_, gather_by, &comm, &part));
    use_group(part, size_);
    OK(colls_comm_free(&part));

    where = "bootstrap";
    s.comm = comm;
    store.size = sizeof store;
    store.context = &s;
    store.set = set_in_memory;
    store.get = get_from_memory;
    OK(colls_bootstrap(rank_, size_, &store, "stored", &part));
    use_group(part, size_);
    OK(colls_comm_free(&part));
    EXPECT(colls_bootstrap(rank_, size_, &store, "another", &part) == COLLS_STORE_FAILED);
    EXPECT(strstr(colls_error_text(), "set, for the key another/") && strstr(colls_error_text(), "has returned 5"));
    if (size_ > 1) {
        const int nine = 9;
        store.get = get_nothing;
        EXPECT(colls_bootstrap(rank_, size_, &store, "stored", &part) == COLLS_STORE_FAILED);
        EXPECT(strstr(colls_error_text(), "get, for the key stored/") && strstr(colls_error_text(), "returned -3"));
        EXPECT(colls_bootstrap_exchange(rank_, size_, gather_nothing, (void*)&nine, &part) == COLLS_STORE_FAILED);
        EXPECT(strstr(colls_error_text(), "all_gather has returned 9") != NULL && part == NULL);
    }

    where = "world_at";
    {
        int32_t port = rank_ == 0 ? free_port() : 0;
        OK(colls_broadcast(comm, &port, 1, COLLS_INT32, 0, NULL));
        OK(colls_world_at(rank_, size_, "127.0.0.1", port, "a token of its own", &part));
        OK(colls_rank(part, &r));
        EXPECT(r == rank_);
        use_group(part, size_);
        OK(colls_comm_free(&part));
    }

    if (size_ > 1) {  // ranks with other tokens are of other groups
        int32_t port = rank_ == 0 ? free_port() : 0;
        OK(colls_broadcast(comm, &port, 1, COLLS_INT32, 0, NULL));
        setenv("COLLS_TIMEOUT", "0.3", 1);
        r = (int)colls_world_at(rank_, size_, "127.0.0.1", port, rank_ == 0 ? "one token" : "another", &part);
        EXPECT(r != COLLS_OK && part == NULL);
        setenv("COLLS_TIMEOUT", "60", 1);
    }

    where = "dump";
    {
        char text[200] = "", path[400];
        const int error = dup(2);
        snprintf(path, sizeof path, "%s/dump%d", folder, rank_);
        const int file = open(path, O_RDWR | O_CREAT, 0600);
        dup2(file, 2);
        r = (int)colls_dump(comm);
        dup2(error, 2);
        OK((colls_status)r);
        EXPECT(pread(file, text, sizeof text - 1, 0) > 0 && strstr(text, "colls: rank ") == text);
        close(error);
        close(file);
    }

    if (size_ > 1) {
        where = "set_timeout";
        OK(colls_split(comm, 0, 0, &part));
        OK(colls_set_timeout(part, 0.1));
        if (rank_ < size_ - 1) {  // the last rank makes no call
            colls_options ring = COLLS_OPTIONS_INIT;
            static int32_t x[1000];
            ring.schedule = "ring";
            r = (int)colls_all_reduce(part, x, x, 1000, COLLS_INT32, COLLS_SUM, &ring);
            EXPECT(r == COLLS_TIMEOUT || r == COLLS_PEER_FAILED);
            const char* const waited = strstr(colls_error_text(), "waited ");
            EXPECT(waited != NULL && atof(waited + 7) < 30 && colls_error_round() >= 0);
        }
        OK(colls_barrier(comm, NULL));
        OK(colls_comm_free(&part));
    }

    where = "bootstrap_folder";
    OK(colls_bootstrap_folder(rank_, size_, folder, "group", &part));
    use_group(part, size_);
    OK(colls_comm_free(&part));
    EXPECT(colls_bootstrap_folder(rank_, size_, folder, "group", &part) == COLLS_INVALID_ARGUMENT);
    EXPECT(strstr(colls_error_text(), "a group of this name has used the folder") != NULL);
    EXPECT(colls_bootstrap_folder(rank_, size_, "/no/such", "group", &part) == COLLS_STORE_FAILED);
    EXPECT(strstr(colls_error_text(), "/no/such/group") && strstr(colls_error_text(), "No such file"));

    if (size_ > 1) {  // A file that is being written is waited for: some of its bytes are none.
        char file[400];
        FILE* half;
        const int lowest = dup(2);
        close(lowest);
        const int other = rank_ == 0 ? 1 : 0;
        setenv("COLLS_TIMEOUT", "0.05", 1);
        snprintf(file, sizeof file, "%s/half%d.0.%d", folder, rank_, other);
        half = fopen(file, "wb");
        EXPECT(half != NULL && fputs("colls", half) >= 0 && fclose(half) == 0);
        snprintf(file, sizeof file, "half%d", rank_);
        EXPECT(colls_bootstrap_folder(rank_, size_, folder, file, &part) == COLLS_TIMEOUT);
        EXPECT(strstr(colls_error_text(), "has not come: waited 0.05 s for its file ") != NULL);
        EXPECT(colls_error_peer() == other && colls_error_rank() == rank_);
        // What cannot be opened or read is no file that is still to come.
        snprintf(file, sizeof file, "%s/loop%d.0.%d", folder, rank_, other);
        EXPECT(symlink(file, file) == 0);
        snprintf(file, sizeof file, "loop%d", rank_);
        EXPECT(colls_bootstrap_folder(rank_, size_, folder, file, &part) == COLLS_STORE_FAILED);
        EXPECT(strstr(colls_error_text(), "cannot be opened: ") && strstr(colls_error_text(), "/loop"));
        snprintf(file, sizeof file, "%s/folder%d.0.%d", folder, rank_, other);
        EXPECT(mkdir(file, 0700) == 0);
        snprintf(file, sizeof file, "folder%d", rank_);
        EXPECT(colls_bootstrap_folder(rank_, size_, folder, file, &part) == COLLS_STORE_FAILED);
        EXPECT(strstr(colls_error_text(), "cannot be read: Is a directory") != NULL);
        // One that is not there is waited for, too.
        EXPECT(colls_bootstrap_folder(rank_, size_, folder, rank_ == 0 ? "none0" : "none1", &part) == COLLS_TIMEOUT);
        setenv("COLLS_TIMEOUT", "60", 1);
        r = dup(2);
        EXPECT(r == lowest);  // each file that was looked at has been closed
        close(r);
    }

    where = "allocate";
    for (i = 0; i < 3; ++i) {
        OK(colls_allocate(comm, 80000, &data));
        EXPECT((uintptr_t)data % 128 == 0);
        int64_t* const x = (int64_t*)data;
        for (size_t k = 0; k < 10000; ++k) x[k] = input(rank_, k);
        OK(colls_all_reduce(comm, x, x, 10000, COLLS_INT64, COLLS_SUM, NULL));
        for (size_t k = 0; k < 10000; ++k) EXPECT(x[k] == sum(0, size_, k));
        void* again = data;
        OK(colls_deallocate(&data));
        EXPECT(data == NULL && colls_deallocate(&again) == COLLS_INVALID_ARGUMENT);
    }
    OK(colls_allocate(comm, 0, &data));
    EXPECT(data != NULL);
    OK(colls_deallocate(&data));
    OK(colls_deallocate(&data));
    OK(colls_set_timeout(comm, INFINITY));
    OK(colls_set_timeout(comm, 60));
    use_group(comm, size_);
}

static void collectives(colls_comm comm) {
    static const size_t counts[] = {0, 1, 7, 300, 20000};
    size_t i;
    for (form = 0; form < 4; ++form) {
        for (i = 0; i < sizeof counts / sizeof *counts; ++i) {
            const int root = (int)(i + (size_t)form) % size_;
            moves(comm, counts[i], root);
            reductions(comm, counts[i], root);
        }
        for (i = 0; i < 3; ++i) {
            calls_with_counts(comm, i * 3, 0, (int)i % size_);
            calls_with_counts(comm, i, 1, (int)(i + 1) % size_);
        }
    }
    messages(comm, 0);
    messages(comm, 5);
    messages(comm, 30000);
    types_and_operators(comm);
    options_and_layouts(comm);
    many_handles(comm);
    groups(comm);

    // Many in flight, waited for in another order.
    where = "many requests";
    colls_request requests[8];
    int64_t x[8];
    int over = 0, i_request;
    for (i = 0; i < 8; ++i) {
        x[i] = input(rank_, i);
        OK(colls_start_all_reduce(comm, &x[i], &x[i], 1, COLLS_INT64, COLLS_SUM, NULL, &requests[i]));
    }
    OK(colls_wait(&requests[5]));
    while (!over) OK(colls_test(&requests[7], &over));
    OK(colls_wait_any(8, requests, &i_request));
    EXPECT(i_request >= 0 && i_request != 5 && i_request != 7);
    OK(colls_wait_all(8, requests));
    for (i = 0; i < 8; ++i) EXPECT(x[i] == sum(0, size_, i) && requests[i] == NULL);
}

// Refusals. Each is of this rank alone, before anything moves: the group goes on.

static void refused_at(int line, colls_status got, colls_status expected, const char* words) {
    const int right = got == expected && strstr(colls_error_text(), words) != NULL && colls_error_status() == expected;
    if (!right)
        fprintf(stderr, "expected %s with \"%s\", got %s: %s\n", colls_status_name(expected), words,
            colls_status_name(got), colls_error_text());
    expect_at(line, right, "the refusal");
}
#define REFUSED(call, status, words) refused_at(__LINE__, call, status, words)

/// The processes meet, and use no group for it: each leaves a file, and rank 0 waits for all.
static void wait_for_ranks(int ranks) {
    static int meeting;
    char file[4200];
    int i, turn;
    ++meeting;
    for (i = 0; i < ranks; ++i) {
        if (rank_ != 0 && i != rank_) continue;
        snprintf(file, sizeof file, "%s/%d: rank %d is here", getenv("COLLS_C_TEST_FOLDER"), meeting, i);
        if (i == rank_) {
            const int here = open(file, O_CREAT | O_WRONLY, 0600);
            EXPECT(here >= 0 && close(here) == 0);
        }
        for (turn = 0; turn < 60000 && access(file, F_OK) != 0; ++turn) usleep(1000);
        EXPECT(access(file, F_OK) == 0);
    }
}

static void refusals(colls_comm comm) {
    colls_options options = COLLS_OPTIONS_INIT;
    colls_comm freed = NULL, none = NULL;
    colls_request request = NULL, over_request;
    colls_plan plan = NULL, old_plan;
    colls_layout layout = NULL, old_layout;
    colls_op op = COLLS_SUM, old_op;
    colls_type type = COLLS_INT32;
    int32_t x[64], y[64], over = 0;
    size_t counts[64], displaced[64], bytes = 0;
    int n = 0, i;
    const colls_status argument = COLLS_INVALID_ARGUMENT, handle = COLLS_INVALID_HANDLE;
    struct {
        colls_options known;
        long more;
    } later = {COLLS_OPTIONS_INIT, 0};
    colls_store store;

    where = "refusals";
    memset(x, 0, sizeof x);
    memset(&store, 0, sizeof store);
    for (i = 0; i < size_; ++i) counts[i] = 1, displaced[i] = (size_t)i;

    EXPECT(strcmp(colls_error_text(), "") == 0 && colls_error_peer() == -1 && colls_error_status() == COLLS_OK);
    EXPECT(strcmp(colls_status_name(COLLS_PEER_FAILED), "peer failed") == 0);
    EXPECT(strcmp(colls_status_name((colls_status)11), "unknown") == 0);
    EXPECT(colls_version() >= 100 && colls_abi() == COLLS_C_ABI);
    OK(colls_check_abi(COLLS_C_ABI));
    REFUSED(colls_check_abi(COLLS_C_ABI + 1), argument, "compile the program with the colls.h of this library");

    // Handles.
    REFUSED(colls_all_reduce(NULL, x, x, 1, COLLS_INT32, COLLS_SUM, NULL), handle,
        "colls: colls_all_reduce: a communicator is needed, and the handle is NULL");
    REFUSED(colls_rank((colls_comm)(uintptr_t)12345, &n), handle, "the handle is of no handle");
    for (i = 6; i < 16; ++i)
        REFUSED(colls_rank((colls_comm)((uintptr_t)i << 60), &n), handle, "the handle is of no handle");
    OK(colls_split(comm, 0, 0, &freed));
    colls_comm old = freed;
    OK(colls_comm_free(&freed));
    REFUSED(colls_barrier(old, NULL), handle, "the handle is of a communicator that was freed, or is over");
    // Numbers near it, which were never handles.
    for (i = 1; i < 4; ++i)
        REFUSED(colls_barrier((colls_comm)((uintptr_t)old + ((uintptr_t)i << 32)), NULL), handle, "that was freed");
    REFUSED(colls_barrier((colls_comm)((uintptr_t)old + 100), NULL), handle, "that was freed");
    REFUSED(colls_barrier((colls_comm)((uintptr_t)old | 0xffffffff), NULL), handle, "that was freed");
    for (i = 0; i < 32; ++i)
        REFUSED(colls_barrier((colls_comm)((uintptr_t)old | (uintptr_t)1 << i), NULL), handle, "that was freed");
    OK(colls_split(comm, 0, 0, &freed));
    REFUSED(colls_barrier(old, NULL), handle, "that was freed");
    REFUSED(colls_comm_free(&old), handle, "that was freed");
    OK(colls_barrier(freed, NULL));
    OK(colls_comm_free(&freed));
    OK(colls_start_barrier(comm, NULL, &request));
    over_request = request;
    REFUSED(colls_barrier((colls_comm)(void*)request, NULL), handle,
        "a communicator is needed, and the handle is of a request");
    OK(colls_wait(&request));
    REFUSED(colls_wait(&over_request), handle, "a request that was freed, or is over");
    REFUSED(colls_wait_all(1, &over_request), handle, "a request that was freed, or is over");
    OK(colls_prepare_barrier(comm, NULL, &plan));
    old_plan = plan;
    OK(colls_plan_free(&plan));
    REFUSED(colls_plan_run(old_plan), handle, "a plan that was freed");
    REFUSED(colls_plan_run(NULL), handle, "a plan is needed, and the handle is NULL");
    OK(colls_layout_contiguous(4, COLLS_ELEMENTS, &layout));
    old_layout = layout;
    OK(colls_layout_free(&layout));
    options.in_layout = old_layout;
    REFUSED(colls_broadcast(comm, x, 1, COLLS_INT32, rank_, &options), handle, "a layout that was freed");
    options.in_layout = NULL;
    // One count of both buffers: of repetitions of a layout there, of elements here.
    OK(colls_layout_contiguous(3, COLLS_ELEMENTS, &layout));
    options.in_layout = layout;
    REFUSED(colls_all_reduce(comm, x, y, 2, COLLS_INT32, COLLS_SUM, &options), argument, "6");
    options.out_layout = layout;
    OK(colls_all_reduce(comm, x, y, 2, COLLS_INT32, COLLS_SUM, &options));
    options.in_layout = options.out_layout = NULL;
    OK(colls_layout_free(&layout));
    OK(colls_premul_sum(2, &op));
    old_op = op;
    OK(colls_op_free(&op));
    REFUSED(colls_all_reduce(comm, x, x, 1, COLLS_INT32, old_op, NULL), handle, "an operator that was freed");
    REFUSED(colls_op_free(&old_op), handle, "an operator that was freed");

    // Pointers.
    REFUSED(colls_world(NULL), argument, "the argument for the result is NULL");
    REFUSED(colls_rank(comm, NULL), argument, "the argument rank is NULL");
    REFUSED(colls_start_barrier(comm, NULL, NULL), argument, "the argument for the result is NULL");
    REFUSED(colls_wait(NULL), argument, "the argument request is NULL");
    REFUSED(colls_test(&request, NULL), argument, "the argument over is NULL");
    REFUSED(colls_wait_any(2, NULL, &n), argument, "the argument requests is NULL");
    REFUSED(colls_comm_free(NULL), argument, "is NULL");
    REFUSED(colls_world_at(0, 1, NULL, 1, "", &none), argument, "the argument host is NULL");
    REFUSED(colls_world_at(0, 1, "localhost", 20000, NULL, &none), argument, "the argument token is NULL");
    REFUSED(colls_world_at(0, 1, "localhost", 20000, "", NULL), argument, "the argument for the result is NULL");
    REFUSED(colls_size(comm, NULL), argument, "the argument size is NULL");
    REFUSED(colls_split(comm, 0, 0, NULL), argument, "the argument part is NULL");
    REFUSED(colls_shrink(comm, NULL), argument, "the argument for the result is NULL");
    REFUSED(colls_type_size(COLLS_INT8, NULL), argument, "the argument size is NULL");
    REFUSED(colls_deallocate(NULL), argument, "the argument data is NULL");
    REFUSED(colls_wait_for(&request, 1, NULL), argument, "the argument over is NULL");
    REFUSED(colls_wait_any(0, NULL, NULL), argument, "the argument index is NULL");
    REFUSED(colls_world_at(2, 2, "localhost", 20000, "", &none), argument, "2");
    REFUSED(colls_bootstrap(0, 1, NULL, "x", &none), argument, "the argument store is NULL");
    REFUSED(colls_bootstrap_exchange(0, 1, NULL, NULL, &none), argument, "the function all_gather is NULL");
    REFUSED(colls_bootstrap_folder(0, 1, "/tmp", "a/b", &none), argument, "the name \"a/b\" of the group");
    REFUSED(colls_bootstrap_folder(0, 1, "/tmp", "", &none), argument, "the name \"\" of the group");
    REFUSED(colls_bootstrap_folder(0, 1, NULL, "a", &none), argument, "the argument folder is NULL");
    store.size = sizeof store - 1;
    REFUSED(colls_bootstrap(0, 1, &store, "x", &none), argument, "set it to sizeof(colls_store)");
    store.size = sizeof store;
    REFUSED(colls_bootstrap(0, 1, &store, "x", &none), argument, "the store has no function set");
    store.set = set_in_memory;
    REFUSED(colls_bootstrap(0, 1, &store, "x", &none), argument, "the store has no function get");
    REFUSED(colls_bootstrap(0, 1, &store, NULL, &none), argument, "the argument name is NULL");
    REFUSED(colls_probe_any(comm, NULL), argument, "the argument source is NULL");
    REFUSED(colls_recv_any(comm, x, 1, COLLS_INT32, NULL, NULL), argument, "the argument source is NULL");
    REFUSED(colls_allocate(comm, 1, NULL), argument, "the argument data is NULL");
    REFUSED(colls_op_function(compose, NULL, 1, NULL, &op), argument, "the argument name is NULL");
    REFUSED(colls_op_function(compose, NULL, 2, "f", &op), argument, "commutative is 2: it is 0 or 1");
    REFUSED(colls_premul_sum(1, NULL), argument, "the argument op is NULL");
    REFUSED(colls_op_function(NULL, NULL, 1, "f", &op), argument, "the function is NULL");
    REFUSED(colls_layout_indexed(1, NULL, NULL, COLLS_ELEMENTS, &layout), argument, "the argument offsets is NULL");
    REFUSED(colls_abort(comm, NULL), argument, "the argument why is NULL");
    REFUSED(colls_refuse(comm, "all_reduce", "it is of lists"), argument, "in all_reduce: it is of lists");
    REFUSED(colls_refuse(comm, NULL, ""), argument, "the argument call is NULL");
    REFUSED(colls_refuse(comm, "", NULL), argument, "the argument why is NULL");

    // Counts, types, operators, options.
    REFUSED(colls_all_reduce(comm, x, x, (size_t)-3, COLLS_INT8, COLLS_SUM, NULL), argument,
        "the count is -3: it must not be negative");
    REFUSED(colls_all_reduce(comm, x, x, (size_t)1 << 61, COLLS_INT32, COLLS_SUM, NULL), argument, "of 4 bytes each");
    REFUSED(colls_all_reduce(comm, x, x, PTRDIFF_MAX, COLLS_INT32, COLLS_SUM, NULL), argument, "of 4 bytes each");
    REFUSED(colls_all_reduce(comm, x, x, PTRDIFF_MAX / 4 + 1, COLLS_INT32, COLLS_SUM, NULL), argument, "of 4 bytes");
    REFUSED(colls_all_reduce(comm, NULL, x, PTRDIFF_MAX / 4, COLLS_INT32, COLLS_SUM, NULL), argument, "is null");
    REFUSED(colls_all_reduce(comm, NULL, x, PTRDIFF_MAX, COLLS_INT8, COLLS_SUM, NULL), argument, "is null");
    REFUSED(colls_all_reduce(comm, NULL, x, 3, COLLS_INT32, COLLS_SUM, NULL), argument, "is null");
    REFUSED(colls_all_reduce(comm, x, y, 3, 23, COLLS_SUM, NULL), argument, "there is no element type 23");
    REFUSED(colls_all_reduce(comm, x, y, 3, colls_bytes(0), COLLS_SUM, NULL), argument, "a byte at least");
    REFUSED(colls_type_size(300, &bytes), argument, "there is no element type 300");
    REFUSED(colls_type_size(colls_bytes((size_t)1 << 55), &bytes), argument, "or of 2^55 and more");
    for (i = 0; i < 3; ++i) {  // the latest length is kept
        OK(colls_type_size(colls_bytes(((size_t)1 << 55) - 1), &bytes));
        EXPECT(bytes == ((size_t)1 << 55) - 1);
        OK(colls_type_size(colls_bytes(5 + (size_t)i), &bytes));
        EXPECT(bytes == 5 + (size_t)i);
        OK(colls_type_size(COLLS_BYTES, &bytes));
        EXPECT(bytes == 1);
    }
    REFUSED(colls_type_size(COLLS_INT8 | 1 << 8, &bytes), argument, "there is no element type 256");
    REFUSED(colls_all_reduce(comm, x, y, 3, COLLS_INT32, 5, NULL), argument, "there is no operator 5");
    REFUSED(colls_all_reduce(comm, x, y, 3, COLLS_INT32, 15, NULL), argument, "there is no operator 15");
    REFUSED(colls_all_reduce(comm, x, y, 3, COLLS_FLOAT32, COLLS_BIT_XOR, NULL), argument, "does not take elements");
    REFUSED(colls_broadcast(comm, x, 3, COLLS_INT32, size_, NULL), argument, "is out of range");
    REFUSED(colls_send(comm, x, 3, COLLS_INT32, -1, NULL), argument, "-1");
    REFUSED(colls_send(comm, x, (size_t)-1, type, rank_, NULL), argument, "in colls_send: the count is -1");
    REFUSED(colls_all_gather_v(comm, x, 1, y, (size_t)size_, NULL, NULL, COLLS_INT32, NULL), argument,
        "the counts are NULL: pass ");
    counts[size_ - 1] = (size_t)-7;
    REFUSED(colls_all_gather_v(comm, x, 1, y, (size_t)size_, counts, NULL, COLLS_INT32, NULL), argument,
        "the count of a block is -7");
    counts[size_ - 1] = 1;
    displaced[size_ - 1] = (size_t)-9;
    REFUSED(colls_all_gather_v(comm, x, 1, y, (size_t)size_, counts, displaced, COLLS_INT32, NULL), argument,
        "the displacement is -9");
    REFUSED(colls_all_gather_v(comm, x, 1, y, 63, counts, NULL, COLLS_INT32, NULL), argument, "63");
    options.schedule = "rung";
    REFUSED(colls_all_reduce(comm, x, y, 3, COLLS_INT32, COLLS_SUM, &options), argument, "no schedule named rung");
    options.schedule = NULL;
    options.reproducible = 7;
    REFUSED(colls_all_reduce(comm, x, y, 3, COLLS_INT32, COLLS_SUM, &options), argument, "options.reproducible is 7");
    options.reproducible = 0;
    options.size = 0;
    REFUSED(colls_all_reduce(comm, x, y, 3, COLLS_INT32, COLLS_SUM, &options), argument, "COLLS_OPTIONS_INIT");
    later.known.size = sizeof later;
    OK(colls_all_reduce(comm, x, y, 3, COLLS_INT32, COLLS_SUM, &later.known));
    later.more = 1;
    REFUSED(colls_all_reduce(comm, x, y, 3, COLLS_INT32, COLLS_SUM, &later.known), argument, "a later version");
    REFUSED(colls_set_timeout(comm, 0), argument, "the deadline is 0 seconds");
    REFUSED(colls_set_timeout(comm, NAN), argument, "the deadline is");
    REFUSED(colls_wait_for(&request, -1, &over), argument, "the duration is -1 seconds");
    REFUSED(colls_wait_for(&request, NAN, &over), argument, "the duration is");
    REFUSED(colls_layout_vector(1, 1, 1, (colls_unit)2, &layout), argument, "the unit is 2");
    REFUSED(colls_layout_contiguous(1, (colls_unit)-1, &layout), argument, "the unit is -1");
    REFUSED(colls_layout_indexed(1, counts, NULL, COLLS_ELEMENTS, &layout), argument, "the argument lengths is NULL");
    OK(colls_layout_indexed(0, NULL, NULL, COLLS_ELEMENTS, &layout));
    OK(colls_layout_free(&layout));
    options.size = sizeof options;
    options.reproducible = -1;
    REFUSED(colls_barrier(comm, &options), argument, "options.reproducible is -1: it is 0 or 1");
    REFUSED(colls_op_free(NULL), argument, "the argument op is NULL");
    op = 5;
    REFUSED(colls_op_free(&op), argument, "there is no operator 5");
    op = COLLS_MAX;
    OK(colls_op_free(&op));
    EXPECT(op == COLLS_SUM);
    EXPECT(colls_abi() == COLLS_C_ABI && colls_error_round() == -1);

    // What all ranks refuse leaves the group whole, also where one of them is slower.
    for (i = 0; i < 3; ++i) {
        OK(colls_barrier(comm, NULL));
        REFUSED(colls_all_reduce(comm, x, y, 3, 9999, COLLS_SUM, NULL), argument, "there is no element type 9999");
        if (rank_ == size_ - 1) usleep(300000);
        if (i == 1)
            REFUSED(colls_start_broadcast(comm, x, 3, COLLS_INT32, size_, NULL, &request), argument, "out of range");
        if (i == 2) REFUSED(colls_prepare_barrier(comm, &later.known, &plan), argument, "a later version");
        OK(colls_all_reduce(comm, x, y, 3, COLLS_INT32, COLLS_SUM, NULL));
    }

    // What only one rank has refused, the others learn in a moment, and the group goes on.
    OK(colls_barrier(comm, NULL));
    if (size_ > 1) {
        if (rank_ == 0) {
            REFUSED(colls_all_reduce(comm, x, y, (size_t)-3, COLLS_INT32, COLLS_SUM, NULL), argument, "rank 0 in");
            EXPECT(colls_error_rank() == 0);
        } else {
            REFUSED(colls_all_reduce(comm, x, y, 3, COLLS_INT32, COLLS_SUM, NULL), COLLS_PEER_FAILED,
                "rank 0 refused this call");
            EXPECT(colls_error_peer() == 0 && colls_error_rank() == rank_ && colls_error_calls()[0] != '\0');
        }
        wait_for_ranks(size_);  // rank 0 makes no other call before they have heard of that
        // That has broken the group.
        colls_comm rest = NULL, fresh = NULL;
        OK(colls_shrink(comm, &rest));
        use_group(rest, size_);
        OK(colls_split(rest, 0, 0, &fresh));
        // Requests that fail are over: freed, and their handles are none.
        colls_request three[4] = {NULL, NULL, NULL, NULL}, before[4];
        int index = -7;
        for (i = 1; i < 4; ++i) OK(colls_start_recv(rest, x, 1, COLLS_INT32, (rank_ + 1) % size_, NULL, &three[i]));
        memcpy(before, three, sizeof three);
        OK(colls_barrier(fresh, NULL));
        if (rank_ == 0) OK(colls_abort(rest, "enough"));
        REFUSED(colls_wait_any(2, three, &index), COLLS_PEER_FAILED, "enough");
        EXPECT(index == 1 && three[1] == NULL);
        REFUSED(colls_wait(&three[2]), COLLS_PEER_FAILED, "enough");
        EXPECT(three[2] == NULL);
        REFUSED(colls_wait_all(4, three), COLLS_PEER_FAILED, "enough");
        EXPECT(three[3] == NULL);
        for (i = 1; i < 4; ++i) REFUSED(colls_wait(&before[i]), handle, "a request that was freed, or is over");
        OK(colls_comm_free(&rest));
        // A mismatch.
        OK(colls_split(fresh, 0, 0, &rest));
        REFUSED(
            colls_all_reduce(rest, x, x, rank_ == 0 ? 3 : 4, COLLS_INT32, COLLS_SUM, NULL), COLLS_MISMATCH, "count");
        OK(colls_comm_free(&rest));
        // One rank without a place for its request, or with a wrong block of a sum that is several calls.
        for (i = 0; i < 2; ++i) {
            float floats[128] = {0};
            const size_t block = rank_ == 0 ? 2 : 1, all = (size_t)size_;
            OK(colls_split(fresh, 0, 0, &rest));
            const colls_status got =
                i == 1 ? colls_reduce_scatter(rest, floats, all, floats + all, block, COLLS_FLOAT32, COLLS_EXACT, NULL)
                : rank_ == 0 ? colls_start_all_reduce(rest, x, y, 3, COLLS_INT32, COLLS_SUM, NULL, NULL)
                             : colls_all_reduce(rest, x, y, 3, COLLS_INT32, COLLS_SUM, NULL);
            refused_at(__LINE__, got, rank_ == 0 ? argument : COLLS_PEER_FAILED,
                rank_ == 0 ? "rank 0 in" : "rank 0 refused this call");
            wait_for_ranks(size_);
            OK(colls_comm_free(&rest));
        }
        OK(colls_comm_free(&fresh));
    }
}

// A rank that dies.
static void death(colls_comm comm) {
    int64_t x[1000];
    colls_comm rest = NULL;
    colls_status status = COLLS_OK;
    char words[32];
    int turn;
    where = "death";
    memset(x, 0, sizeof x);
    for (turn = 0; turn < 1000000 && status == COLLS_OK; ++turn) {
        if (turn == 100 && rank_ == size_ - 1) raise(SIGKILL);
        status = colls_all_reduce(comm, x, x, 1000, COLLS_INT64, COLLS_SUM, NULL);
    }
    // In the call that it does not make, or still in the one that it was the first to leave.
    EXPECT((turn == 101 || turn == 100) && status == COLLS_PEER_FAILED);
    EXPECT(colls_error_peer() == size_ - 1 && colls_error_rank() == rank_);
    snprintf(words, sizeof words, "rank %d", size_ - 1);
    EXPECT(strstr(colls_error_text(), words) && strstr(colls_error_text(), "died"));
    EXPECT(strstr(colls_error_calls(), "all_reduce of 1000 long") != NULL);
    if (rank_ == 0) printf("%s\n", colls_error_text());
    OK(colls_shrink(comm, &rest));
    use_group(rest, size_ - 1);
    // One that leaves on purpose, after the others' call: what has come to a rank does not keep it from hearing of an
    // abort first.
    wait_for_ranks(size_ - 1);
    if (rank_ == 0) OK(colls_abort(rest, "enough"));
    EXPECT(colls_barrier(rest, NULL) == COLLS_PEER_FAILED && strstr(colls_error_text(), "enough"));
    OK(colls_comm_free(&rest));
}

int main(int count, char** arguments) {
    colls_comm comm = NULL;
    const char* const what = count > 1 ? arguments[1] : "";
    if (strcmp(what, "refusals") == 0) {
        OK(colls_world(&comm));
        if (comm == NULL) return 1;
        OK(colls_rank(comm, &rank_));
        OK(colls_size(comm, &size_));
        refusals(comm);
    } else {
        if (colls_world(&comm) != COLLS_OK || colls_rank(comm, &rank_) != COLLS_OK ||
            colls_size(comm, &size_) != COLLS_OK) {
            fprintf(stderr, "%s\n", colls_error_text());
            return 1;
        }
        if (strcmp(what, "collectives") == 0)
            collectives(comm);
        else if (strcmp(what, "death") == 0)
            death(comm);
        else
            return 2;
        if (strcmp(what, "death") != 0) OK(colls_barrier(comm, NULL));
    }
    OK(colls_comm_free(&comm));
    if (rank_ == 0 || wrong > 0) printf("%d ranks, rank %d: %ld checked, %ld wrong\n", size_, rank_, checked, wrong);
    return wrong > 0;
}
