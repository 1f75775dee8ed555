#include "options.hpp"

#include <CLI/CLI.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace example {

options::options(const std::string& purpose) : app_(std::make_unique<CLI::App>(purpose)) {
    app_->option_defaults()->always_capture_default();
}

options::~options() = default;

template <class T>
void options::add(const std::string& names, T& value, const std::string& text, limits within) {
    if constexpr (std::is_same_v<T, bool>) {
        app_->add_flag(names, value, text);
    } else {
        CLI::Option* option = app_->add_option(names, value, text);
        if (within.is == limits::kind::positive) option->check(CLI::PositiveNumber);
        if (within.is == limits::kind::not_negative) option->check(CLI::NonNegativeNumber);
        if constexpr (std::is_arithmetic_v<T>)
            if (within.is == limits::kind::range)
                option->check(CLI::Range(static_cast<T>(within.least), static_cast<T>(within.most)));
    }
}

void options::add(
    const std::string& names, std::string& value, const std::string& text, const std::vector<std::string>& words) {
    app_->add_option(names, value, text)->check(CLI::IsMember(words));
}

bool options::parse(int argc, const char* const* argv, int& status) {
    try {
        app_->parse(argc, argv);
        return true;
    } catch (const CLI::ParseError& e) {
        status = app_->exit(e);
        return false;
    }
}

template void options::add(const std::string&, bool&, const std::string&, limits);
template void options::add(const std::string&, int&, const std::string&, limits);
template void options::add(const std::string&, long&, const std::string&, limits);
template void options::add(const std::string&, unsigned&, const std::string&, limits);
template void options::add(const std::string&, std::size_t&, const std::string&, limits);
template void options::add(const std::string&, double&, const std::string&, limits);
template void options::add(const std::string&, std::string&, const std::string&, limits);
template void options::add(const std::string&, std::vector<int>&, const std::string&, limits);

}  // namespace example
