// COLLS_STATUS: a thread of each process answers programs on other hosts that ask what the ranks do (`colls status
// HOST:PORT`), by what the records of this host's processes say (reader.hpp). All processes listen at one port, so that
// those answer that can. The handshake is that of a rendezvous (net/detail/forming/records.hpp), with a question in
// place of a hello; behind the reply, which says how many there are, ranks follow as they are in memory.
// IWYU pragma: private, include <colls/world.hpp>
#pragma once

#include <colls/net/detail/forming/door.hpp>
#include <colls/status/detail/reader.hpp>

#include <csignal>
#include <optional>
#include <thread>

namespace colls::inline v1::detail::status {

struct inquiry {
    static constexpr rendezvous::record_kind kind = rendezvous::record_kind::question;
    static constexpr std::size_t bytes = rendezvous::prefix_bytes + 16 + 4 + 32;
    std::uint32_t library = rendezvous::library_version;
    rendezvous::nonce once{};
    std::uint32_t form = format;
    digest proof{};

    static void pass(auto& q, auto& archive) { archive(q.once, q.form, q.proof); }
    bool sound() const { return true; }
};

/// A host and a port.
struct place {
    std::string host;  ///< "": this host alone
    int port = 0;

    /// The addresses to listen at, or to call; none: `*why` says why.
    std::vector<address> addresses(const char** why) const {
        if (!host.empty()) return resolve(host, port, why);
        return {address::loopback(AF_INET, port), address::loopback(AF_INET6, port)};
    }
};
/// "7000", "node3:7000", "[::1]:7000". Throws invalid_argument, which names `what` says so.
[[gnu::cold]] inline place read_place(const char* what, std::string_view text) {
    const std::size_t colon = text.rfind(':');
    place p;
    if (colon != text.npos) p.host = text.substr(0, colon);
    if (p.host.size() > 2 && p.host.front() == '[' && p.host.back() == ']')
        p.host = p.host.substr(1, p.host.size() - 2);
    const std::string_view port = text.substr(colon == text.npos ? 0 : colon + 1);
    const auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), p.port);
    if (code != std::errc() || end != port.data() + port.size() || p.port < 1 || p.port > 65535 || colon == 0)
        throw error(errc::invalid_argument,
            error_text() << "colls: " << what << " is '" << text.substr(0, 80)
                         << "', neither a port from 1 to 65535, nor HOST:PORT, such as node3:7000 or [::]:7000");
    return p;
}

/// Answers for as long as the process lives.
class answering {
public:
    static constexpr std::size_t most = 65536;  ///< ranks in an answer

    answering(place at, std::string token) : at_(std::move(at)), token_(std::move(token)) {}

    [[noreturn]] void run() const {
        for (;;) try {
                answer_all();
            } catch (const std::exception&) {  // no memory for a connection: no matter to the program
                sleep_seconds(1);
            }
    }

private:
    [[noreturn]] void answer_all() const {
        door<inquiry> here(listen(), token_, "the process that answers for COLLS_STATUS");
        for (poll_set p;;) {
            here.watch(p);
            p.wait_without_hook(1000);  // connections that say nothing are closed after a while
            here.serve();
            for (door<inquiry>::guest& g : std::exchange(here.guests, {})) answer(g.line, g.said.form);
        }
    }
    descriptor listen() const {
        for (bool said = false;; said = true) {
            const char* unknown = "";
            int why = 0;
            for (const address& a : at_.addresses(&unknown)) {
                if (descriptor fd = listen_at(a, true)) return fd;
                why = errno;
            }
            if (!said)
                say(error_text() << "colls: cannot listen at COLLS_STATUS=" << std::string_view(at_.host).substr(0, 80)
                                 << (at_.host.empty() ? "" : ":") << at_.port << ": "
                                 << (why == 0 ? unknown : system_text(why).c_str()) << "; trying again");
            sleep_seconds(1);
        }
    }
    void answer(const peer_line& to, std::uint32_t form) const {
        std::vector<seen_rank> all;
        rendezvous::reply a{.what = rendezvous::verdict::complete, .size = 1};
        if (form != format)
            a = rendezvous::refusal(errc::mismatch, none, "the two are of different versions of colls");
        else
            try {
                all = ranks_around(getpid());
            } catch (const std::exception& x) {
                a = rendezvous::refusal(errc::invalid_argument, none, quoted(x.what()));
            }
        if (all.size() > most) all.resize(most);
        if (a.what == rendezvous::verdict::complete) a.group = all.size();
        const double until = seconds_now() + 2;  // one that does not read keeps the others waiting
        if (to.send(a, token_, until)) send_all(*to.socket, all.data(), all.size() * sizeof(seen_rank), until);
    }

    const place at_;
    const std::string token_;
};

/// Where COLLS_STATUS asks to listen; none: nowhere. Throws invalid_argument.
[[gnu::cold]] inline std::optional<place> asked_place() {
    const char* const asked = variable("COLLS_STATUS");
    if (asked == nullptr) return {};
    cover_of(false);  // throws here, if ever
    return read_place("COLLS_STATUS", asked);
}
/// Once in a process, by a thread: libfabric's settings are made while there is none.
[[gnu::cold]] inline void open_door(const std::optional<place>& at) {
    if (!at) return;
    static std::atomic<unsigned> opened_in{0};
    if (const unsigned here = count_forks() + 1; opened_in.exchange(here, std::memory_order_relaxed) == here) return;
    const char* const token = variable("COLLS_TOKEN");
    // The program's signals are not for this thread.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const at_end restore{[&] { pthread_sigmask(SIG_SETMASK, &before, nullptr); }};
    // Never destroyed: the thread ends with the process.
    std::thread([own = new answering(*at, token ? token : "")] { own->run(); }).detach();
}

}  // namespace colls::inline v1::detail::status
