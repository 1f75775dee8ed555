// Views like std::mdspan and tensors of DLPack as buffers: which elements a call moves and where they lie, and what is
// refused. std_mdspan.cpp does the same with std::mdspan, where the standard library has it.
#include "catch.hpp"

#include "support/every_transport.hpp"
#include "support/says.hpp"

#include <colls/colls.hpp>
#include <colls/interop/coroutine.hpp>
#include <colls/interop/dlpack.hpp>
#include <colls/interop/mdspan.hpp>

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

using namespace support;
namespace interop = colls::interop;
namespace dynamic = colls::dynamic;
namespace dlpack = colls::interop::dlpack;
using dlpack::type_code;

namespace {

/// A view with the members of std::mdspan, of any extents and strides. `strided`: its mapping has strides.
template <class T, std::size_t Rank, bool strided = true, class Reference = T&>
class view {
public:
    using element_type = T;
    using reference = Reference;
    using array = std::array<std::size_t, Rank>;

    view(T* data, array extents, array strides) : data_(data), extents_(extents), strides_(strides) {}
    static constexpr std::size_t rank() { return Rank; }
    std::size_t extent(std::size_t d) const { return extents_[d]; }
    static constexpr bool is_always_strided() { return strided; }
    bool is_strided() const { return is_strided_; }
    void without_strides() { is_strided_ = false; }
    std::size_t stride(std::size_t d) const { return strides_[d]; }
    bool is_unique() const {
        for (std::size_t d = 0; d < Rank; ++d)
            if (strides_[d] == 0 && extents_[d] > 1) return false;
        return true;
    }
    bool is_exhaustive() const {
        std::size_t size = 1, span = 1;
        for (std::size_t d = 0; d < Rank; ++d) {
            size *= extents_[d];
            if (extents_[d] == 0) return true;
            span += (extents_[d] - 1) * strides_[d];
        }
        return size == span;
    }
    T* data_handle() const { return data_; }
    struct no_strides {};
    no_strides mapping() const { return {}; }

private:
    T* data_;
    array extents_, strides_;
    bool is_strided_ = true;
};
template <class T, std::size_t Rank>
view<T, Rank> rows_first(T* data, std::array<std::size_t, Rank> extents) {  // layout_right
    std::array<std::size_t, Rank> strides{};
    std::size_t stride = 1;
    for (std::size_t d = Rank; d-- > 0; stride *= extents[d]) strides[d] = stride;
    return {data, extents, strides};
}
template <class T, std::size_t Rank>
view<T, Rank> columns_first(T* data, std::array<std::size_t, Rank> extents) {  // layout_left
    std::array<std::size_t, Rank> strides{};
    std::size_t stride = 1;
    for (std::size_t d = 0; d < Rank; stride *= extents[d++]) strides[d] = stride;
    return {data, extents, strides};
}

/// For each element of a view, in the order of indices, its offset.
template <class V>
std::vector<std::size_t> offsets_of(const V& v) {
    std::vector<std::size_t> all{0};
    for (std::size_t d = 0; d < v.rank(); ++d) {
        std::vector<std::size_t> next;
        for (const std::size_t at : all)
            for (std::size_t i = 0; i < static_cast<std::size_t>(v.extent(d)); ++i)
                next.push_back(at + i * static_cast<std::size_t>(v.stride(d)));
        all = next;
    }
    return all;
}

/// An all_reduce of a view in memory of `size` ints, by loops and by a call: elements are summed, and what lies between
/// them stays. Rank 0 may have another view than the others.
template <class Make, class MakeOther>
void check_all_reduce(int n, std::size_t size, Make make, MakeOther other) {
    on_every_transport(n, [&](colls::communicator& comm) {
        std::vector<int> memory(size), want;
        const auto check = [&](auto v) {
            const auto at = offsets_of(v);
            for (std::size_t i = 0; i < size; ++i) memory[i] = -1 - static_cast<int>(i);
            for (std::size_t i = 0; i < at.size(); ++i) memory[at[i]] = 100 * static_cast<int>(i) + comm.rank();
            want = memory;
            for (std::size_t i = 0; i < at.size(); ++i)
                want[at[i]] = 100 * static_cast<int>(i) * comm.size() + comm.size() * (comm.size() - 1) / 2;
            const auto buffer = interop::strided(v);
            expect(buffer.size() == at.size(), "it has another size");
            std::vector<std::size_t> row(at.size());
            std::iota(row.begin(), row.end(), std::size_t{0});
            expect(buffer.in_row() == (at == row) || at.size() < 2, "it lies in a row, or does not");
            dynamic::all_reduce(comm, interop::strided(v), dynamic::op::sum);
            expect(memory == want, "other elements were summed");
        };
        if (comm.rank() == 0)
            check(other(memory.data()));
        else
            check(make(memory.data()));
    });
}
template <class Make>
void check_all_reduce(int n, std::size_t size, Make make) {
    check_all_reduce(n, size, make, make);
}

}  // namespace

