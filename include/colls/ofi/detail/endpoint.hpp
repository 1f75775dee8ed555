// An endpoint of libfabric: packets in memory of the library, parts of messages in that of callers, and completions.
// IWYU pragma: private, include <colls/transports/ofi.hpp>
//
// Where the provider wants memory to be registered (FI_MR_LOCAL), that of packets is once, and that of a part as long
// as it is under way: the providers that want it keep a cache of registrations, and watch for memory that is freed.
// Where the provider has several lanes, each has an endpoint of its own, and large messages are cut over them. All but
// their parts go by the first one's. Two ranks use as many lanes as the one that has fewer.
#pragma once

#include <colls/detail/support/rank_error.hpp>
#include <colls/ofi/detail/protocol.hpp>
#include <colls/ofi/detail/provider.hpp>

#include <sys/uio.h>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace colls::inline v1::detail::ofi {

/// What the provider has, until it completes.
struct operation {
    fi_context2 context{};  ///< the provider's own: it returns its address
    enum : std::uint8_t { packet_in, packet_out, part_in, part_out } kind{};
    int peer = none;
    std::uint64_t message = ~std::uint64_t{0};  ///< of which it is all or a part
};
struct packet : operation {
    packet_header* header = nullptr;
    void* descriptor = nullptr;
    std::byte* data() { return reinterpret_cast<std::byte*>(header + 1); }
};
struct part : operation {
    bool under_way = false;
    std::size_t bytes = 0;
    std::vector<iovec> pieces;
    std::unique_ptr<std::byte[]> copy;  ///< for more pieces than the provider takes
    std::vector<fid_mr*> registered;
};
struct completion {
    operation* what;    ///< null: none in particular
    std::size_t bytes;  ///< received
    int error;
};

class endpoint {
public:
    /// Throws colls::error (unsupported), std::bad_alloc.
    endpoint(std::shared_ptr<provider> of, std::size_t packet_bytes, std::size_t lane = 0)
        : of_(std::move(of)), lane_(lane), stride_((sizeof(packet_header) + packet_bytes + 63) / 64 * 64) {
        try {
            open();
            for (std::size_t k = 1; lane == 0 && k < of_->lanes(); ++k)
                beside_.push_back(std::make_unique<endpoint>(of_, packet_bytes, k));
        } catch (...) {
            close();
            throw;
        }
    }
    endpoint(const endpoint&) = delete;
    endpoint& operator=(const endpoint&) = delete;
    /// Afterwards the provider touches no memory of this rank's for it.
    ~endpoint() { close(); }

    std::size_t lanes() const { return 1 + beside_.size(); }
    endpoint& lane(std::size_t k) { return k == 0 ? *this : *beside_[k - 1]; }
    void keep(std::size_t lanes) { beside_.resize(lanes - 1); }

    std::string address() const {
        char name[512];
        std::size_t bytes = sizeof name;
        if (const int code = fi_getname(&endpoint_->fid, name, &bytes)) of_->refuse("fi_getname", code, lane_);
        return {name, bytes};
    }
    /// False: it is not one of the provider's, which reads as many bytes as its own has, or, of a text, to its end.
    bool insert(const std::string& address, fi_addr_t& at) {
        const fi_info& own = of_->info(lane_);
        if (own.addr_format != FI_ADDR_STR && address.size() < own.src_addrlen) return false;
        return fi_av_insert(addresses_, address.data(), 1, &at, 0, nullptr) == 1;
    }

    // ---- packets

    packet& take() {
        if (idle_.empty()) add_packets(16);
        packet* const p = idle_.back();
        idle_.pop_back();
        return *p;
    }
    void give(packet& p) { idle_.push_back(&p); }
    /// Posts receives for so many more packets.
    void expect(std::uint32_t count) {
        for (; count > 0; --count) give_to_receive(take());
    }
    /// Posts a receive into it. Where the provider takes no more, `poll` does it.
    void give_to_receive(packet& p) {
        p.kind = operation::packet_in;
        if (fi_recv(endpoint_, p.header, stride_, p.descriptor, FI_ADDR_UNSPEC, &p.context) != 0)
            unposted_.push_back(&p);
    }
    /// Returns an error of the provider's; -FI_EAGAIN: not now.
    int send(packet& p, std::size_t data, fi_addr_t to) {
        p.kind = operation::packet_out;
        return static_cast<int>(
            fi_send(endpoint_, p.header, sizeof(packet_header) + data, p.descriptor, to, &p.context));
    }
    /// Sends the header alone, and the packet is free again: no completion, which costs some providers system calls.
    int inject(packet& p, fi_addr_t to) {
        return static_cast<int>(fi_inject(endpoint_, p.header, sizeof(packet_header), to));
    }
    bool injects() const { return of_->info().tx_attr->inject_size >= sizeof(packet_header); }

