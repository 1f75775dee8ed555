// A key/value store of files in a folder.
#pragma once

#include <colls/bootstrap/member_exchange.hpp>
#include <colls/detail/support/environment.hpp>

#include <string>
#include <string_view>

namespace colls_c {

class folder_store final : public colls::key_value_store {
public:
    /// Throws colls::error (invalid_argument) where the name has a slash, or COLLS_TIMEOUT is wrong.
    folder_store(int rank, const char* folder, std::string_view name);
    void set(std::string_view key, const void* value, std::size_t bytes) override;
    void get(std::string_view key, void* value, std::size_t bytes) override;

private:
    std::string file_of(std::string_view key) const;
    [[noreturn]] void fail(int code, const std::string& file, const char* what) const;

    const int rank_;
    const std::string folder_;
    const double timeout_ = colls::detail::environment::read().timeout;
};

}  // namespace colls_c