TEST_CASE("mdspan: dynamic calls take views of any strides, in the order of indices", "[interop]") {
    using two = std::array<std::size_t, 2>;
    using three = std::array<std::size_t, 3>;
    for (const int n : {1, 2, 3}) {
        check_all_reduce(n, 12, [](int* p) { return rows_first<int, 2>(p, {3, 4}); });
        check_all_reduce(n, 12, [](int* p) { return columns_first<int, 2>(p, {3, 4}); });
        check_all_reduce(n, 24, [](int* p) { return view<int, 2>(p, two{3, 4}, two{8, 1}); });  // padded rows
        check_all_reduce(n, 24, [](int* p) { return view<int, 2>(p, two{3, 4}, two{8, 2}); });  // every other column
        check_all_reduce(n, 24, [](int* p) { return view<int, 2>(p, two{3, 4}, two{1, 6}); });  // padded columns
        check_all_reduce(n, 1000, [](int* p) { return view<int, 3>(p, three{4, 5, 7}, three{200, 30, 3}); });
        check_all_reduce(n, 1000, [](int* p) { return view<int, 3>(p, three{4, 5, 7}, three{7, 28, 140}); });
        check_all_reduce(n, 200, [](int* p) { return view<int, 3>(p, three{4, 5, 7}, three{1, 28, 4}); });
        check_all_reduce(n, 9, [](int* p) { return view<int, 2>(p, two{1, 1}, two{0, 0}); });
        check_all_reduce(n, 9, [](int* p) { return view<int, 2>(p, two{0, 3}, two{3, 1}); });
        check_all_reduce(n, 9, [](int* p) { return view<int, 1>(p, {3}, {4}); });
        check_all_reduce(n, 9, [](int* p) { return view<int, 0>(p, {}, {}); });
        // Ranks with different layouts of one tensor.
        check_all_reduce(
            n, 1000, [](int* p) { return columns_first<int, 3>(p, {4, 5, 7}); },
            [](int* p) { return view<int, 3>(p, three{4, 5, 7}, three{200, 30, 3}); });
    }
}

TEST_CASE("mdspan: typed calls, started ones too, take views without gaps", "[interop]") {
    on_every_transport(3, [](colls::communicator& comm) {
        std::vector<double> x(12, comm.rank());
        const auto v = columns_first<double, 2>(x.data(), {3, 4});
        colls::all_reduce(comm, interop::elements(v), colls::sum);
        colls::start::all_reduce(comm, interop::elements(v), colls::sum).wait();
        expect(x == std::vector<double>(12, 9), "the sums are others");
        const auto constant = rows_first<const double, 1>(x.data(), {12});
        static_assert(std::is_same_v<decltype(interop::elements(constant)), std::span<const double>>);
        std::vector<double> all(36);
        colls::all_gather(comm, interop::elements(constant), all);
        expect(all == std::vector<double>(36, 9), "the blocks are others");
        std::vector<double> again(36);
        dynamic::all_gather(
            comm, interop::strided(constant), interop::strided(rows_first<double, 1>(again.data(), {36})));
        expect(all == again, "the blocks of the dynamic call are others");
    });
}

TEST_CASE("mdspan: a coroutine awaits dynamic calls, whose buffers and layouts are temporaries", "[interop]") {
    on_every_transport(3, [](colls::communicator& comm) {
        std::vector<int> x(24), row(12);
        const auto v = view<int, 2>(x.data(), {3, 4}, {8, 2});
        const auto body = [&](int first) -> interop::task<> {
            for (int i = first; i < first + 3; ++i) {
                x.assign(x.size(), i + comm.rank());
                co_await dynamic::start::all_reduce(comm, interop::strided(v), dynamic::op::sum);
                expect(x[0] == 3 * i + 3 && x[22] == 3 * i + 3 && x[1] == i + comm.rank(), "the sums are others");
                co_await dynamic::start::all_reduce(
                    comm, {row.data(), 12, dynamic::type::int32}, dynamic::op::max, {.schedule = "ring"});
            }
        };
        interop::run(body(1));
    });
}

