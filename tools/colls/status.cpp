#include "status.hpp"

#include "commands.hpp"
#include "json_text.hpp"

#include <colls/detail/group/wait_site.hpp>
#include <colls/status/detail/door.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>

namespace tool {
namespace {

using namespace colls::detail;
using namespace colls::detail::status;
using nlohmann::json;

// ---- asking on the network ----

/// One connection of several: of the processes that listen at a port, some may be stopped.
struct attempt {
    address at;
    peer_line line{};
    bool is_connected = false;
    std::string why{};  ///< it has failed
};

/// The first connection whose other side has sent its challenge.
attempt reach(const std::string& target, const std::vector<address>& addresses, double until) {
    constexpr std::size_t most = 24;
    std::vector<attempt> all;
    const auto begin_one = [&] {
        attempt& a = all.emplace_back(attempt{addresses[all.size() % addresses.size()]});
        descriptor fd = start_connect(a.at);
        if (fd)
            a.line.socket = std::make_unique<own_socket>(std::move(fd), cover_of(true));
        else
            a.why = system_text(errno);
    };
    double next = 0;
    poll_set polls;
    while (seconds_now() < until) {
        if (seconds_now() >= next && all.size() < std::max(most, addresses.size())) {
            next = seconds_now() + (all.size() + 1 < addresses.size() ? 0 : 0.1);
            begin_one();
        }
        bool open = false;
        for (attempt& a : all) {
            if (!a.line.socket) continue;
            if (const std::optional<int> failed = a.is_connected ? 0 : connected(a.line.fd());
                failed.value_or(0) != 0) {
                a.why = system_text(*failed), a.line.socket.reset();
                continue;
            } else if (failed) {
                a.is_connected = true;
            }
            const auto read = a.is_connected ? a.line.read(rendezvous::challenge::bytes) : arriving::not_yet;
            if (read == arriving::whole) return std::move(a);
            if (read == arriving::ended)
                a.why = a.line.socket->cover && a.line.socket->cover->why()[0] ? a.line.socket->cover->why()
                        : a.line.in.bytes().empty()                            ? "the connection was closed"
                                                                               : "another program listens there",
                a.line.socket.reset();
            else
                open = true, a.is_connected ? polls.add(a.line) : polls.add(a.line.fd(), POLLOUT);
        }
        if (!open && all.size() >= addresses.size())
            throw std::runtime_error(fmt::format("cannot ask at {} ({}): {}. Is COLLS_STATUS set there?", target,
                text_of(all.back().at), all.back().why));
        polls.wait_without_hook(50);
    }
    throw std::runtime_error(
        fmt::format("no process answers at {}: are all that listen there stopped, or is it another program?", target));
}

std::string version(const rendezvous::prefix& p) {
    error_text text;
    return (text << p).text();
}

std::vector<seen_rank> ask(const std::string& target) {
    const place where = read_place("the target", target);
    const char* why = "";
    const std::vector<address> addresses = where.addresses(&why);
    if (addresses.empty()) throw std::runtime_error(fmt::format("the host of {} is not known: {}", target, why));
    const double until = seconds_now() + 5;
    const attempt reached = reach(target, addresses, until);
    const peer_line& line = reached.line;
    channel& to = *line.socket;
    const auto prefix = rendezvous::parse_prefix(line.in.bytes().first(rendezvous::prefix_bytes));
    const auto challenge = rendezvous::parse<rendezvous::challenge>(line.in.bytes());
    if (!prefix || prefix->kind != rendezvous::record_kind::challenge)
        throw std::runtime_error(fmt::format("another program listens at {}", target));
    if (!challenge || prefix->library != rendezvous::library_version)
        throw std::runtime_error(
            fmt::format("the program at {} uses colls {}, and this one is colls {}: take the tool "
                        "of that version",
                target, version(*prefix), version({})));
    const char* const set = variable("COLLS_TOKEN");
    const std::string token = set ? set : "";
    inquiry q;
    q.once = random_bytes<rendezvous::nonce>();
    std::array<std::byte, rendezvous::reply::bytes> bytes;
    const auto fail = [&](int error) {
        throw std::runtime_error(fmt::format("the program at {} does not answer: {}", target,
            error == ENODATA ? "it has closed the connection" : to.why(error)));
    };
    if (const int e = rendezvous::send_record(to, rendezvous::sealed(q, token, challenge->once, q.once), until))
        fail(e);
    if (const int e = receive_all(to, bytes.data(), bytes.size(), until)) fail(e);
    const auto reply = rendezvous::parse<rendezvous::reply>(bytes);
    if (!reply) throw std::runtime_error(fmt::format("another program listens at {}", target));
    if (!same(reply->proof, rendezvous::prove(token, challenge->once, q.once, bytes)))
        throw std::runtime_error(
            fmt::format("the program at {} has a different token: set COLLS_TOKEN to that of its job", target));
    if (reply->what != rendezvous::verdict::complete)
        throw std::runtime_error(fmt::format("the program at {} refuses: {}", target, reply->text));
    std::vector<seen_rank> all(std::min<std::uint64_t>(reply->group, answering::most));
    if (const int e = receive_all(to, all.data(), all.size() * sizeof(seen_rank), until)) fail(e);
    std::erase_if(all, [](seen_rank& r) { return !r.sound(); });
    return all;
}

std::vector<seen_rank> find(const std::vector<std::string>& targets) {
    if (targets.empty()) return ranks_around(0);
    std::vector<seen_rank> all;
    for (const std::string& target : targets) {
        std::int64_t process = 0;
        const auto [end, code] = std::from_chars(target.data(), target.data() + target.size(), process);
        const bool is_process = code == std::errc() && end == target.data() + target.size() && process > 0;
        if (!is_process && target.find(':') == std::string::npos)
            throw std::runtime_error(fmt::format("'{}' is neither the number of a process nor HOST:PORT", target));
        for (const seen_rank& r : is_process ? ranks_around(process) : ask(target)) {
            const auto is = [&](const seen_rank& o) { return r.rank == o.rank && r.is_in_group_of(o); };
            if (std::none_of(all.begin(), all.end(), is)) all.push_back(r);
        }
    }
    return all;
}

// ---- what was found, by groups ----

/// A rank of a group, seen or not.
struct line_of_rank {
    int rank = 0;
    std::optional<seen_rank> seen{};
    int waited_for_by = 0;

