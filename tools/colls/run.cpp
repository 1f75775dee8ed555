#include "run.hpp"

#include <colls/detail/support/clock.hpp>
#include <colls/detail/support/descriptor.hpp>
#include <colls/detail/support/error_text.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace tool {
namespace {

using colls::detail::descriptor;
using colls::detail::seconds_now;

constexpr double grace = 5;  // seconds from one step of an end to the next: by itself, SIGTERM, SIGKILL

std::uint64_t random_number() {
    std::uint64_t x = 0;
    if (getrandom(&x, sizeof x, 0) != sizeof x) throw std::runtime_error("the system has no random numbers");
    return x;
}

/// A port that nothing listens at on this host now, below those that the system gives to connections. (On another host
/// it may be taken: then rank 0 says so.)
int free_port() {
    for (int i = 0; i < 100; ++i) {
        const int port = 20'000 + static_cast<int>(random_number() % 10'000);
        const descriptor s(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_port = htons(static_cast<std::uint16_t>(port));
        if (s && bind(s.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) return port;
    }
    throw std::runtime_error("of 100 ports from 20000 to 29999 none is free");
}

/// For each rank its host; "" is this one.
std::vector<std::string> places_of(const run_request& asked) {
    if (asked.hosts.empty() || asked.ranks < 0) {
        if (asked.ranks < 1) throw std::runtime_error("say how many ranks: colls run -n 4 PROGRAM");
        return std::vector<std::string>(static_cast<std::size_t>(asked.ranks));
    }
    struct room {
        std::string host;
        int ranks = 0;  ///< 0: it was not said
    };
    std::vector<room> rooms;
    int said = 0;
    for (std::size_t at = 0; at <= asked.hosts.size();) {
        const std::size_t comma = std::min(asked.hosts.find(',', at), asked.hosts.size());
        const std::string one = asked.hosts.substr(at, comma - at);
        // An address of IPv6 stands in brackets where a number follows.
        const std::size_t colon = one.rfind(':'), bracket = one.rfind(']');
        const bool counts = colon != one.npos && (one.find(':') == colon || (bracket != one.npos && bracket < colon));
        room r{one.substr(0, counts ? colon : one.size())};
        if (r.host.size() > 2 && r.host.front() == '[' && r.host.back() == ']')
            r.host = r.host.substr(1, r.host.size() - 2);
        if (counts) {
            const char* const end = one.data() + one.size();
            const auto [stopped, code] = std::from_chars(one.data() + colon + 1, end, r.ranks);
            if (code != std::errc() || stopped != end || r.ranks < 1 || r.ranks > 1 << 20)
                throw std::runtime_error(fmt::format("--hosts: '{}' is not HOST or HOST:RANKS", one));
        }
        if (r.host.empty() || r.host.front() == '-')
            throw std::runtime_error(fmt::format("--hosts: '{}' is not HOST or HOST:RANKS", one));
        said += r.ranks;
        rooms.push_back(r);
        at = comma + 1;
    }
    // Those of which nothing was said share the rest alike, the first ones one more.
    const int others = static_cast<int>(std::ranges::count(rooms, 0, &room::ranks));
    const int all = asked.ranks > 0 ? asked.ranks : said + others, rest = all - said;
    int k = 0;
    for (room& r : rooms)
        if (r.ranks == 0 && rest > 0) r.ranks = rest / others + (k++ < rest % others);
    std::vector<std::string> hosts;
    for (const room& r : rooms) hosts.insert(hosts.end(), static_cast<std::size_t>(r.ranks), r.host);
    if (static_cast<int>(hosts.size()) < all)
        throw std::runtime_error(fmt::format("--hosts has room for {} ranks, fewer than -n {}", hosts.size(), all));
    hosts.resize(static_cast<std::size_t>(all));
    return hosts;
}

std::string shell_word(const std::string& word) {
    std::string all = "'";
    for (const char c : word) all += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return all + "'";
}

/// One of the two texts that a rank writes.
struct text {
    descriptor from;
    int to = STDOUT_FILENO;
    std::string label, rest{};
    int lost = 0;  ///< why something could not be passed on: an error of the system

    /// Passes on the whole lines of what has come. False: it has ended.
    bool pass() {
        char part[1 << 16];
        ssize_t n;
        do n = ::read(from.get(), part, sizeof part);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN) return true;
        rest.append(part, n > 0 ? static_cast<std::size_t>(n) : 0);
        if (n <= 0 && !rest.empty() && rest.back() != '\n') rest += '\n';
        std::string lines;
        std::size_t begin = 0;
        for (std::size_t end; (end = rest.find('\n', begin)) != rest.npos; begin = end + 1)
            lines += label + rest.substr(begin, end + 1 - begin);
        rest.erase(0, begin);
        for (std::size_t done = 0; done < lines.size();) {
            const ssize_t k = ::write(to, lines.data() + done, lines.size() - done);
            pollfd room{to, POLLOUT, 0};
            if (k < 0 && errno == EAGAIN && poll(&room, 1, -1) >= 0) continue;  // another program made it non-blocking
            if (k < 0 && errno != EINTR) {
                if (errno != EPIPE) lost = errno;  // else nothing reads it any more
                break;
            }
            done += k > 0 ? static_cast<std::size_t>(k) : 0;
        }
        return n > 0;
    }
};

struct rank_process {
    pid_t id = 0;
    bool ended = false;
};

volatile std::sig_atomic_t interrupted = 0;

class launch {
public:
    explicit launch(const run_request& asked) : asked_(asked), hosts_(places_of(asked)), port_(free_port()) {
        token_ = fmt::format("{:016x}{:016x}", random_number(), random_number());
    }
    launch(const launch&) = delete;
    launch& operator=(const launch&) = delete;
    ~launch() {  // after an error of its own
        for (const rank_process& r : ranks_)
            if (!r.ended) ::kill(r.id, SIGKILL);
    }