TEST_CASE("mdspan: what is no buffer is refused in words", "[interop]") {
    std::vector<int> x(100);
    using two = std::array<std::size_t, 2>;
    const auto padded = view<int, 2>(x.data(), two{3, 4}, two{8, 1});
    const auto repeated = view<int, 2>(x.data(), two{3, 4}, two{0, 1});
    CHECK(lacks(refusal_of([&] { (void)interop::elements(padded); }), {"3 x 4", "gaps", "interop::strided"}) == "");
    CHECK(lacks(refusal_of([&] { (void)interop::elements(repeated); }), {"3 x 4", "overlap"}) == "");
    auto blocked = rows_first<int, 2>(x.data(), {3, 4});
    blocked.without_strides();
    CHECK(lacks(refusal_of([&] { (void)interop::strided(blocked); }), {"3 x 4", "no strides", "copy it"}) == "");
    // As many elements as places, of which two are the same.
    const auto same = view<int, 2>(x.data(), two{2, 2}, two{0, 3});
    REQUIRE(same.is_exhaustive());
    CHECK(lacks(refusal_of([&] { (void)interop::elements(same); }), {"2 x 2", "overlap"}) == "");
    CHECK(lacks(refusal_of([&] { (void)interop::strided(repeated); }), {"stride 0", "dimension 0", "overlap"}) == "");
    const auto huge = view<int, 2>(x.data(), two{std::size_t{1} << 40, std::size_t{1} << 40}, two{1, 1});
    CHECK(lacks(refusal_of([&] { (void)interop::strided(huge); }), {"cannot have", "elements"}) == "");
    // 2^64 elements, which wraps to 0.
    const auto all =
        view<int, 2>(x.data(), two{std::size_t{1} << 32, std::size_t{1} << 32}, two{std::size_t{1} << 32, 1});
    REQUIRE(all.is_exhaustive());
    CHECK(lacks(refusal_of([&] { (void)interop::elements(all); }), {"cannot have", "4294967296 x 4294967296"}) == "");
    // Elements that overlap by their strides are refused by the call that would write them.
    colls::threads::run(2, [&](colls::communicator& comm) {
        std::vector<int> own(10);
        const auto overlapping = view<int, 2>(own.data(), two{3, 3}, two{2, 1});
        const std::string said =
            refusal_of([&] { dynamic::all_reduce(comm, interop::strided(overlapping), dynamic::op::max); });
        expect(says(said, "overlap"), "it says: " + said);
    });
    // At compile time: no strides, no references to memory, no data.
    static_assert(interop::mdspan_like<view<int, 2>> && interop::has_strides<view<int, 2>>);
    static_assert(!interop::has_strides<view<int, 2, false>>);
    static_assert(!interop::mdspan_like<std::vector<int>> && !interop::mdspan_like<std::span<int>>);
}

// DLPack

// The layout of dlpack.h 1.x on a target of 64 bits.
static_assert(sizeof(dlpack::device) == 8 && offsetof(dlpack::device, id) == 4);
static_assert(sizeof(dlpack::data_type) == 4 && offsetof(dlpack::data_type, bits) == 1 &&
              offsetof(dlpack::data_type, lanes) == 2);
static_assert(sizeof(dlpack::tensor) == 48 && offsetof(dlpack::tensor, device) == 8 &&
              offsetof(dlpack::tensor, dimensions) == 16 && offsetof(dlpack::tensor, dtype) == 20 &&
              offsetof(dlpack::tensor, shape) == 24 && offsetof(dlpack::tensor, strides) == 32 &&
              offsetof(dlpack::tensor, byte_offset) == 40);
static_assert(sizeof(dlpack::managed_tensor) == 64 && offsetof(dlpack::managed_tensor, manager) == 48 &&
              offsetof(dlpack::managed_tensor, deleter) == 56);
static_assert(sizeof(dlpack::managed_tensor_versioned) == 80 &&
              offsetof(dlpack::managed_tensor_versioned, manager) == 8 &&
              offsetof(dlpack::managed_tensor_versioned, deleter) == 16 &&
              offsetof(dlpack::managed_tensor_versioned, flags) == 24 &&
              offsetof(dlpack::managed_tensor_versioned, dl_tensor) == 32);
static_assert(std::is_trivially_copyable_v<dlpack::managed_tensor_versioned>);