    // ---- parts

    /// Sends a part of a message, or receives it: `bytes` from `offset` on. The same results as `send`, and `call`.
    int move(bool out, int peer, std::uint64_t message, const std::vector<piece>& all, std::uint64_t offset,
        std::size_t bytes, std::uint64_t tag, fi_addr_t to, const char*& call) {
        if (idle_parts_.empty()) idle_parts_.push_back(&parts_.emplace_back());
        part& x = *idle_parts_.back();
        x.kind = out ? operation::part_out : operation::part_in;
        x.peer = peer, x.message = message, x.bytes = bytes;
        x.pieces.clear();
        std::size_t rest = bytes;
        for (const piece& p : all) {
            if (offset >= p.bytes) {
                offset -= p.bytes;
                continue;
            }
            const std::size_t n = std::min(p.bytes - static_cast<std::size_t>(offset), rest);
            if (n > 0) x.pieces.push_back({p.data + offset, n});
            offset = 0;
            if ((rest -= n) == 0) break;
        }
        iovec whole{};
        const iovec* v = x.pieces.data();
        std::size_t count = x.pieces.size();
        if (count > of_->most_pieces()) {
            x.copy.reset(new std::byte[bytes]);
            whole = {x.copy.get(), bytes};
            if (out) copy_between(x);
            v = &whole, count = 1;
        }
        descriptors_.assign(count, nullptr);
        for (std::size_t i = 0; i < count && of_->registers(); ++i) {
            fid_mr* mr = nullptr;
            call = "fi_mr_reg";
            if (const int code = add_memory(v[i].iov_base, v[i].iov_len, out ? FI_SEND : FI_RECV, mr))
                return release(x), code;
            x.registered.push_back(mr);
            descriptors_[i] = fi_mr_desc(mr);
        }
        call = out ? "fi_tsendv" : "fi_trecvv";
        const ssize_t code =
            out ? fi_tsendv(endpoint_, v, descriptors_.data(), count, to, tag, &x.context)
                : fi_trecvv(endpoint_, v, descriptors_.data(), count, FI_ADDR_UNSPEC, tag, 0, &x.context);
        if (code != 0) return release(x), static_cast<int>(code);
        x.under_way = true;
        idle_parts_.pop_back();
        return 0;
    }
    /// It has completed. `lands`: a copy of what was received goes to its place.
    void finish(part& x, bool lands) {
        if (lands && x.copy && x.kind == operation::part_in) copy_between(x);
        release(x);
        x.under_way = false;
        idle_parts_.push_back(&x);
    }
    /// No part from that peer is received any more.
    void cancel_from(int peer) {
        for (const auto& e : beside_) e->cancel_from(peer);
        for (part& x : parts_)
            if (x.under_way && x.kind == operation::part_in && x.peer == peer) fi_cancel(&endpoint_->fid, &x.context);
    }

    /// Writes at most `most` completions, and returns how many.
    int poll(completion* into, int most) {
        queue_.thread.store(sleepable::this_thread(), std::memory_order_relaxed);
        fi_cq_msg_entry all[32];
        const ssize_t n = fi_cq_read(completions_, all, static_cast<std::size_t>(std::min(most, 32)));
        for (ssize_t i = 0; i < n; ++i) into[i] = {static_cast<operation*>(all[i].op_context), all[i].len, 0};
        if (n > 0) return static_cast<int>(n);
        while (!unposted_.empty()) {  // receives have completed since, or the provider moves something else first
            packet* const p = unposted_.back();
            unposted_.pop_back();
            give_to_receive(*p);
            if (!unposted_.empty() && unposted_.back() == p) break;
        }
        if (n == -FI_EAGAIN || n == 0) return 0;
        fi_cq_err_entry e{};
        if (n == -FI_EAVAIL && fi_cq_readerr(completions_, &e, 0) == 1)
            into[0] = {static_cast<operation*>(e.op_context), e.len, e.err == 0 ? FI_EOTHER : e.err};
        else
            into[0] = {nullptr, 0, static_cast<int>(n)};
        return 1;
    }

private:
    struct block {
        std::unique_ptr<std::byte[]> memory;
        fid_mr* registered = nullptr;
    };

