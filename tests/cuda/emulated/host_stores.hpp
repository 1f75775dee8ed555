// Plain stores of a block to memory of the host, which the host does not see yet: as on a device, they reach it at a
// release or fence of system scope, at the end of the block, or at some time before.
#pragma once

#include "numbers.hpp"

#include <cstring>
#include <deque>

namespace emulated {

class host_stores {
public:
    /// Where a plain access to `address` takes place. A load of the block finds what the block has stored.
    unsigned char* access(u64 address, u32 bytes, bool writes) {
        auto* const at = reinterpret_cast<unsigned char*>(address);
        if (!writes) {
            arrive();
            return at;
        }
        store& s = pending_.emplace_back();
        s.at = at;
        s.bytes = bytes;
        std::memcpy(s.data, at, bytes);
        return s.data;
    }
    /// Now the host sees them.
    void arrive() {
        for (const store& s : pending_) std::memcpy(s.at, s.data, s.bytes);
        pending_.clear();
    }
    /// Whether one of them is within 256 bytes of `address`.
    bool is_near(u64 address) const {
        for (const store& s : pending_)
            if (reinterpret_cast<u64>(s.at) - address + 256 < 512) return true;
        return false;
    }

private:
    struct store {
        alignas(16) unsigned char data[16] = {};
        unsigned char* at = nullptr;
        u32 bytes = 0;
    };
    std::deque<store> pending_;
};

}  // namespace emulated
