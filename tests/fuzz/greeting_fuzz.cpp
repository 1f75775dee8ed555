// Fuzzes what processes say first to one another, beside what forms a world: handles of endpoints, knocks, lists of
// handles, and the greetings by which RDMA and libfabric are connected. No crash; what is accepted is in range, and is
// written as it was read. The first byte says what the rest is.
//   clang++ -std=c++20 -g -O2 -fsanitize=fuzzer,address,undefined -Iinclude tests/fuzz/greeting_fuzz.cpp
//   ./a.out -max_len=700 NEW_FOLDER tests/fuzz/corpus/greeting
// With -DCOLLS_FUZZ_REPLAY and any compiler it is a program that replays the files it is given.
#include <colls/elastic/detail/knock.hpp>
#include <colls/elastic/detail/member.hpp>
#include <colls/ofi/detail/protocol.hpp>
#include <colls/verbs/detail/protocol.hpp>

#ifdef COLLS_FUZZ_REPLAY
#include "replay.hpp"
#endif

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

namespace {

using namespace colls::detail;
using rendezvous::bytes_view;

void must(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "does not hold: %s\n", what);
    std::abort();
}
std::string text(bytes_view in) {
    const std::string all(reinterpret_cast<const char*>(in.data()), in.size());
    return all.c_str();  // as it comes: up to the first zero
}

void handles(bytes_view in) {
    const char* why = nullptr;
    const std::string given = text(in);
    const auto h = endpoints::parse_handle(given, why);
    must(h || (why != nullptr && *why != '\0'), "a refusal has a reason");
    const std::string_view name = endpoints::name_in(given);
    must(name.size() <= given.size(), "a name is a part of the text");
    if (!h) return;
    must(h->text() == given, "a handle is written as it was read");
    must(name == endpoints::text_of(h->name), "a name is found in the text");
    must(!h->at.empty() && h->at.size() <= endpoints::handle::most_addresses && h->pid > 0, "its parts are in range");
    for (const address& a : h->at) must(a.port() > 0, "each address has a port");
    must(!h->place().empty(), "it can be named");
}
void knocks(bytes_view in) {
    const auto k = rendezvous::parse<endpoints::knock>(in);
    if (!k) return;
    const auto again = rendezvous::encode(*k);
    must(std::equal(again.begin(), again.end(), in.begin(), in.end()), "a knock is written as it was read");
    must(k->sound() && std::memchr(k->own, 0, sizeof k->own) != nullptr, "its numbers are in range, its text ends");
}
void lists(bytes_view in) {
    const auto all = endpoints::decode_handles(in);
    must(all.size() == in.size() / endpoints::handle_bytes, "every handle counts");
    const auto again = endpoints::decode_handles(endpoints::encode_handles(all));
    for (std::size_t i = 0; i < all.size(); ++i)
        must(again[i] == all[i].substr(0, endpoints::handle_bytes - 1), "a list is written as it was read");
}
void rdma_greetings(bytes_view in) {
    const verbs_shape shape{};
    const std::string given = text(in);
    rdma::greeting g{};
    if (!rdma::decode(given.c_str(), shape, g)) return;
    must(g.slots == shape.slots && g.slot_bytes == shape.slot_bytes && g.notices == shape.notices,
        "the rings are alike");
    must(given == rdma::encode(g).text, "a greeting is written as it was read");
}
void ofi_greetings(bytes_view in) {
    const std::string given = text(in);
    for (const char* const provider : {"tcp", "efa"}) {
        std::size_t digits = 0;
        for (const std::string& a : ofi::addresses_in(given.c_str(), provider)) digits += 1 + 2 * a.size();
        must(digits <= given.size(), "addresses are as long as their digits");
        if (digits > 0) must(given.starts_with(provider), "they are of that provider");
        const std::vector<std::string> lanes{given, "", given.substr(given.size() / 2)};
        std::string whole = provider;
        for (const std::string& lane : lanes) whole += ofi::greeting_text(lane);
        must(ofi::addresses_in(whole.c_str(), provider) == lanes, "addresses are read as they were written");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    static constexpr void (*readers[])(bytes_view) = {handles, knocks, lists, rdma_greetings, ofi_greetings};
    readers[data[0] % std::size(readers)](std::as_bytes(std::span(data + 1, size - 1)));
    return 0;
}