namespace {

/// A tensor on the CPU with room for its numbers.
struct made_tensor {
    std::vector<std::int64_t> shape, strides;
    dlpack::tensor t{};
    made_tensor(
        void* data, dlpack::data_type type, std::vector<std::int64_t> shape_, std::vector<std::int64_t> strides_ = {})
        : shape(std::move(shape_)), strides(std::move(strides_)) {
        t = {data, {dlpack::device_type::cpu, 0}, static_cast<std::int32_t>(shape.size()), type, shape.data(),
            strides.empty() ? nullptr : strides.data(), 0};
    }
};

constexpr dlpack::data_type int32{type_code::integer, 32, 1}, float32{type_code::floating, 32, 1};

/// The elements that a dynamic call takes of an int32 tensor, in their order.
std::vector<int> elements_of(const dlpack::tensor& t) {
    std::vector<int> all;
    colls::threads::run(1, [&](colls::communicator& comm) {
        const auto in = interop::strided(t);
        all.resize(in.size());
        dynamic::all_gather(comm, in, {all.data(), all.size(), dynamic::type::int32});
    });
    return all;
}

}  // namespace

TEST_CASE("dlpack: a tensor's elements come in the order of indices", "[interop]") {
    std::vector<int> x(24);
    std::iota(x.begin(), x.end(), 0);
    const auto of = [&](std::vector<std::int64_t> shape, std::vector<std::int64_t> strides = {},
                        std::uint64_t offset = 0) {
        made_tensor m(x.data(), int32, std::move(shape), std::move(strides));
        m.t.byte_offset = offset;
        return elements_of(m.t);
    };
    const auto from = [](int first, int count) {
        std::vector<int> all(static_cast<std::size_t>(count));
        std::iota(all.begin(), all.end(), first);
        return all;
    };
    // What NumPy has for a = np.arange(24).reshape(4, 6).
    CHECK(of({4, 6}) == from(0, 24));                                              // a
    CHECK(of({4, 6}, {6, 1}) == from(0, 24));                                      // the same
    CHECK(of({2, 3, 4}) == from(0, 24));                                           // a.reshape(2, 3, 4)
    CHECK(of({6, 4}, {1, 6})[5] == 7);                                             // a.T.flatten()[5]
    CHECK(of({2, 3}, {12, 2}) == std::vector<int>{0, 2, 4, 12, 14, 16});           // a[::2, ::2]
    CHECK(of({2, 2}, {6, 1}, 8 * sizeof(int)) == std::vector<int>{8, 9, 14, 15});  // a[1:3, 2:4]
    CHECK(of({4}, {6}, 5 * sizeof(int)) == std::vector<int>{5, 11, 17, 23});       // a[:, 5]
    CHECK(of({3, 2, 2}, {2, 1, 12}) == std::vector<int>{0, 12, 1, 13, 2, 14, 3, 15, 4, 16, 5, 17});
    CHECK(of({}) == from(0, 1));  // a scalar
    CHECK(of({0, 6}).empty());
    CHECK(of({3, 0}, {0, 0}).empty());        // without elements strides say nothing
    CHECK(of({1, 4}, {0, 1}) == from(0, 4));  // an extent of 1 may have any stride
    CHECK(of({1, 4}, {-7, 1}) == from(0, 4));
}

TEST_CASE("dlpack: calls on tensors, typed and dynamic, on every transport", "[interop]") {
    on_every_transport(3, [](colls::communicator& comm) {
        std::vector<float> x(24);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) + static_cast<float>(comm.rank());
        made_tensor every_other(x.data(), float32, {4, 3}, {6, 2});
        dynamic::all_reduce(comm, interop::strided(every_other.t), dynamic::op::sum);
        for (std::size_t i = 0; i < x.size(); ++i)
            expect(x[i] == (i % 2 == 0 ? 3 * static_cast<float>(i) + 3
                                       : static_cast<float>(i) + static_cast<float>(comm.rank())),
                "element " + std::to_string(i) + " is wrong");
        made_tensor whole(x.data(), float32, {4, 6});
        whole.t.device.type = dlpack::device_type::cuda_host;
        colls::broadcast(comm, interop::elements<float>(whole.t), 1);
        expect(x[1] == 2, "it was not broadcast");
    });
}

