// A transport to memory of a GPU that is as late as a network card may be: what has arrived is there after a flush.
#pragma once

#include "broken_transports.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace support {

/// Over any transport whose processor reaches that memory after all. Throws std::logic_error where messages are not as
/// add_gpu_memory wants them.
class late_transport final : public passing_transport {
public:
    explicit late_transport(std::unique_ptr<message_transport> to) : passing_transport(std::move(to)) {
        const std::lock_guard lock(mutex);
        all.push_back(this);
    }
    ~late_transport() override {
        const std::lock_guard lock(mutex);
        std::erase(all, this);
    }
    std::string add_gpu_memory(std::byte* at, std::size_t bytes, int, std::size_t) override {
        memory_.push_back({at, bytes});
        return {};
    }
    std::uint64_t send(int peer, const message_label& label, const piece* pieces, int count) override {
        is_in_gpu(pieces, count);
        return to_->send(peer, label, pieces, count);
    }
    std::uint64_t receive(int peer, const message_label& label, const piece* pieces, int count) override {
        if (!is_in_gpu(pieces, count) || !is_late) return to_->receive(peer, label, pieces, count);
        message m{peer, 0, {}, {pieces, pieces + count}};
        std::vector<piece> instead;
        for (const piece& p : m.to) m.data.emplace_back(p.bytes);
        for (std::vector<std::byte>& d : m.data) instead.push_back({d.data(), d.size()});
        m.number = to_->receive(peer, label, instead.data(), count);
        held_.push_back(std::move(m));
        return held_.back().number;
    }
    void abandon() override {
        to_->abandon();
        held_.clear();
    }
    void progress() override {
        user_ = std::this_thread::get_id();
        to_->progress();
    }
    /// Puts in its place what this thread's transports have received, after a moment, in which no kernel may look
    /// there.
    static void flush_gpu() {
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        const std::lock_guard lock(mutex);
        for (late_transport* t : all)
            if (t->user_ == std::this_thread::get_id()) t->show();
    }
    static inline bool is_late = true;    ///< false: it does without a flush
    static inline bool is_strict = true;  ///< once memory is added, all messages lie there

private:
    struct message {
        int peer;
        std::uint64_t number;
        std::vector<std::vector<std::byte>> data;
        std::vector<piece> to;
    };
    bool is_in_gpu(const piece* pieces, int count) const {
        const auto in = std::count_if(pieces, pieces + count, [&](const piece& p) {
            return std::any_of(memory_.begin(), memory_.end(),
                [&](const piece& m) { return p.data >= m.data && p.data + p.bytes <= m.data + m.bytes; });
        });
        if (in != count && (in != 0 || (is_strict && !memory_.empty())))
            throw std::logic_error("pieces of a message are not in the GPU's memory");
        if (in > most_gpu_pieces) throw std::logic_error("a message has too many pieces");
        return in != 0;
    }
    void show() {
        std::erase_if(held_, [&](const message& m) {
            if (received(m.peer) <= m.number) return false;
            for (std::size_t i = 0; i < m.to.size(); ++i) std::copy(m.data[i].begin(), m.data[i].end(), m.to[i].data);
            return true;
        });
    }
    static inline std::mutex mutex;
    static inline std::vector<late_transport*> all;
    std::vector<piece> memory_;
    std::vector<message> held_;
    std::atomic<std::thread::id> user_{};
};

}  // namespace support
