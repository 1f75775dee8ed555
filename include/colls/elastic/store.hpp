// A store by which the members of a group are found, and that decides where they cannot: interface, and a folder as
// one.
// IWYU pragma: private, include <colls/elastic.hpp>
#pragma once

#include <colls/bootstrap/member_exchange.hpp>

#include <string>
#include <string_view>

namespace colls::inline v1::elastic {

/// A store whose values are replaced by those alone that know them. Implement it over what there is (etcd, Redis,
/// c10d's TCPStore). It serves bootstrap, too. Errors are exceptions, which the library lets through.
class store : public key_value_store {
public:
    /// The value of the key; empty: it has none.
    virtual std::string read(std::string_view key) = 0;
    /// Sets the value where it is `expected` (empty: there is none) at this moment. False: it is another one.
    virtual bool compare_and_set(std::string_view key, std::string_view expected, std::string_view value) = 0;

    void set(std::string_view key, const void* value, std::size_t bytes) override { set_bytes(key, value, bytes); }
    /// Waits for COLLS_TIMEOUT.
    void get(std::string_view key, void* value, std::size_t bytes) override { get_bytes(key, value, bytes); }

private:
    void set_bytes(std::string_view key, const void* value, std::size_t bytes);
    void get_bytes(std::string_view key, void* value, std::size_t bytes);
};

/// A folder that all processes reach, and whose file system knows flock: a file for each key, and one that is locked
/// while a value is replaced.
class folder final : public store {
public:
    /// The folder at `path`, which exists.
    explicit folder(std::string path) : path_(static_cast<std::string&&>(path)) {}
    /// Throws colls::error: unsupported where the folder cannot be used, timeout where another process holds the lock.
    std::string read(std::string_view key) override { return read_file(key); }
    bool compare_and_set(std::string_view key, std::string_view expected, std::string_view value) override {
        return replace(key, expected, value);
    }

private:
    std::string read_file(std::string_view key) const;
    bool replace(std::string_view key, std::string_view expected, std::string_view value) const;
    std::string file_of(std::string_view key) const;
    std::string path_;
};

}  // namespace colls::inline v1::elastic