TEST_CASE("dlpack: every type with a code, and no other", "[interop]") {
    std::array<std::byte, 64> room{};
    const auto name = [&](dlpack::data_type d) {
        made_tensor m(room.data(), d, {2});
        return std::string(dynamic::const_buffer(interop::strided(m.t)).type.name());
    };
    const auto typed = [&]<class T>(T) {
        made_tensor m(room.data(), dlpack::type_of<T>, {2});
        CHECK(interop::elements<T>(m.t).size() == 2);
        CHECK(dynamic::const_buffer(interop::strided(m.t)).type.size() == sizeof(T));
    };
    typed(std::int8_t{}), typed(std::int16_t{}), typed(std::int32_t{}), typed(std::int64_t{});
    typed(std::uint8_t{}), typed(std::uint16_t{}), typed(std::uint32_t{}), typed(std::uint64_t{}), typed(1LL);
    typed(colls::half{}), typed(colls::bfloat16{}), typed(float{}), typed(double{}), typed(bool{});
    typed(std::complex<float>{}), typed(std::complex<double>{});
    CHECK(says(name({type_code::integer, 16, 1}), "short"));
    CHECK(name({type_code::unsigned_integer, 8, 1}) == "unsigned char");
    CHECK(name({type_code::floating, 64, 1}) == "double");
    CHECK(says(name({type_code::floating, 16, 1}), "half"));
    CHECK(says(name({type_code::bfloat, 16, 1}), "bfloat16"));
    CHECK(says(name({type_code::complex, 64, 1}), "complex<float>"));
    CHECK(name({type_code::boolean, 8, 1}) == "bool");
    const auto refused = [&](dlpack::data_type d) { return refusal_of([&] { (void)name(d); }); };
    CHECK(lacks(refused({static_cast<type_code>(10), 8, 1}), {"code 10 of 8 bits", "element_type::bytes"}) == "");
    CHECK(lacks(refused({type_code::floating, 32, 4}), {"float32 in vectors of 4"}) == "");
    CHECK(lacks(refused({type_code::floating, 128, 1}), {"float128"}) == "");
    CHECK(lacks(refused({type_code::integer, 4, 1}), {"int4"}) == "");
    made_tensor m(room.data(), float32, {2});
    CHECK(lacks(refusal_of([&] { (void)interop::elements<double>(m.t); }), {"of type float32", "takes float64"}) == "");
    struct own {
        int x;
    };
    CHECK(lacks(refusal_of([&] { (void)interop::elements<own>(m.t); }), {"specialise"}) == "");
}

TEST_CASE("dlpack: tensors that no call can take are refused in words", "[interop]") {
    std::vector<float> x(100);
    const auto refused = [&](auto change) {
        made_tensor m(x.data(), float32, {3, 4}, {4, 1});
        change(m);
        return refusal_of([&] { (void)interop::strided(m.t); });
    };
    CHECK(refused([](made_tensor&) {}) == "none");
    CHECK(lacks(refused([](made_tensor& m) { m.t.device = {dlpack::device_type::cuda, 1}; }),
              {"3 x 4", "CUDA device 1", "memory of the host", "device_elements"}) == "");
    CHECK(lacks(refused([](made_tensor& m) { m.t.device = {static_cast<dlpack::device_type>(8), 0}; }),
              {"device type 8", "copy it"}) == "");
    CHECK(lacks(refused([](made_tensor& m) { m.strides = {0, 1}, m.t.strides = m.strides.data(); }),
              {"stride 0", "dimension 0", "overlap"}) == "");
    CHECK(lacks(refused([](made_tensor& m) { m.strides[1] = -1; }), {"stride -1", "dimension 1", "copy it"}) == "");
    CHECK(lacks(refused([](made_tensor& m) { m.shape[0] = -3; }), {"-3 x 4"}) == "");
    // Strides whose products with a size wrap: 4 * 2^62 is 0, and 2^63 - 1 three times is less than it was.
    for (const std::int64_t far : {std::int64_t{1} << 62, INT64_MAX})
        CHECK(lacks(refused([=](made_tensor& m) { m.strides[0] = far; }), {"overflowed"}) == "");
    CHECK(
        lacks(refused([=](made_tensor& m) { m.strides = {4, std::int64_t{1} << 62}, m.t.strides = m.strides.data(); }),
            {"overflowed"}) == "");
    CHECK(lacks(refused([](made_tensor& m) { m.shape = {0, -3}, m.t.shape = m.shape.data(); }), {"0 x -3"}) == "");
    CHECK(lacks(refused([](made_tensor& m) { m.t.shape = nullptr; }), {"2 dimensions", "no shape"}) == "");
    CHECK(lacks(refused([](made_tensor& m) { m.t.dimensions = -1; }), {"-1 dimensions"}) == "");
    CHECK(lacks(refused([](made_tensor& m) { m.t.data = nullptr; }), {"3 x 4", "null"}) == "");
    CHECK(refused([](made_tensor& m) { m.t.data = nullptr, m.shape[1] = 0; }) == "none");
    CHECK(lacks(refused([](made_tensor& m) { m.t.data = nullptr, m.t.dimensions = 0; }), {"of 1 elements", "null"}) ==
          "");
    made_tensor gaps(x.data(), float32, {3, 4}, {8, 1});
    CHECK(lacks(refusal_of([&] { (void)interop::elements<float>(gaps.t); }), {"in a row", "interop::strided"}) == "");
    // A transposed one has no gaps, but its elements are in another order.
    made_tensor transposed(x.data(), float32, {4, 3}, {1, 4});
    CHECK(lacks(refusal_of([&] { (void)interop::elements<float>(transposed.t); }), {"in a row"}) == "");
}

