// The options of the programs of examples/, parsed by CLI11, which options.cpp alone includes: it takes longer to
// compile than most of these programs.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace example {

/// The numbers that an option takes.
struct limits {
    enum class kind { any, positive, not_negative, range } is = kind::any;
    double least = 0, most = 0;  ///< of a range
};
inline constexpr limits positive{limits::kind::positive}, not_negative{limits::kind::not_negative};
constexpr limits between(double least, double most) { return {limits::kind::range, least, most}; }

class options {
public:
    /// `purpose`: what --help says first.
    explicit options(const std::string& purpose);
    ~options();
    options(const options&) = delete;
    options& operator=(const options&) = delete;

    /// `names`: as CLI11 has them, "-r,--ranks". `value` is the default, and set by parse(). T: bool, which makes a
    /// flag, or one of the types that options.cpp lists.
    template <class T>
    void add(const std::string& names, T& value, const std::string& text, limits within = {});
    /// One of these words.
    void add(
        const std::string& names, std::string& value, const std::string& text, const std::vector<std::string>& words);

    /// Sets the values. False where the program should end with `status`: after --help, which it prints, and after an
    /// error, which it reports.
    bool parse(int argc, const char* const* argv, int& status);

private:
    std::unique_ptr<CLI::App> app_;
};

}  // namespace example
