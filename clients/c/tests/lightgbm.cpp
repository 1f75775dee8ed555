// One rank of the tests of libcolls_lightgbm.so, without LightGBM: the two functions are called as its learners call
// them. tests/check starts it, as `program LIBRARY`.
#include <colls.h>

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

namespace {

using reduce_function = void (*)(const char* in, char* inout, int element, std::int32_t bytes);
using use_function = colls_status (*)(colls_comm comm, int in_order_of_sockets);
using reduce_scatter_function = void (*)(char* input, std::int32_t input_size, int element, const std::int32_t* start,
    const std::int32_t* length, int blocks, char* output, std::int32_t output_size, const reduce_function& reduce);
using all_gather_function = void (*)(char* input, std::int32_t input_size, const std::int32_t* start,
    const std::int32_t* length, int blocks, char* output, std::int32_t output_size);

int rank, size, wrong;
void expect(bool holds, const char* what, int line) {
    if (holds) return;
    ++wrong;
    std::fprintf(stderr, "rank %d of %d, line %d: %s; latest error: %s\n", rank, size, line, what, colls_error_text());
}
#define EXPECT(...) expect((__VA_ARGS__), #__VA_ARGS__, __LINE__)

template <class F>
F function_of(void* library, const char* name) {
    void* const found = dlsym(library, name);
    if (found == nullptr) {
        std::fprintf(stderr, "there is no %s: %s\n", name, dlerror());
        std::exit(1);
    }
    return reinterpret_cast<F>(found);
}

std::int32_t least_bytes, folds;
int given_element;
void add(const char* in, char* inout, int element, std::int32_t bytes) {
    given_element = element;
    if (folds++ == 0 || bytes < least_bytes) least_bytes = bytes;
    for (std::int32_t at = 0; at + 8 <= bytes; at += 8) {
        std::int64_t a, b;
        std::memcpy(&a, in + at, 8);
        std::memcpy(&b, inout + at, 8);
        b += a;
        std::memcpy(inout + at, &b, 8);
    }
}

std::int64_t input(int r, std::size_t i) { return (r + 1) * 1000 + static_cast<std::int64_t>(i * i); }

// Blocks of (b * 3 + extra) % 5 times `unit` elements, of which one may be empty, behind one element where `extra` is
// odd.
struct blocks {
    std::vector<std::int32_t> start, length;  // in bytes
    std::int32_t bytes;
    blocks(int extra, int unit) : bytes(extra % 2 * 8) {
        for (int b = 0; b < size; ++b) {
            start.push_back(bytes);
            length.push_back((b * 3 + extra) % 5 * unit * 8);
            bytes += length.back();
        }
    }
    std::int32_t own() const { return length[static_cast<std::size_t>(rank)]; }
    std::size_t first() const { return static_cast<std::size_t>(start[static_cast<std::size_t>(rank)]) / 8; }
};

template <class F>
std::string error_of(const F& f) {
    try {
        f();
    } catch (const std::exception& e) {
        return e.what();
    }
    return "";
}

}  // namespace