    int run() {
        for (std::size_t r = 0; r < hosts_.size(); ++r) start(r);
        int failed = 0, well = 0;
        std::size_t left = ranks_.size();
        double next = 0;  // when those that are left get the next signal
        int step = 0;
        double ended_at = seconds_now();  // all ranks
        while (left > 0 || !texts_.empty()) {
            wait_for_texts(20);
            for (std::size_t r = 0; r < ranks_.size(); ++r) {
                int how = 0;
                if (ranks_[r].ended || waitpid(ranks_[r].id, &how, WNOHANG) != ranks_[r].id) continue;
                ranks_[r].ended = true;
                --left;
                const int status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
                well += status == 0;
                if (status == 0 || failed != 0) continue;
                failed = status;
                fmt::print(stderr, "colls run: rank {} {}{}\n", r,
                    WIFEXITED(how) ? fmt::format("has ended with status {}", status)
                                   : fmt::format("was ended by signal {}", WTERMSIG(how)),
                    asked_.elastic ? "" : ": all others end");
                if (!asked_.elastic) next = seconds_now() + grace;
            }
            if (interrupted != 0 && next == 0) {
                failed = failed != 0 ? failed : 128 + interrupted;
                // A terminal has interrupted the ranks of this host, too.
                next = seconds_now() + (interrupted == SIGINT ? grace : 0);
            }
            if (next != 0 && seconds_now() >= next && left > 0 && step < 2) {
                for (const rank_process& r : ranks_)
                    if (!r.ended) ::kill(r.id, step == 0 ? SIGTERM : SIGKILL);
                next = seconds_now() + grace;
                ++step;
            }
            if (left > 0) ended_at = seconds_now();
            if (seconds_now() > ended_at + grace) break;  // what still writes is no rank
        }
        const int status = asked_.elastic && well > 0 && interrupted == 0 ? 0 : failed;
        return status == 0 && lost_ ? 1 : status;
    }

private:
    std::vector<std::pair<std::string, std::string>> variables(std::size_t r) const {
        std::vector<std::pair<std::string, std::string>> all;
        all.emplace_back("COLLS_RANK", std::to_string(r));
        all.emplace_back("COLLS_SIZE", std::to_string(hosts_.size()));
        all.emplace_back("COLLS_LOCAL_RANK",
            std::to_string(std::count(hosts_.begin(), hosts_.begin() + static_cast<std::ptrdiff_t>(r), hosts_[r])));
        all.emplace_back("COLLS_MASTER_ADDR", hosts_[0].empty() ? "127.0.0.1" : hosts_[0]);
        all.emplace_back("COLLS_MASTER_PORT", std::to_string(port_));
        return all;
    }
    /// What a host's shell runs for a rank. The token comes by the input, since every user sees the words of a command;
    /// and where this program ends, so does the input, and with it the rank.
    std::string script(std::size_t r) const {
        std::string s = "IFS= read -r COLLS_TOKEN && export COLLS_TOKEN && cd " +
                        shell_word(std::filesystem::current_path()) + " && export";
        for (const auto& [name, value] : variables(r)) s += " " + name + "=" + shell_word(value);
        for (char** one = environ; *one != nullptr; ++one) {
            const std::string_view given(*one);
            const std::size_t is = given.find('=');
            if (given.starts_with("COLLS_") && is != given.npos && !is_set_here(given.substr(0, is)))
                s += " " + std::string(given.substr(0, is)) + "=" + shell_word(std::string(given.substr(is + 1)));
        }
        s += "; exec 3<&0; ";
        for (const std::string& word : asked_.command) s += shell_word(word) + " ";
        s += "< /dev/null 3<&- & rank=$!; { cat <&3 > /dev/null; kill $rank; sleep 5; kill -9 $rank; } > /dev/null "
             "2>&1 & "
             "watch=$!; exec 3<&-; wait $rank; status=$?; kill $watch 2> /dev/null; exit $status";
        return s;
    }
    static bool is_set_here(std::string_view name) {
        for (const std::string_view own :
            {"COLLS_RANK", "COLLS_SIZE", "COLLS_LOCAL_RANK", "COLLS_MASTER_ADDR", "COLLS_MASTER_PORT", "COLLS_TOKEN"})
            if (name == own) return true;
        return false;
    }