    bool is_stopped() const { return seen && (seen->state == 'T' || seen->state == 't'); }
    bool has_ended() const { return seen && (seen->state == 'Z' || seen->state == 'X'); }
};
struct group_view {
    seen_rank any;
    std::vector<line_of_rank> ranks;  ///< stragglers first

    /// All of its ranks would have been seen if they were there.
    bool is_on_one_host() const { return any.by != rank_status::no_memory; }
    /// A smaller one comes first.
    auto order_of(const line_of_rank& r) const {
        const int trouble = !r.seen          ? (is_on_one_host()         ? 0
                                                   : r.waited_for_by > 0 ? 2
                                                                         : 4)
                            : r.has_ended()  ? 0
                            : r.is_stopped() ? 1
                                             : 3;
        return std::tuple(trouble, r.seen ? r.seen->calls : 0, r.seen && r.seen->waits != 0, -r.waited_for_by, r.rank);
    }
};

std::vector<group_view> groups_of(const std::vector<seen_rank>& all) {
    std::vector<group_view> groups;
    for (const seen_rank& r : all) {
        auto g = std::find_if(groups.begin(), groups.end(), [&](const auto& x) { return x.any.is_in_group_of(r); });
        if (g == groups.end()) g = groups.insert(g, {r, {}});
        g->ranks.push_back({.rank = r.rank, .seen = r});
    }
    for (group_view& g : groups) {
        std::vector<line_of_rank> found;
        std::swap(found, g.ranks);
        // A record may name any size: ranks that are missing are listed up to a number that a person can read.
        const int size = std::min(g.any.size, std::max(static_cast<int>(answering::most), 1));
        for (int r = 0; r < size; ++r) g.ranks.push_back({.rank = r});
        for (line_of_rank& r : found)
            if (r.rank < size && !g.ranks[static_cast<std::size_t>(r.rank)].seen)
                g.ranks[static_cast<std::size_t>(r.rank)].seen = std::move(r.seen);
        for (const line_of_rank& r : g.ranks)
            if (const int peer = r.seen ? long_wait::peer_in(r.seen->waits) : colls::none; peer >= 0 && peer < size)
                ++g.ranks[static_cast<std::size_t>(peer)].waited_for_by;
        std::sort(g.ranks.begin(), g.ranks.end(),
            [&](const line_of_rank& a, const line_of_rank& b) { return g.order_of(a) < g.order_of(b); });
    }
    std::sort(groups.begin(), groups.end(), [](const group_view& a, const group_view& b) {
        return std::tuple(-a.any.size, std::string_view(a.any.label), a.any.group) <
               std::tuple(-b.any.size, std::string_view(b.any.label), b.any.group);
    });
    return groups;
}

// ---- in words ----

std::string name_of_call(std::uint64_t code) {
    if (code == long_wait::send) return "send";
    if (code == long_wait::recv) return "recv";
    return code <= static_cast<std::uint64_t>(colls::collective::redistribute)
               ? colls::name_of(static_cast<colls::collective>(code))
               : "a call";
}
/// "in all_reduce, call 16, waits for rank 3 for 1.2 s".
std::string what_it_does(const seen_rank& r) {
    if (r.calls == 0 && r.messages == 0) return r.in_call ? "in its first call" : "no call yet";
    std::string text = fmt::format("{} {}", r.in_call ? "in" : "after", name_of_call(r.latest));
    if (r.latest < long_wait::send) text += fmt::format(", call {}", r.calls - 1);
    if (r.waits == 0) return text;
    const int peer = long_wait::peer_in(r.waits);
    return fmt::format("{}, waits for {} for {:.1f} s", text, peer >= 0 ? fmt::format("rank {}", peer) : "any rank",
        static_cast<double>(r.waited) * 1e-3);
}
std::string state_in_words(const group_view& g, const line_of_rank& r) {
    if (!r.seen) return g.is_on_one_host() ? "gone" : r.waited_for_by > 0 ? "not seen, waited for" : "not seen";
    return r.has_ended() ? "ended" : r.is_stopped() ? "stopped" : r.seen->state == 'D' ? "in the kernel" : "runs";
}
const char* kind_in_words(std::uint32_t by) {
    return by == rank_status::memory_of_threads     ? "threads"
           : by == rank_status::memory_of_processes ? "processes that share memory"
                                                    : "processes that pass messages";
}
std::string number_of(const seen_rank& r) { return fmt::format("{:016x}", r.group); }

void print_table(const std::vector<group_view>& groups) {
    for (const group_view& g : groups) {
        fmt::print("{}group {}: {} {}, {}{}\n", &g == groups.data() ? "" : "\n", g.any.label, g.any.size,
            g.any.size == 1 ? "rank" : "ranks", kind_in_words(g.any.by),
            g.any.epoch > 0 ? fmt::format(", epoch {}", g.any.epoch) : "");
        std::size_t states = 5, hosts = 4;
        for (const line_of_rank& r : g.ranks) {
            states = std::max(states, state_in_words(g, r).size());
            if (r.seen) hosts = std::max(hosts, std::strlen(r.seen->host));
        }
        const auto print = [&](auto rank, const auto& state, auto process, const auto& host, auto calls, auto messages,
                               const auto& bytes, const auto& does) {
            fmt::print("{:>6}  {:<{}}{:>10}  {:<{}}{:>10}{:>10}{:>11}  {}\n", rank, state, states, process, host, hosts,
                calls, messages, bytes, does);
        };
        print("rank", "state", "process", "host", "calls", "messages", "bytes", "what it does");
        for (const line_of_rank& r : g.ranks) {
            const std::string state = state_in_words(g, r);
            if (!r.seen) {
                fmt::print("{:>6}  {:<{}}  {}\n", r.rank, state, states,
                    g.is_on_one_host() ? "it has ended, or has left the group" : "on another host, or ended");
                continue;
            }
            print(r.rank, state, r.seen->process, r.seen->host, r.seen->calls, r.seen->messages,
                show_size(static_cast<double>(r.seen->bytes)), what_it_does(*r.seen));
        }
        for (const line_of_rank& r : g.ranks)
            if (r.seen && r.seen->errors > 0)
                fmt::print("last error of rank {} (of {}): {}\n", r.rank, r.seen->errors, quoted(r.seen->error));
    }
}

json json_of(const std::vector<group_view>& groups) {
    json all = json::array();
    for (const group_view& g : groups) {
        json ranks = json::array();
        for (const line_of_rank& r : g.ranks) {
            json one{{"rank", r.rank}, {"state", state_in_words(g, r)}};
            if (r.seen) {
                const seen_rank& s = *r.seen;
                one.update({{"process", s.process}, {"host", s.host}, {"calls", s.calls}, {"messages", s.messages},
                    {"bytes", s.bytes}, {"in_call", s.in_call != 0}, {"does", what_it_does(s)}, {"errors", s.errors}});
                if (s.calls + s.messages > 0) one["latest"] = name_of_call(s.latest);
                if (s.errors > 0) one["last_error"] = quoted(s.error);
                if (s.waits != 0) one["waited"] = static_cast<double>(s.waited) * 1e-3;
                if (const int peer = long_wait::peer_in(s.waits); peer >= 0) one["waits_for"] = peer;
            }
            ranks.push_back(std::move(one));
        }
        all.push_back({{"label", g.any.label}, {"number", number_of(g.any)}, {"size", g.any.size},
            {"kind", kind_in_words(g.any.by)}, {"ranks", std::move(ranks)}});
        if (g.any.epoch > 0) all.back()["epoch"] = g.any.epoch;
    }
    return {{"groups", std::move(all)}};
}

/// The value of a label in quotes, as Prometheus reads it: UTF-8, as JSON has it, since no control character is left.
std::string label(std::string_view text) { return text_of(json(text)); }
void print_prometheus(const std::vector<group_view>& groups) {
    const auto seen = [](auto f) {
        return [f](const group_view&, const line_of_rank& r) -> std::optional<double> {
            return r.seen ? std::optional<double>(static_cast<double>(f(*r.seen))) : std::nullopt;
        };
    };
    using value = std::function<std::optional<double>(const group_view&, const line_of_rank&)>;
    const struct {
        const char *name, *type, *help;
        value of;
    } metrics[] = {
        {"colls_rank_up", "gauge", "1: the rank's process runs; 0: it is stopped, has ended, or was not seen.",
            [](const group_view&, const line_of_rank& r) {
                return r.seen && !r.is_stopped() && !r.has_ended() ? 1 : 0;
            }},
        {"colls_calls_total", "counter", "Collectives that the rank has begun.",
            seen([](const seen_rank& s) { return s.calls; })},
        {"colls_messages_total", "counter", "Sends and receives that the rank has begun.",
            seen([](const seen_rank& s) { return s.messages; })},
        {"colls_bytes_total", "counter", "Bytes of the buffers of all these.",
            seen([](const seen_rank& s) { return s.bytes; })},
        {"colls_errors_total", "counter", "Errors of the rank's calls.",
            seen([](const seen_rank& s) { return s.errors; })},
        {"colls_waiting_seconds", "gauge", "For how long the rank has waited for another one; 0: for less than 10 ms.",
            seen([](const seen_rank& s) { return static_cast<double>(s.waited) * 1e-3; })},
        {"colls_waited_for_by", "gauge", "How many ranks wait for this one.",
            [](const group_view&, const line_of_rank& r) { return r.waited_for_by; }},
        {"colls_group_epoch", "gauge", "The epoch of an elastic group.",
            seen([](const seen_rank& s) { return s.epoch; })},
    };
    for (const auto& m : metrics) {
        fmt::print("# HELP {} {}\n# TYPE {} {}\n", m.name, m.help, m.name, m.type);
        for (const group_view& g : groups)
            for (const line_of_rank& r : g.ranks)
                if (const auto x = m.of(g, r))
                    fmt::print("{}{{group={},number=\"{}\",rank=\"{}\"{}}} {}\n", m.name, label(g.any.label),
                        number_of(g.any), r.rank,
                        r.seen ? fmt::format(",host={},process=\"{}\"", label(r.seen->host), r.seen->process) : "", *x);
    }
}

}  // namespace

int show_status(const std::vector<std::string>& targets, status_format how) {
    const std::vector<group_view> groups = groups_of(find(targets));
    if (how == status_format::json)
        print(json_of(groups));
    else if (how == status_format::prometheus)
        print_prometheus(groups);
    else if (groups.empty())
        fmt::print("no process of this host that this one may look at has a group\n");
    else
        print_table(groups);
    return good;
}

}  // namespace tool