TEST_CASE("dlpack: memory of a GPU becomes spans for that GPU alone", "[interop]") {
    std::vector<float> x(12);
    made_tensor m(x.data(), float32, {3, 4});
    m.t.byte_offset = 4;
    m.t.device = {dlpack::device_type::cuda, 1};
    const auto got = interop::device_elements<const float>(m.t, 1);
    CHECK(got.data() == x.data() + 1);
    CHECK(got.size() == 12);
    CHECK(lacks(refusal_of([&] { (void)interop::device_elements<float>(m.t, 0); }),
              {"on CUDA device 1", "takes memory of CUDA device 0"}) == "");
    CHECK(lacks(refusal_of([&] { (void)interop::device_elements<int>(m.t, 1); }), {"of type float32", "int32"}) == "");
    m.t.device = {dlpack::device_type::cpu, 0};
    CHECK(lacks(refusal_of([&] { (void)interop::device_elements<float>(m.t, 0); }), {"on the CPU"}) == "");
    m.t.device = {dlpack::device_type::cuda_host, 0};
    CHECK(lacks(refusal_of([&] { (void)interop::device_elements<float>(m.t, 0); }), {"on the CPU, of CUDA"}) == "");
    m.t.device = {dlpack::device_type::cuda_managed, 0};
    CHECK(interop::device_elements<float>(m.t, 1).size() == 12);
    CHECK(interop::elements<float>(m.t).size() == 12);
}

TEST_CASE("dlpack: an owner calls the deleter once, and keeps read-only tensors from outputs", "[interop]") {
    static int deleted = 0;
    deleted = 0;
    std::vector<float> x(12);
    made_tensor m(x.data(), float32, {3, 4});
    dlpack::managed_tensor old{m.t, nullptr, [](dlpack::managed_tensor*) { ++deleted; }};
    {
        dlpack::owner a(&old);
        CHECK(interop::strided(a.writable()).size() == 12);
        dlpack::owner b(std::move(a));
        CHECK(deleted == 0);
        CHECK(&b.readable() == &old.dl_tensor);
    }
    CHECK(deleted == 1);
    dlpack::managed_tensor_versioned with{
        {1, 3}, nullptr, [](dlpack::managed_tensor_versioned*) { ++deleted; }, 0, m.t};
    { const dlpack::owner a(&with); }
    CHECK(deleted == 2);
    with.flags = dlpack::flag_read_only;
    {
        const dlpack::owner a(&with);
        CHECK(interop::strided(a.readable()).size() == 12);
        CHECK(lacks(refusal_of([&] { (void)a.writable(); }), {"read only"}) == "");
    }
    CHECK(deleted == 3);
    {
        dlpack::owner a(&old), b(&with);
        a = std::move(b);
        CHECK(&a.readable() == &with.dl_tensor);
        CHECK(lacks(refusal_of([&] { (void)a.writable(); }), {"read only"}) == "");
        CHECK(&b.writable() == &old.dl_tensor);
        CHECK(deleted == 3);
    }
    CHECK(deleted == 5);
    deleted = 3;
    with.version.major = 2;
    CHECK(lacks(refusal_of([&] { const dlpack::owner a(&with); }), {"version 2.x"}) == "");
    CHECK(deleted == 4);
    old.deleter = nullptr;
    { const dlpack::owner a(&old); }
}
