// Names of types: as the compiler spells them, and as a user writes them.
// IWYU pragma: private, include <colls/any_schedule.hpp>
#pragma once

#include <colls/config.hpp>

#include <cstddef>
#include <string_view>

namespace colls::inline v1::detail {

// In a namespace of its own: g++ leaves out the names of the namespaces that the function is in, and so would detail::.
namespace spelling {
/// The type's name as the compiler spells it.
template <class S>
constexpr std::string_view full_type_name() {
    constexpr std::string_view text = __PRETTY_FUNCTION__;
    constexpr std::size_t from = text.find("S = ") + 4;
    return text.substr(from, text.find_first_of(";]", from) - from);
}
}  // namespace spelling
using spelling::full_type_name;

/// The same without the library's namespace in front: what fingerprints hash.
template <class S>
constexpr std::string_view type_name() {
    std::string_view name = full_type_name<S>();
    for (std::string_view prefix : {std::string_view("colls::v1::"), std::string_view("colls::")})
        if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    return name;
}

/// Rewrites a compiler's spelling of a type as its user wrote it: g++ writes
/// `colls::v1::detail::folding<colls::v1::tree<2> >`, clang `colls::detail::folding<colls::tree<>>`, and the user
/// `folded<tree>`.
class name_shortener {
public:
    name_shortener(std::string_view in, char* out) : in_(in), out_(out) {}

    /// Returns the number of characters written, which is at most that of `in`.
    std::size_t run() {
        while (!in_.empty()) {
            if (size_ == starts_[depth_] && (take("colls::v1::") || take("colls::"))) {  // a name begins here
                take("detail::");
                for (const renaming& r : renamings)
                    if (take(r.spelled)) {
                        put(r.written);
                        break;
                    }
            } else if (take("{anonymous}::") || take("(anonymous namespace)::") || take_lambda()) {
            } else if (take_function()) {
                size_ = starts_[depth_];
            } else {
                if (in_.starts_with(" >")) in_.remove_prefix(1);  // between two closing brackets
                put(in_[0]);
                in_.remove_prefix(1);
            }
        }
        return size_;
    }

private:
    struct renaming {
        std::string_view spelled, written;
    };
    static constexpr renaming renamings[] = {{"reversal<", "reversed<"}, {"reversed_family<", "reversed<"},
        {"folding<", "folded<"}, {"folded_family<", "folded<"}, {"recursive_multiplying<2>", "recursive_doubling"},
        {"recursive_multiplying<>", "recursive_doubling"}, {"tree<2>", "tree"}, {"tree<>", "tree"},
        {"bruck<2>", "bruck"}, {"bruck<>", "bruck"}, {"pat<1>", "pat"}, {"pat<>", "pat"}, {"circulant<>", "circulant"},
        {"circulant<colls::v1::halving>", "circulant"}, {"circulant<colls::halving>", "circulant"}};
    static constexpr int most_depth = 16;

    bool take(std::string_view text) {
        if (!in_.starts_with(text)) return false;
        in_.remove_prefix(text.size());
        return true;
    }
    bool take_lambda() {
        const std::size_t end = in_.starts_with("<lambda(") ? in_.find(")>::") : in_.npos;
        if (end != in_.npos) in_.remove_prefix(end + 4);
        return end != in_.npos;
    }
    /// Skips the parameters of the function that the type is local to.
    bool take_function() {
        if (!in_.starts_with('(')) return false;
        std::size_t end = 0;
        for (int open = 0; end < in_.size(); ++end) {
            open += in_[end] == '(' ? 1 : in_[end] == ')' ? -1 : 0;
            if (open == 0) break;
        }
        for (const std::string_view after : {std::string_view(")::"), std::string_view(") const::")})
            if (in_.substr(end).starts_with(after)) {
                in_.remove_prefix(end + after.size());
                return true;
            }
        return false;
    }
    void put(std::string_view text) {
        for (const char c : text) put(c);
    }
    void put(char c) {
        out_[size_++] = c;
        if (c == '<' && depth_ + 1 < most_depth) ++depth_;
        if (c == '>' && depth_ > 0) --depth_;
        if (c == '<' || c == ',' || (c == ' ' && size_ > 1 && out_[size_ - 2] == ',')) starts_[depth_] = size_;
    }

    std::string_view in_;
    char* out_;
    std::size_t size_ = 0;
    std::size_t starts_[most_depth] = {};  // where the names being written begin, by depth of brackets
    int depth_ = 0;
};

/// The type's name as a user writes it: `ring`, `tree<4>`, `hierarchical<direct, ring>`, `mine::schedule`. Made when
/// first asked for: as a constant it took a compiler a second for a deeply nested type.
template <class S>
std::string_view written_name() {
    constexpr std::string_view full = full_type_name<S>();
    static char text[full.size()];
    static const std::size_t size = name_shortener(full, text).run();
    return {text, size};
}

}  // namespace colls::inline v1::detail
