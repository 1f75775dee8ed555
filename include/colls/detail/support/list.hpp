// An array that compiles fast: std::vector costs a unit 20 to 40 ms for each element type.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/config.hpp>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

namespace colls::inline v1::detail {

// For the library's tests under sanitizers and by mutants: an index past the end ends the program.
#ifdef COLLS_CHECK_INDICES
inline constexpr bool checks_indices = true;
#else
inline constexpr bool checks_indices = false;
#endif

/// Returns memory for `size` elements or more, which replaces p. Throws std::bad_alloc. Not a template: compiled once.
[[gnu::noinline]] inline void* grown(void* p, std::size_t& capacity, std::size_t size, std::size_t element) {
    std::size_t next = capacity < 8 ? 8 : capacity;
    while (next < size) next *= 2;
    void* const more = std::realloc(p, next * element);
    if (more == nullptr) throw std::bad_alloc();
    capacity = next;
    return more;
}

/// A growing array of trivially copyable elements.
template <class T>
class list {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    list() = default;
    list(list&& other) noexcept : p_(other.p_), size_(other.size_), capacity_(other.capacity_) {
        other.p_ = nullptr, other.size_ = other.capacity_ = 0;
    }
    list& operator=(list other) noexcept {
        std::swap(p_, other.p_), std::swap(size_, other.size_), std::swap(capacity_, other.capacity_);
        return *this;
    }
    ~list() {
        if (p_ != nullptr) std::free(p_);  // a call has several that are empty
    }

    std::size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T* data() { return p_; }
    const T* data() const { return p_; }
    T* begin() { return p_; }
    T* end() { return p_ + size_; }
    const T* begin() const { return p_; }
    const T* end() const { return p_ + size_; }
    // Takes any integer as an index: ranks and slots are int.
    template <class I>
    T& operator[](I i) {
        if (checks_indices && static_cast<std::size_t>(i) >= size_) __builtin_trap();
        return p_[i];
    }
    template <class I>
    const T& operator[](I i) const {
        if (checks_indices && static_cast<std::size_t>(i) >= size_) __builtin_trap();
        return p_[i];
    }
    T& back() { return p_[size_ - 1]; }

    void push_back(T x) {
        reserve(size_ + 1);
        p_[size_++] = x;
    }
    void append(const list& other) {
        for (const T& x : other) push_back(x);
    }
    void reserve(std::size_t size) {
        if (size > capacity_) p_ = static_cast<T*>(grown(p_, capacity_, size, sizeof(T)));
    }
    /// Sets the number of elements; new ones are `fill`.
    void resize(std::size_t size, T fill = T{}) {
        if (size > capacity_) reserve(size);
        while (size_ < size) p_[size_++] = fill;
        size_ = size;
    }
    void clear() { size_ = 0; }
    void pop_back() { --size_; }
    /// Removes element i; the last one takes its place.
    void drop(std::size_t i) { p_[i] = p_[--size_]; }

private:
    T* p_ = nullptr;
    std::size_t size_ = 0, capacity_ = 0;
};

/// Sorts by `before(a, b)`; elements of which neither is before the other keep their order. `spare` is overwritten.
template <class T, class F>
void merge_sort(list<T>& all, list<T>& spare, F before) {
    const std::size_t size = all.size();
    for (std::size_t run = 1; run < size; run *= 2) {
        spare.clear();
        for (std::size_t from = 0; from < size; from += 2 * run) {
            std::size_t a = from, b = from + run;
            const std::size_t middle = b < size ? b : size, end = b + run < size ? b + run : size;
            while (a < middle || b < end)
                spare.push_back(b >= end || (a < middle && !before(all[b], all[a])) ? all[a++] : all[b++]);
        }
        std::swap(all, spare);
    }
}

}  // namespace colls::inline v1::detail