    void start(std::size_t r) {
        std::vector<std::string> words;
        const bool elsewhere = !hosts_[r].empty();
        if (elsewhere) {
            for (std::size_t at = 0; at < asked_.shell.size();) {
                const std::size_t space = std::min(asked_.shell.find(' ', at), asked_.shell.size());
                if (space > at) words.push_back(asked_.shell.substr(at, space - at));
                at = space + 1;
            }
            words.push_back(hosts_[r]);
            words.push_back("sh -c " + shell_word(script(r)));
        } else {
            words = asked_.command;
        }
        int out[2] = {-1, -1}, err[2] = {-1, -1}, in[2] = {-1, -1}, failed[2] = {-1, -1};
        if (pipe2(failed, O_CLOEXEC) != 0 || (elsewhere && pipe2(in, O_CLOEXEC) != 0) ||
            (asked_.label && (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)))
            throw std::runtime_error(
                fmt::format("cannot start rank {}: {}", r, colls::detail::system_text(errno).c_str()));
        std::fflush(nullptr);
        const pid_t parent = getpid(), child = fork();
        if (child < 0)
            throw std::runtime_error(
                fmt::format("cannot start rank {}: {}", r, colls::detail::system_text(errno).c_str()));
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGTERM);
            if (getppid() != parent) _exit(1);
            signal(SIGINT, SIG_DFL), signal(SIGTERM, SIG_DFL), signal(SIGPIPE, SIG_DFL);
            const int input = elsewhere ? in[0] : r == 0 ? -1 : ::open("/dev/null", O_RDONLY);
            if (input >= 0) dup2(input, STDIN_FILENO);
            if (asked_.label) dup2(out[1], STDOUT_FILENO), dup2(err[1], STDERR_FILENO);
            if (!elsewhere) {
                for (const auto& [name, value] : variables(r)) setenv(name.c_str(), value.c_str(), 1);
                setenv("COLLS_TOKEN", token_.c_str(), 1);
            }
            std::vector<char*> arguments;
            for (std::string& w : words) arguments.push_back(w.data());
            arguments.push_back(nullptr);
            execvp(arguments[0], arguments.data());
            const int why = errno;
            (void)!::write(failed[1], &why, sizeof why);
            _exit(127);
        }
        ranks_.push_back({child});
        const descriptor said(failed[0]);
        for (const int fd : {failed[1], out[1], err[1], in[0]})
            if (fd >= 0) ::close(fd);
        if (elsewhere) {
            const std::string line = token_ + "\n";
            (void)!::write(in[1], line.data(), line.size());
            inputs_.emplace_back(in[1]);
        }
        const std::string label = fmt::format("[{}] ", r);
        if (asked_.label)
            for (const auto& [from, to] : {std::pair{out[0], STDOUT_FILENO}, {err[0], STDERR_FILENO}}) {
                fcntl(from, F_SETFL, O_NONBLOCK);
                texts_.push_back({descriptor(from), to, label});
            }
        int why = 0;
        if (::read(said.get(), &why, sizeof why) == sizeof why)
            throw std::runtime_error(
                fmt::format("cannot start {}: {}", words[0], colls::detail::system_text(why).c_str()));
    }

    void wait_for_texts(int milliseconds) {
        std::vector<pollfd> all;
        for (const text& t : texts_) all.push_back({t.from.get(), POLLIN, 0});
        if (poll(all.data(), all.size(), milliseconds) <= 0) return;
        for (std::size_t i = texts_.size(); i-- > 0;) {
            if (all[i].revents == 0) continue;
            text& t = texts_[i];
            const bool goes_on = t.pass();
            if (t.lost != 0 && !std::exchange(lost_, true))
                std::fputs(fmt::format("colls run: what ranks write to {} is lost: {}\n",
                               t.to == STDOUT_FILENO ? "stdout" : "stderr", colls::detail::system_text(t.lost).c_str())
                               .c_str(),
                    stderr);
            if (!goes_on) texts_.erase(texts_.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }

    const run_request& asked_;
    std::vector<std::string> hosts_;  // of each rank
    std::string token_;
    int port_;
    std::vector<rank_process> ranks_;
    std::vector<text> texts_;
    std::vector<descriptor> inputs_;
    bool lost_ = false;  // some of what the ranks wrote
};

}  // namespace

int run_ranks(const run_request& asked) {
    if (asked.command.empty()) throw std::runtime_error("say which program: colls run -n 4 PROGRAM");
    struct sigaction now{};
    now.sa_handler = [](int which) { interrupted = which; };
    for (const int which : {SIGINT, SIGTERM, SIGHUP}) sigaction(which, &now, nullptr);
    signal(SIGPIPE, SIG_IGN);
    return launch(asked).run();
}

}  // namespace tool