int main(int count, char** arguments) {
    void* const library = count > 1 ? dlopen(arguments[1], RTLD_NOW) : nullptr;
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", count > 1 ? dlerror() : "the library is to be given");
        return 2;
    }
    const auto use = function_of<use_function>(library, "colls_lightgbm_use");
    const auto reduce_scatter = function_of<reduce_scatter_function>(library, "colls_lightgbm_reduce_scatter");
    const auto all_gather = function_of<all_gather_function>(library, "colls_lightgbm_all_gather");
    colls_comm comm = nullptr;
    if (colls_world(&comm) != COLLS_OK || colls_rank(comm, &rank) != COLLS_OK || colls_size(comm, &size) != COLLS_OK) {
        std::fprintf(stderr, "%s\n", colls_error_text());
        return 1;
    }
    EXPECT(use(nullptr, 0) == COLLS_INVALID_HANDLE);
    for (const int in_order : {0, 1})
        for (const int unit : {1, 2, 200})
            for (int extra = 0; extra < 5; ++extra) {
                EXPECT(use(comm, in_order) == COLLS_OK);
                const blocks cut(extra, unit);
                const auto bytes = static_cast<std::size_t>(cut.bytes);
                std::vector<std::int64_t> in(bytes / 8 + 1), out(bytes / 8 + 1, -7);
                for (std::size_t i = 0; i < in.size(); ++i) in[i] = input(rank, i);
                folds = 0;
                reduce_scatter(reinterpret_cast<char*>(in.data()), cut.bytes, 8, cut.start.data(), cut.length.data(),
                    size, reinterpret_cast<char*>(out.data()), cut.own(), &add);
                for (std::size_t i = 0; i < static_cast<std::size_t>(cut.own()) / 8; ++i) {
                    std::int64_t sum = 0;
                    for (int r = 0; r < size; ++r) sum += input(r, cut.first() + i);
                    EXPECT(out[i] == sum);
                }
                EXPECT(out[static_cast<std::size_t>(cut.own()) / 8] == -7);
                EXPECT(folds == 0 || given_element == 8);
                // Two elements at a time, where blocks allow that: a gradient and its hessian stay together.
                if (folds > 0 && unit % 2 == 0 && extra % 2 == 0) EXPECT(least_bytes % 16 == 0);

                // The rank's block may be the beginning of the output, or lie elsewhere.
                for (const bool in_place : {false, true}) {
                    std::vector<std::int64_t> all(bytes / 8 + 1, -7), own(static_cast<std::size_t>(cut.own()) / 8 + 1);
                    for (std::size_t i = 0; i + 1 < own.size(); ++i) (in_place ? all : own)[i] = input(rank, 100 + i);
                    all_gather(reinterpret_cast<char*>(in_place ? all.data() : own.data()), cut.own(), cut.start.data(),
                        cut.length.data(), size, reinterpret_cast<char*>(all.data()), cut.bytes);
                    for (int r = 0; r < size; ++r)
                        for (std::size_t i = 0;
                            i < static_cast<std::size_t>(cut.length[static_cast<std::size_t>(r)]) / 8; ++i)
                            EXPECT(all[static_cast<std::size_t>(cut.start[static_cast<std::size_t>(r)]) / 8 + i] ==
                                   input(r, 100 + i));
                    EXPECT(all.back() == -7);
                }
            }
    colls_op op = COLLS_SUM;
    EXPECT(colls_premul_sum(2, &op) == COLLS_OK);
    EXPECT(static_cast<std::uint32_t>(op) < 4);  // its place: the operators of earlier calls have been freed
    EXPECT(colls_op_free(&op) == COLLS_OK);

    const blocks cut(1, 1);
    const auto gather = [&](int machines) {
        std::vector<char> all(static_cast<std::size_t>(cut.bytes) + 1), own(static_cast<std::size_t>(cut.own()) + 1);
        all_gather(own.data(), cut.own(), cut.start.data(), cut.length.data(), machines, all.data(), cut.bytes);
    };
    EXPECT(error_of([&] { gather(size - 1); }).find("another number of machines") != std::string::npos);
    EXPECT(error_of([&] { gather(size); }).empty());
    colls_comm part = nullptr;
    EXPECT(colls_split(comm, 0, 0, &part) == COLLS_OK && use(part, 0) == COLLS_OK);
    if (size > 1) {
        if (rank == 0) EXPECT(colls_abort(part, "enough") == COLLS_OK);
        EXPECT(error_of([&] { gather(size); }).find("enough") != std::string::npos);
    }
    EXPECT(use(comm, 0) == COLLS_OK && colls_comm_free(&part) == COLLS_OK);
    gather(size);
    EXPECT(colls_comm_free(&comm) == COLLS_OK);
    return wrong > 0;
}
