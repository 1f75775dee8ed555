// Fuzzes what is received on a connection between two ranks. There must be no crash, no memory taken beyond the posted
// receives, no byte written outside of them, and the same result however the bytes are cut up. The first byte says what
// the rest is: a hello, a header, a stream, or a recipe for a stream that is nearly right.
//   clang++ -std=c++20 -g -O2 -fsanitize=fuzzer,address,undefined -Iinclude tests/fuzz/frame_fuzz.cpp
//   ./a.out -max_len=400 NEW_FOLDER tests/fuzz/corpus/frame
// With -DCOLLS_FUZZ_REPLAY and any compiler it is a program that replays the files it is given.
#include <colls/net/detail/connection/frame_stream.hpp>

#ifdef COLLS_FUZZ_REPLAY
#include "replay.hpp"
#endif

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace colls::detail;
using bytes = std::vector<std::byte>;

void must(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "does not hold: %s\n", what);
    std::abort();
}

/// Takes the input from the front; returns zeros behind its end.
class source {
public:
    explicit source(octets in) : in_(in) {}
    unsigned take() {
        if (in_.empty()) return 0;
        const auto x = std::to_integer<unsigned>(in_[0]);
        in_ = in_.subspan(1);
        return x;
    }
    std::uint64_t take64() {
        std::uint64_t x = 0;
        for (int i = 0; i < 8; ++i) x = x << 8 | take();
        return x;
    }
    bool empty() const { return in_.empty(); }
    octets rest() const { return in_; }

private:
    octets in_;
};