    void open() {
        fi_info& info = of_->info(lane_);
        fid_domain* const domain = of_->domain(lane_);
        const auto check = [&](const char* call, int code) {
            if (code != 0) of_->refuse(call, code, lane_);
        };
        check("fi_endpoint", fi_endpoint(domain, &info, &endpoint_, nullptr));
        fi_cq_attr c{};
        c.format = FI_CQ_FORMAT_MSG;
        c.size = info.tx_attr->size + info.rx_attr->size;
        c.wait_obj = FI_WAIT_FD;
        if (fi_cq_open(domain, &c, &completions_, nullptr) != 0) {
            c.wait_obj = FI_WAIT_NONE;
            check("fi_cq_open", fi_cq_open(domain, &c, &completions_, nullptr));
        }
        fi_av_attr a{};
        a.type = info.domain_attr->av_type;
        check("fi_av_open", fi_av_open(domain, &a, &addresses_, nullptr));
        check("fi_ep_bind", fi_ep_bind(endpoint_, &completions_->fid, FI_TRANSMIT | FI_RECV));
        check("fi_ep_bind", fi_ep_bind(endpoint_, &addresses_->fid, 0));
        check("fi_enable", fi_enable(endpoint_));
        queue_.fabric = of_->fabric(lane_);
        queue_.queue = &completions_->fid;
        if (c.wait_obj == FI_WAIT_FD && fi_control(queue_.queue, FI_GETWAIT, &queue_.descriptor) == 0) of_->add(queue_);
    }
    void close() noexcept {
        of_->remove(queue_);
        for (part& x : parts_) release(x, false);
        for (const block& b : blocks_)
            if (b.registered) fi_close(&b.registered->fid);
        if (endpoint_) fi_close(&endpoint_->fid);
        if (completions_) fi_close(&completions_->fid);
        if (addresses_) fi_close(&addresses_->fid);
    }
    // What is sent may be read-only memory.
    int add_memory(void* at, std::size_t bytes, std::uint64_t access, fid_mr*& mr) {
        // Keys of the provider's are as good as these, which only must differ.
        int code = fi_mr_reg(of_->domain(lane_), at, bytes, access, 0, of_->next_key(), 0, &mr, nullptr);
        if (code != 0 || !of_->registers_with_endpoint()) return code;
        if ((code = fi_mr_bind(mr, &endpoint_->fid, 0)) == 0) code = fi_mr_enable(mr);
        if (code != 0) fi_close(&mr->fid);
        return code;
    }
    void release(part& x, bool copies = true) noexcept {
        for (fid_mr* mr : x.registered) fi_close(&mr->fid);
        x.registered.clear();
        if (copies) x.copy.reset();
    }
    static void copy_between(part& x) {
        std::byte* at = x.copy.get();
        for (const iovec& v : x.pieces) {
            x.kind == operation::part_out ? std::memcpy(at, v.iov_base, v.iov_len)
                                          : std::memcpy(v.iov_base, at, v.iov_len);
            at += v.iov_len;
        }
    }
    void add_packets(std::size_t count) {
        block b{std::unique_ptr<std::byte[]>(new std::byte[count * stride_ + 63]), nullptr};
        auto at = reinterpret_cast<std::uintptr_t>(b.memory.get());
        at = (at + 63) / 64 * 64;
        if (of_->registers())
            if (const int code =
                    add_memory(reinterpret_cast<void*>(at), count * stride_, FI_SEND | FI_RECV, b.registered))
                of_->refuse("fi_mr_reg", code, lane_);
        void* const descriptor = b.registered ? fi_mr_desc(b.registered) : nullptr;
        blocks_.push_back(std::move(b));
        for (; count > 0; --count, at += stride_) {
            packet& p = packets_.emplace_back();
            p.header = reinterpret_cast<packet_header*>(at);
            p.descriptor = descriptor;
            idle_.push_back(&p);
        }
    }

    const std::shared_ptr<provider> of_;
    const std::size_t lane_;
    const std::size_t stride_;                       // of packets in memory
    std::vector<std::unique_ptr<endpoint>> beside_;  // of the other lanes, where this is the first one's
    fid_ep* endpoint_ = nullptr;
    fid_cq* completions_ = nullptr;
    fid_av* addresses_ = nullptr;
    sleepable queue_;
    std::vector<block> blocks_;
    std::deque<packet> packets_;
    std::vector<packet*> idle_, unposted_;
    std::deque<part> parts_;
    std::vector<part*> idle_parts_;
    std::vector<void*> descriptors_;
};

}  // namespace colls::inline v1::detail::ofi
