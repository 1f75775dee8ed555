// By what processes that form a group exchange bytes: what bootstrap() is given.
#pragma once

#include <cstddef>
#include <string_view>

namespace colls::inline v1 {

/// How the members of a group that is being formed exchange bytes. Implement it over what they have.
class member_exchange {
public:
    virtual ~member_exchange() = default;
    /// Every member's `bytes` bytes at `own` go to `all` of every member, in the order of their ranks: `all` has room
    /// for as many times the group's size. Every member calls it with the same `bytes`, at most 64, and as often. It
    /// returns when all have called it, and reports an error by an exception, which bootstrap lets through.
    virtual void all_gather(const void* own, std::size_t bytes, void* all) = 0;
    /// Called again and again while this member waits for others outside of an exchange. May report, by an exception,
    /// that one of them has failed; it does not wait.
    virtual void look_for_failure() {}
};

/// A store that all members reach, such as c10d's TCPStore, etcd, PMI, or a folder. Implement it over what they have.
class key_value_store {
public:
    virtual ~key_value_store() = default;
    /// Stores `bytes` bytes under a key that has no value yet.
    virtual void set(std::string_view key, const void* value, std::size_t bytes) = 0;
    /// Waits until the key has a value, of `bytes` bytes, and copies it to `value`. Reports an error, also that it has
    /// waited for too long, by an exception, which bootstrap lets through.
    virtual void get(std::string_view key, void* value, std::size_t bytes) = 0;
};

}  // namespace colls::inline v1
