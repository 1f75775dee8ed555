// A schedule behind two function pointers: what the executors are compiled against, once, whatever the number of
// schedule types in the program. Per type this costs the two functions below.
#pragma once

#include <colls/algebra/folded.hpp>
#include <colls/detail/support/type_name.hpp>
#include <colls/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace colls::inline v1 {

class any_schedule;

namespace detail {

constexpr std::uint64_t hash_mix(std::uint64_t h, std::uint64_t x) {
    h ^= x + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    h *= 0xff51afd7ed558ccdull;
    return h ^ (h >> 32);
}
constexpr std::uint64_t hash_text(std::string_view s) {
    std::uint64_t h = 0xcbf29ce484222325ull;
    for (char c : s) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
    return h;
}

enum class question : unsigned char { rounds, ports, blocks, scratch, root, supports, home, input, output };

/// What a proof at run time found (see examine.hpp).
struct finding {
    bool right = false, order_preserving = false;
    int rank = none, round = none;
    message text;
};

struct schedule_table {
    collective implements;
    std::string_view type;  ///< its name: part of the fingerprint
    bool folds;             ///< folded<S> exists
    int (*answer)(const void* s, question q, int rank, int n, int slot);
    step (*at)(const void* s, int rank, int n, int round, int port);
    finding (*prove)(const any_schedule& s, int n);  // null: proven in the library's own tests
};

// Called while a plan is made, never while data moves: hence cold, small rather than fast.
template <class S>
[[gnu::cold]] int answer(const void* p, question q, int rank, int n, int slot) {
    const S& s = *static_cast<const S*>(p);
    switch (q) {
        case question::rounds:
            return s.rounds(n);
        case question::ports:
            return ports_of(s, n);
        case question::blocks:
            return blocks_of(s, n);
        case question::scratch:
            return scratch_of(s, n);
        case question::root:
            return root_of(s, n);
        case question::supports:
            return supports(s, n);
        case question::home:
            if constexpr (owned(implemented_by<S>))
                return home_of(s, n, slot);
            else
                return slot;
        case question::input:
            if constexpr (implemented_by<S> == collective::all_to_all) return input_of(s, rank, n, slot);
            break;
        case question::output:
            if constexpr (implemented_by<S> == collective::all_to_all) return output_of(s, rank, n, slot);
            break;
    }
    return none;
}
template <class S>
[[gnu::cold]] step step_at(const void* p, int rank, int n, int round, int port) {
    return step_of(*static_cast<const S*>(p), rank, n, round, port);
}
finding prove(const any_schedule& s, int n);

template <class S>
inline constexpr schedule_table table_of{
    implemented_by<S>, type_name<S>(), foldable<implemented_by<S>, S>(), &answer<S>, &step_at<S>, &prove};
/// Of a schedule whose proof is part of the library's tests: the verifier need not be compiled into the program.
template <class S>
inline constexpr schedule_table proven_table_of{
    implemented_by<S>, type_name<S>(), foldable<implemented_by<S>, S>(), &answer<S>, &step_at<S>, nullptr};

}  // namespace detail

/// Any schedule value of up to 64 bytes, by value. Models the same concept of use as the type that it holds: every
/// accessor of schedule.hpp works on it, with `implements` a run-time value.
class any_schedule {
public:
    collective implements;

    template <schedule S>
    explicit any_schedule(const S& s) : any_schedule(s, detail::table_of<S>, detail::written_name<S>()) {}
    /// `name`: what a user wrote for it, such as the family that it was derived from. It must outlive all use of this.
    template <schedule S>
    any_schedule(const S& s, const detail::schedule_table& table, std::string_view name)
        : implements(implemented_by<S>), table_(&table), name_(name) {
        static_assert(sizeof(S) <= sizeof(state_) && alignof(S) <= alignof(std::max_align_t),
            "colls: a schedule value holds at most 64 bytes");
        if constexpr (!std::is_empty_v<S>) {
            size_ = sizeof(S);
            std::memcpy(state_, &s, sizeof(S));
        }
    }
    std::string_view name() const { return name_; }
    std::string_view type() const { return table_->type; }
    int rounds(int n) const { return ask(detail::question::rounds, 0, n, 0); }
    int ports(int n) const { return ask(detail::question::ports, 0, n, 0); }
    int blocks(int n) const { return ask(detail::question::blocks, 0, n, 0); }
    int scratch(int n) const { return ask(detail::question::scratch, 0, n, 0); }
    int root(int n) const { return ask(detail::question::root, 0, n, 0); }
    bool supports(int n) const { return ask(detail::question::supports, 0, n, 0) != 0; }
    int home(int n, int slot) const { return ask(detail::question::home, 0, n, slot); }
    int input(int rank, int n, int slot) const { return ask(detail::question::input, rank, n, slot); }
    int output(int rank, int n, int slot) const { return ask(detail::question::output, rank, n, slot); }
    step at(int rank, int n, int round, int port) const { return table_->at(state_, rank, n, round, port); }

    /// Does folded<S> support n ranks?
    bool folds(int n) const {
        if (!table_->folds) return false;
        int p = 1;
        while (p <= n / 2) p *= 2;
        while (p > 0 && !supports(p)) p /= 2;
        return p > 0 && n - p <= p && (!owned(implements) || scratch(p) == 0);
    }

    bool needs_proof() const { return table_->prove != nullptr; }
    detail::finding prove(int n) const { return table_->prove(*this, n); }

    /// The same type with the same state, whatever the name: the key of the plan cache.
    friend bool operator==(const any_schedule& a, const any_schedule& b) {
        return a.table_ == b.table_ && std::memcmp(a.state_, b.state_, a.size_) == 0;
    }

private:
    int ask(detail::question q, int rank, int n, int slot) const { return table_->answer(state_, q, rank, n, slot); }

    const detail::schedule_table* table_;
    std::string_view name_;
    std::size_t size_ = 0;
    alignas(std::max_align_t) unsigned char state_[64] = {};
};

}  // namespace colls::inline v1

#ifndef COLLS_SEPARATE
#include <colls/detail/prove/examine.hpp>
#endif