/// Bytes that differ from others. They are copied, since the fuzzer would count each comparison in a loop.
bytes pattern(std::size_t from, std::size_t count) {
    static const bytes all = [] {
        bytes b;
        for (unsigned i = 0; i < 20'000; ++i) b.push_back(static_cast<std::byte>(i * 2654435761u >> 13));
        return b;
    }();
    return {all.begin() + static_cast<std::ptrdiff_t>(from), all.begin() + static_cast<std::ptrdiff_t>(from + count)};
}

void hello(octets in) {
    const auto h = parse_peer_hello(in);
    if (!h) return;
    std::byte again[peer_hello_bytes];
    encode(*h, again);
    must(std::memcmp(again, in.data(), peer_hello_bytes) == 0, "a hello is written as it was read");
    must(h->from >= 0 && h->to >= 0 && h->from != h->to, "ranks are in range");
}
void header(octets in) {
    const auto f = parse_frame(in);
    if (!f) return;
    std::byte again[frame_bytes];
    encode(*f, again);
    must(std::memcmp(again, in.data(), frame_bytes) == 0, "a header is written as it was read");
    must(f->text_bytes <= most_text && f->bytes <= most_message, "sizes are in range");
}

/// A receive that is posted, in memory of exactly its size.
struct posted {
    message_label label;
    std::vector<std::size_t> pieces;
};
message_label label_of(unsigned which) { return {which % 3, which / 3 % 3, which / 9}; }

/// Feeds a stream to a reader, and returns the result. `cut` says how many bytes are added at once, and when receives
/// are posted.
struct outcome {
    std::string events;
    std::vector<bytes> memory;
    std::uint64_t arrived = 0;
    bool operator==(const outcome&) const = default;
};
outcome feed(octets stream, const std::vector<posted>& receives, bool places, int drop_after, std::uint64_t cut) {
    outcome o;
    posted_messages to;
    frame_reader reader;
    if (places) reader.receives = &to;
    reader.open(frame_bytes + most_text + cut % 5 * 300);
    if (cut / 5 % 3 != 0) reader.least_ahead = 1;
    std::vector<std::vector<std::unique_ptr<std::byte[]>>> memory;  // each piece an allocation of its own
    std::size_t next = 0;
    const auto post = [&] {
        const posted& p = receives[next++];
        std::vector<piece> pieces;
        memory.emplace_back();
        for (const std::size_t n : p.pieces) {
            memory.back().emplace_back(new std::byte[n]());
            pieces.push_back({memory.back().back().get(), n});
        }
        must(to.post(p.label, pieces.data(), static_cast<int>(pieces.size())) == next - 1, "receives are counted");
    };
    // All at once, or one by one, whenever a message is held.
    while (cut % 2 == 0 && next < receives.size()) post();
    int heard = 0;
    for (bool over = false; !over;) {
        for (bool more = true; more;) {
            switch (const arrival a = reader.next()) {
                case arrival::welcome:
                    o.events += 'w';
                    break;
                case arrival::control:
                    must(static_cast<unsigned>(reader.control().what) <= static_cast<unsigned>(last_control_kind),
                        "a control message has a valid kind");
                    must(std::strlen(reader.control().text) <= most_text, "a text ends");
                    o.events += std::to_string(to.finished()) + "n" + std::to_string(reader.control().a) +
                                reader.control().text;
                    if (++heard == drop_after) to.drop();
                    break;
                case arrival::unexpected:
                    must(!(reader.wanted().label == reader.got().label) || reader.wanted().bytes != reader.got().bytes,
                        "what is unexpected differs");
                    o.events += 'u';
                    break;
                case arrival::garbage:
                    o.events += 'g';
                    over = true;
                    more = false;
                    break;
                case arrival::held:
                    if (places && next < receives.size()) {
                        post();
                    } else {
                        iovec v;
                        must(reader.room(&v, 1) == 0, "nothing is read behind a message that is held");
                        o.events += 'h';
                        over = true;
                        more = false;
                    }
                    break;
                case arrival::nothing:
                    more = false;
                    break;
                default:
                    must(a == arrival::nothing, "an arrival");
            }
        }
        if (over) break;
        iovec v[4];
        const int most = 2 + static_cast<int>(cut / 7 % 3);
        const int count = reader.room(v, most);
        must(count > 0 && count <= most, "there is room for what comes");
        cut = cut * 6364136223846793005u + 1442695040888963407u;
        std::size_t amount = cut >> 33 & 1 ? stream.size() : 1 + (cut >> 40) % 600, filled = 0;
        amount = std::min(amount, stream.size());
        for (int i = 0; i < count && filled < amount; ++i) {
            must(v[i].iov_len > 0, "room is not empty");
            const std::size_t part = std::min(amount - filled, v[i].iov_len);
            std::memcpy(v[i].iov_base, stream.data() + filled, part);
            filled += part;
        }
        if (filled == 0) break;
        reader.add(filled);
        stream = stream.subspan(filled);
    }
    o.arrived = to.finished();
    must(o.arrived <= next, "no more arrives than was posted");
    for (std::size_t i = 0; i < o.arrived; ++i) {
        bytes whole;
        for (std::size_t k = 0; k < memory[i].size(); ++k)
            whole.insert(whole.end(), memory[i][k].get(), memory[i][k].get() + receives[i].pieces[k]);
        o.memory.push_back(std::move(whole));
    }
    return o;
}

std::vector<posted> receives(source& in) {
    std::vector<posted> r(in.take() % 5);
    for (posted& p : r) {
        p.label = label_of(in.take() % 12);
        p.pieces.resize(in.take() % 6);
        for (std::size_t& n : p.pieces) {
            n = in.take();
            n = n > 250 ? n * 4 : n / 4;
        }
    }
    return r;
}
// However it is cut up, the same comes of it.
void both_ways(octets stream, const std::vector<posted>& receives, bool places, int drop_after, std::uint64_t cut) {
    const outcome a = feed(stream, receives, places, drop_after, cut);
    const outcome b = feed(stream, receives, places, drop_after, cut ^ 0x9e3779b97f4a7c15u);
    must(a.arrived == b.arrived && a.memory == b.memory, "the same arrives however the bytes come");
    must(a.events == b.events, "the same is reported however the bytes come");
}
void raw_stream(octets all) {
    source in(all);
    const unsigned how = in.take();
    const std::uint64_t cut = in.take64();
    const auto r = receives(in);
    both_ways(in.rest(), r, how & 1, static_cast<int>(how >> 1 & 3), cut);
}
// Frames as a rank would write them, in an order that it might not, with a byte changed here or there.
void recipe(octets all) {
    source in(all);
    const unsigned how = in.take();
    const std::uint64_t cut = in.take64();
    const auto r = receives(in);
    bytes stream;
    std::uint64_t number = 0;
    std::size_t next = 0;
    bool right = (how & 1) != 0 && (how >> 1 & 3) == 0;  // so far what the receives are for
    std::vector<bytes> payloads;
    while (!in.empty() && stream.size() < 4'000) {
        frame f;
        const unsigned what = in.take();
        f.number = number++;
        std::byte head[frame_bytes];
        bytes tail;
        if (what % 4 == 0) {
            f.kind = frame_kind::control;
            f.what = static_cast<control_kind>(in.take() % (static_cast<unsigned>(last_control_kind) + 1));
            f.a = in.take(), f.b = what;
            f.text_bytes = static_cast<std::uint16_t>(in.take() % 3 == 0 ? 400 : in.take());
            tail.assign(f.text_bytes, static_cast<std::byte>(what));
        } else if (what % 4 == 1 && what > 200) {
            f.kind = frame_kind::welcome;
        } else {
            f.kind = frame_kind::message;
            const bool as_posted = next < r.size() && what < 240;
            if (as_posted) {
                f.label = r[next].label;
                for (const std::size_t n : r[next].pieces) f.bytes += n;
            } else {
                f.label = label_of(in.take() % 12);
                f.bytes = in.take() * 2u;
                right = false;
            }
            ++next;
            tail = pattern(what, f.bytes);
            if (right) payloads.push_back(tail);
        }
        encode(f, head);
        if (what % 64 == 63) {
            head[in.take() % frame_bytes] ^= static_cast<std::byte>(in.take());
            right = false;
        }
        stream.insert(stream.end(), head, head + frame_bytes);
        stream.insert(stream.end(), tail.begin(), tail.end());
    }
    both_ways(stream, r, how & 1, static_cast<int>(how >> 1 & 3), cut);
    if (right) must(feed(stream, r, true, 0, cut).memory == payloads, "what was sent arrives");
}
// The reader must read what the writer writes.
void written(octets all) {
    source in(all);
    const std::uint64_t cut = in.take64();
    const auto r = receives(in);
    frame_writer writer;
    std::vector<bytes> payloads;
    std::vector<bytes> memory(r.size());
    for (std::size_t i = 0; i < r.size(); ++i) {
        std::vector<piece> pieces;
        std::size_t whole = 0, at = 0;
        for (const std::size_t n : r[i].pieces) whole += n;
        memory[i] = pattern(in.take(), whole + 1);
        // In other pieces than those of the receive.
        while (at < whole) {
            const std::size_t n = std::min(whole - at, std::size_t{in.take()} + 1);
            pieces.push_back({memory[i].data() + at, n});
            at += n;
            if (in.take() % 4 == 0) pieces.push_back({nullptr, 0});
        }
        must(writer.post(r[i].label, pieces.data(), static_cast<int>(pieces.size())) == i, "messages are counted");
        payloads.emplace_back(memory[i].begin(), memory[i].end() - 1);
    }
    bytes stream;
    std::uint64_t number = 0, state = cut;
    while (!writer.empty()) {
        iovec v[5];
        const int count = writer.gather(v, 1 + static_cast<int>(state % 5), number);
        must(count > 0, "something is to be written");
        std::size_t offered = 0, taken = 0;
        for (int i = 0; i < count; ++i) offered += v[i].iov_len;
        state = state * 6364136223846793005u + 1442695040888963407u;
        const std::size_t amount = state >> 33 & 1 ? offered : (state >> 40) % (offered + 1);
        for (int i = 0; i < count && taken < amount; ++i) {
            const std::size_t part = std::min(amount - taken, v[i].iov_len);
            const auto* const p = static_cast<const std::byte*>(v[i].iov_base);
            stream.insert(stream.end(), p, p + part);
            taken += part;
        }
        number += writer.advance(taken);
    }
    must(writer.finished() == r.size() && number == r.size(), "all has been written");
    const outcome o = feed(stream, r, true, 0, cut);
    must(o.memory == payloads && o.events.empty(), "what was written is read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    static constexpr void (*ways[])(octets) = {hello, header, raw_stream, recipe, written};
    ways[data[0] % std::size(ways)](std::as_bytes(std::span(data + 1, size - 1)));
    return 0;
}
