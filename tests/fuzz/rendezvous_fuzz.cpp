// Fuzzes what is received in a rendezvous, and texts of the environment. There must be no crash, no memory taken beyond
// what the receiver's own group needs, and bytes that are accepted as a record must be exactly those that the library
// would write for it. The first byte says which record.
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude tests/fuzz/rendezvous_fuzz.cpp
//   ./a.out -max_len=512 NEW_FOLDER tests/fuzz/corpus/rendezvous
// With -DCOLLS_FUZZ_REPLAY and any compiler it is a program that replays the files it is given.
#include <colls/net/detail/forming/interfaces.hpp>
#include <colls/net/detail/forming/launch.hpp>
#include <colls/net/detail/forming/records.hpp>

#ifdef COLLS_FUZZ_REPLAY
#include "replay.hpp"
#endif

#include <cstdio>
#include <cstdlib>

namespace {

using namespace colls::detail;
using namespace colls::detail::rendezvous;

void must(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "does not hold: %s\n", what);
    std::abort();
}
template <class A>
bool equal(const A& a, bytes_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

void challenges(bytes_view in) {
    if (const auto c = parse<challenge>(in)) must(equal(encode(*c), in), "a challenge is written as it was read");
}
void hellos(bytes_view in) {
    const auto h = parse<hello>(in);
    if (!h) return;
    must(equal(encode(*h), in), "a hello is written as it was read");
    must(h->rank >= 0 && h->size > 0 && h->pid >= 0, "a hello's numbers are in range");
    // A proof is not found without the token; with it, it covers every byte of the record.
    must(!same(h->proof, prove("token", {}, h->once, in)), "a proof is not guessed");
    auto sealed = encode(*h);
    const digest proof = prove("token", {}, h->once, sealed);
    std::copy(proof.begin(), proof.end(), sealed.end() - 32);
    const auto again = parse<hello>(sealed);
    must(again && same(again->proof, prove("token", {}, again->once, sealed)), "a proof holds");
}
void replies(bytes_view in) {
    const auto r = parse<reply>(in);
    if (!r) return;
    must(equal(encode(*r), in), "a reply is written as it was read");
    const std::size_t length = std::strlen(r->text);
    must(length <= reply::most_text, "a text ends");
    for (std::size_t i = 0; i < length; ++i) must(r->text[i] >= ' ' && r->text[i] <= '~', "a text can be printed");
}
void members(bytes_view in) {
    if (in.size() != member_bytes) return;
    member m;
    decoder read(in.data());
    read(m);
    if (!read.sound()) return;
    std::array<std::byte, member_bytes> again;
    encoder{again.data()}(m);
    must(equal(again, in), "a member is written as it was read");
    must(m.at.port() > 0 && !text_of(m.at).empty(), "an address has a text");
}
void prefixes(bytes_view in) {
    const auto p = parse_prefix(in);
    must(!p || in.size() >= prefix_bytes, "a prefix is whole");
    if (!p) return;
    error_text text;
    text << *p;
    must(*text.text() != '\0', "a version has a text");
}
void hosts(bytes_view in) {
    const std::string_view list(reinterpret_cast<const char*>(in.data()), in.size());
    const std::string host = first_host(list);
    must(host.size() <= list.size() && host.find(',') == host.npos, "a host is one of the list");
}
void addresses(bytes_view in) {
    const std::string text(reinterpret_cast<const char*>(in.data()), in.size());
    const address a = numeric_address(text, 7);
    must(a.length == 0 || a.port() == 7, "an address has its port");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    static constexpr void (*readers[])(bytes_view) = {challenges, hellos, replies, members, prefixes, hosts, addresses};
    readers[data[0] % std::size(readers)](std::as_bytes(std::span(data + 1, size - 1)));
    return 0;
}
