#include "types.hpp"

#include "failure.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <unordered_map>
#include <vector>

namespace colls_mpi {

namespace {

/// How many arguments of each kind a datatype was made from.
struct envelope {
    explicit envelope(MPI_Datatype type) {
#if MPI_VERSION >= 4
        PMPI_Type_get_envelope_c(type, &integers, &addresses, &counts, &types, &combiner);
#else
        PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
#endif
    }
#if MPI_VERSION >= 4
    using number = MPI_Count;
#else
    using number = int;
#endif
    number integers = 0, addresses = 0, counts = 0, types = 0;
    int combiner = MPI_COMBINER_NAMED;
};

}  // namespace

bool is_predefined(MPI_Datatype type) { return envelope(type).combiner == MPI_COMBINER_NAMED; }
kept_type::kept_type(MPI_Datatype type) {
    check(PMPI_Type_contiguous(1, type, &type_), "MPI_Type_contiguous");
    check(PMPI_Type_commit(&type_), "MPI_Type_commit");
}

namespace {

/// Made by MPI_Type_create_f90_real or its like: such a type is not freed.
bool is_of_fortran(MPI_Datatype type) {
    const int made_by = envelope(type).combiner;
    return made_by == MPI_COMBINER_F90_REAL || made_by == MPI_COMBINER_F90_COMPLEX ||
           made_by == MPI_COMBINER_F90_INTEGER;
}

/// What a derived datatype was made from.
class contents {
public:
    explicit contents(MPI_Datatype type) {
        const envelope e(type);
        combiner = e.combiner;
        if (combiner == MPI_COMBINER_NAMED) return;
        std::vector<int> ints(static_cast<std::size_t>(e.integers));
        addresses.resize(static_cast<std::size_t>(e.addresses));
        types.resize(static_cast<std::size_t>(e.types));
#if MPI_VERSION >= 4
        std::vector<MPI_Count> counts(static_cast<std::size_t>(e.counts));
        PMPI_Type_get_contents_c(type, e.integers, e.addresses, e.counts, e.types, ints.data(), addresses.data(),
            counts.data(), types.data());
        if (!counts.empty()) {
            take_large(ints, counts);
            return;
        }
#else
        PMPI_Type_get_contents(type, e.integers, e.addresses, e.types, ints.data(), addresses.data(), types.data());
#endif
        integers.assign(ints.begin(), ints.end());
    }
    contents(const contents&) = delete;
    contents& operator=(const contents&) = delete;
    ~contents() {
        for (MPI_Datatype& type : types)
            if (!is_predefined(type) && !is_of_fortran(type)) PMPI_Type_free(&type);
    }

    int combiner = MPI_COMBINER_NAMED;
    std::vector<MPI_Count> integers;
    std::vector<MPI_Aint> addresses;
    std::vector<MPI_Datatype> types;

private:
    /// A function whose name ends in _c has made the type: its counts and addresses are one array. Arranges them as
    /// those of the other function.
    [[maybe_unused]] void take_large(const std::vector<int>& ints, const std::vector<MPI_Count>& counts) {
        const auto n = static_cast<std::ptrdiff_t>(counts[0]);
        std::ptrdiff_t first_address = std::ssize(counts);
        switch (combiner) {
            case MPI_COMBINER_HVECTOR:
            case MPI_COMBINER_HINDEXED_BLOCK:
                first_address = 2;
                break;
            case MPI_COMBINER_HINDEXED:
            case MPI_COMBINER_STRUCT:
                first_address = 1 + n;
                break;
            default:
                break;
        }
        // The sizes of an array come behind the number of its dimensions.
        const std::ptrdiff_t before = combiner == MPI_COMBINER_DARRAY ? 3 : combiner == MPI_COMBINER_SUBARRAY ? 1 : 0;
        integers.assign(ints.begin(), ints.begin() + before);
        integers.insert(integers.end(), counts.begin(), counts.begin() + first_address);
        integers.insert(integers.end(), ints.begin() + before, ints.end());
        addresses.assign(counts.begin() + first_address, counts.end());
    }
};

/// Calls f with the displacement in bytes, the number and the type of each row of elements that a derived type is made
/// of, in the order of its signature. False: of a combiner that is not known here.
bool for_each_part(const contents& of, const part_function& f) {
    const auto number = [&](std::size_t i) { return static_cast<std::size_t>(of.integers[i]); };
    const auto extent = [&] { return layout_of(of.types[0]).extent; };
    switch (of.combiner) {
        case MPI_COMBINER_DUP:
        case MPI_COMBINER_RESIZED:
            f(0, 1, of.types[0]);
            return true;
        case MPI_COMBINER_CONTIGUOUS:
            f(0, number(0), of.types[0]);
            return true;
        case MPI_COMBINER_VECTOR:  // count, length of a block, stride in elements
            for (std::size_t i = 0; i < number(0); ++i)
                f(static_cast<MPI_Aint>(i) * of.integers[2] * extent(), number(1), of.types[0]);
            return true;
        case MPI_COMBINER_HVECTOR:  // and in bytes
            for (std::size_t i = 0; i < number(0); ++i)
                f(static_cast<MPI_Aint>(i) * of.addresses[0], number(1), of.types[0]);
            return true;
        case MPI_COMBINER_INDEXED:  // count, lengths of blocks, displacements in elements
            for (std::size_t i = 0; i < number(0); ++i)
                f(of.integers[1 + number(0) + i] * extent(), number(1 + i), of.types[0]);
            return true;
        case MPI_COMBINER_HINDEXED:
            for (std::size_t i = 0; i < number(0); ++i) f(of.addresses[i], number(1 + i), of.types[0]);
            return true;
        case MPI_COMBINER_INDEXED_BLOCK:  // count, length of a block, displacements
            for (std::size_t i = 0; i < number(0); ++i) f(of.integers[2 + i] * extent(), number(1), of.types[0]);
            return true;
        case MPI_COMBINER_HINDEXED_BLOCK:
            for (std::size_t i = 0; i < number(0); ++i) f(of.addresses[i], number(1), of.types[0]);
            return true;
        case MPI_COMBINER_STRUCT:  // count, lengths of blocks
            for (std::size_t i = 0; i < number(0); ++i) f(of.addresses[i], number(1 + i), of.types[i]);
            return true;
        case MPI_COMBINER_SUBARRAY: {  // dimensions, sizes, sizes of the part, where it begins, order
            const std::size_t n = number(0);
            const bool c_order = of.integers[1 + 3 * n] == MPI_ORDER_C;
            // Dimension d from the one whose index changes fastest.
            const auto axis = [&](std::size_t d) { return c_order ? n - 1 - d : d; };
            const auto size = [&](std::size_t d) { return static_cast<MPI_Aint>(of.integers[1 + axis(d)]); };
            const auto part = [&](std::size_t d) { return number(1 + n + axis(d)); };
            const auto begin = [&](std::size_t d) { return static_cast<MPI_Aint>(of.integers[1 + 2 * n + axis(d)]); };
            std::vector<std::size_t> index(n, 0);
            for (bool more = true; more;) {
                MPI_Aint at = 0, row = 1;
                for (std::size_t d = 0; d < n; row *= size(d), ++d)
                    at += (begin(d) + static_cast<MPI_Aint>(index[d])) * row;
                f(at * extent(), part(0), of.types[0]);
                more = false;
                for (std::size_t d = 1; d < n && !more; ++d)
                    if (more = ++index[d] < part(d); !more) index[d] = 0;
            }
            return true;
        }
        default:
            return false;
    }
}

// Size and extent do not tell: an indexed type may name its elements in another order than they lie in. Types that are
// in a row and not found to be are packed, which is right, too.
bool data_is_in_order(MPI_Datatype type) {
    const contents made_from(type);
    switch (made_from.combiner) {
        case MPI_COMBINER_NAMED:
            return true;
        case MPI_COMBINER_DUP:
        case MPI_COMBINER_CONTIGUOUS:
        case MPI_COMBINER_RESIZED:
            return layout_of(made_from.types[0]).in_row;
        case MPI_COMBINER_SUBARRAY:  // names its elements as they lie
            return layout_of(made_from.types[0]).in_row;
        case MPI_COMBINER_DARRAY: {  // the number of processes, this one, the number of dimensions n, sizes,
                                     // distributions, arguments, and from there processes by dimension: as they lie
                                     // where this one has all
            const auto n = static_cast<std::size_t>(made_from.integers[2]);
            for (std::size_t i = 0; i < n; ++i)
                if (made_from.integers[3 + 3 * n + i] != 1) return false;
            return layout_of(made_from.types[0]).in_row;
        }
        default: {
            MPI_Aint at = 0;
            bool in_order = true;
            const bool has_parts = for_each_part(made_from, [&](MPI_Aint place, std::size_t count, MPI_Datatype of) {
                if (count == 0 || !in_order) return;
                const layout part = layout_of(of);
                in_order = part.in_row && place == at;
                at += static_cast<MPI_Aint>(count) * part.extent;
            });
            return has_parts && in_order;
        }
    }
}

using colls::dynamic::type;

template <class T>
constexpr type integer_code() {
    constexpr bool is_signed = static_cast<T>(-1) < T{};
    switch (sizeof(T)) {
        case 1:
            return is_signed ? type::int8 : type::uint8;
        case 2:
            return is_signed ? type::int16 : type::uint16;
        case 4:
            return is_signed ? type::int32 : type::uint32;
        default:
            return is_signed ? type::int64 : type::uint64;
    }
}

using table = std::unordered_map<MPI_Datatype, known_type>;

table make_table() {
    table known;
    // An MPI without Fortran or C++ has no such types.
    const auto add = [&](MPI_Datatype handle, category what, type code) {
        if (handle != MPI_DATATYPE_NULL) known.emplace(handle, known_type{what, true, code});
    };
    const auto add_without_code = [&](MPI_Datatype handle, category what) {
        if (handle != MPI_DATATYPE_NULL) known.emplace(handle, known_type{what, false, type::bytes});
    };
    add(MPI_SIGNED_CHAR, category::integer, type::int8);
    add(MPI_UNSIGNED_CHAR, category::integer, type::uint8);
    add(MPI_SHORT, category::integer, integer_code<short>());
    add(MPI_UNSIGNED_SHORT, category::integer, integer_code<unsigned short>());
    add(MPI_INT, category::integer, integer_code<int>());
    add(MPI_UNSIGNED, category::integer, integer_code<unsigned>());
    add(MPI_LONG, category::integer, integer_code<long>());
    add(MPI_UNSIGNED_LONG, category::integer, integer_code<unsigned long>());
    add(MPI_LONG_LONG, category::integer, integer_code<long long>());
    add(MPI_UNSIGNED_LONG_LONG, category::integer, integer_code<unsigned long long>());
    add(MPI_INT8_T, category::integer, type::int8);
    add(MPI_INT16_T, category::integer, type::int16);
    add(MPI_INT32_T, category::integer, type::int32);
    add(MPI_INT64_T, category::integer, type::int64);
    add(MPI_UINT8_T, category::integer, type::uint8);
    add(MPI_UINT16_T, category::integer, type::uint16);
    add(MPI_UINT32_T, category::integer, type::uint32);
    add(MPI_UINT64_T, category::integer, type::uint64);
    add(MPI_AINT, category::integer, integer_code<MPI_Aint>());
    add(MPI_OFFSET, category::integer, integer_code<MPI_Offset>());
    add(MPI_COUNT, category::integer, integer_code<MPI_Count>());
    add(MPI_FLOAT, category::real, type::float32);
    add(MPI_DOUBLE, category::real, type::float64);
    add(MPI_LONG_DOUBLE, category::real, type::long_double);
    add(MPI_C_FLOAT_COMPLEX, category::complex, type::complex_float32);
    add(MPI_C_DOUBLE_COMPLEX, category::complex, type::complex_float64);
    add(MPI_CXX_FLOAT_COMPLEX, category::complex, type::complex_float32);
    add(MPI_CXX_DOUBLE_COMPLEX, category::complex, type::complex_float64);
    add_without_code(MPI_C_LONG_DOUBLE_COMPLEX, category::complex);
    add_without_code(MPI_CXX_LONG_DOUBLE_COMPLEX, category::complex);
    add(MPI_C_BOOL, category::logical, type::boolean);
    add(MPI_CXX_BOOL, category::logical, type::boolean);
    add(MPI_BYTE, category::bytes, type::bytes);
    add(MPI_FLOAT_INT, category::pair, type::float32_index);
    add(MPI_DOUBLE_INT, category::pair, type::float64_index);
    add(MPI_SHORT_INT, category::pair, type::int16_index);
    add(MPI_2INT, category::pair, type::int32_index);
    add(MPI_LONG_INT, category::pair, type::int64_index);
    add(MPI_LONG_DOUBLE_INT, category::pair, type::long_double_index);
    // Types of Fortran. Its logical values are not those of C everywhere, and its pairs have two reals: MPI folds them.
    // Its others are those of C of the same size: what MPI_INTEGER has depends on how MPI's Fortran was built.
    const auto add_of_size = [&](std::size_t bytes, MPI_Datatype handle, category what, type code) {
        int size = 0;
        if (handle == MPI_DATATYPE_NULL || PMPI_Type_size(handle, &size) != MPI_SUCCESS) return;
        if (static_cast<std::size_t>(size) == bytes) add(handle, what, code);
    };
    for (const MPI_Datatype t : {MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8}) {
        add_of_size(1, t, category::integer, type::int8);
        add_of_size(2, t, category::integer, type::int16);
        add_of_size(4, t, category::integer, type::int32);
        add_of_size(8, t, category::integer, type::int64);
    }
    for (const MPI_Datatype t : {MPI_REAL, MPI_DOUBLE_PRECISION, MPI_REAL4, MPI_REAL8}) {
        add_of_size(4, t, category::real, type::float32);
        add_of_size(8, t, category::real, type::float64);
    }
    for (const MPI_Datatype t : {MPI_COMPLEX, MPI_DOUBLE_COMPLEX, MPI_COMPLEX8, MPI_COMPLEX16}) {
        add_of_size(8, t, category::complex, type::complex_float32);
        add_of_size(16, t, category::complex, type::complex_float64);
    }
    add_without_code(MPI_LOGICAL, category::logical);
    add_without_code(MPI_2INTEGER, category::pair);
    add_without_code(MPI_2REAL, category::pair);
    add_without_code(MPI_2DOUBLE_PRECISION, category::pair);
    return known;
}

}  // namespace

bool for_each_part(MPI_Datatype type, const part_function& f) { return for_each_part(contents(type), f); }

namespace {

layout find_layout(MPI_Datatype type) {
    MPI_Count size = 0;
    MPI_Aint lower = 0, extent = 0, first = 0, length = 0;
    PMPI_Type_size_x(type, &size);
    PMPI_Type_get_extent(type, &lower, &extent);
    PMPI_Type_get_true_extent(type, &first, &length);
    layout l{static_cast<std::size_t>(size), extent, first, first + length, false};
    l.in_row = first == 0 && extent == size && length == size && data_is_in_order(type);
    return l;
}

}  // namespace

layout layout_of(MPI_Datatype type) {
    // Predefined datatypes stay as they are: the program cannot free them.
    struct entry {
        bool is_known;
        MPI_Datatype type;
        layout lies;
    };
    static thread_local entry recent[16];
    std::uintptr_t bits = 0;
    std::memcpy(&bits, &type, sizeof type);  // a pointer or an integer
    entry& e = recent[(bits ^ bits >> 9) % std::size(recent)];
    if (!e.is_known || e.type != type) {
        const layout l = find_layout(type);
        if (!is_predefined(type)) return l;
        e = {true, type, l};
    }
    return e.lies;
}

known_type known_type_of(MPI_Datatype type) {
    static const table known = make_table();
    const auto found = known.find(type);
    return found == known.end() ? known_type{} : found->second;
}

}  // namespace colls_mpi
