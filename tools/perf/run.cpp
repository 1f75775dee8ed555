#include "run.hpp"

#include "chart.hpp"
#include "exchange.hpp"
#include "schedule_list.hpp"
#include "tune.hpp"

#include <colls/bootstrap/launch.hpp>
#include <colls/explain.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <stdexcept>

namespace perf {

namespace {

constexpr std::size_t most_element = 8;  // bytes

/// One line of the table, before it is measured.
struct planned {
    call_kind kind;
    shape size;
};

void write_file(const std::string& path, const std::string& text) {
    std::ofstream out(path);
    out << text;
    if (!out.flush()) throw std::runtime_error(path + " cannot be written");
}

class session {
public:
    session(colls::communicator& comm, const options& o)
        : comm_(comm), o_(o), speaks_(comm.rank() == 0), progress_(speaks_ && (o.progress || isatty(2) == 1)) {}

    int run() {
        if (o_.pin) pin();
        find_places();
        if (!prepare()) return wrong_arguments;
        if (speaks_) say("{}", heading(o_, places_));
        if (!o_.tune.empty()) return tune_all();
        for (int cycle = 0; o_.cycles == 0 || cycle < o_.cycles; ++cycle)
            for (std::size_t first = 0; first < plan_.size();) {
                std::size_t last = first;
                while (last < plan_.size() && plan_[last].kind.what == plan_[first].kind.what) ++last;
                run_collective(first, last);
                first = last;
            }
        std::string failure;
        try {
            write();
        } catch (const std::exception& e) {
            failure = e.what();
        }
        if (!agreed(failure)) return failed;
        return shared(comm_, failed_checks(rows_) > 0 ? int{wrong_data} : int{fine});
    }

private:
    template <class... Values>
    void say(fmt::format_string<Values...> format, Values&&... values) {
        if (!speaks_) return;
        fmt::print(format, std::forward<Values>(values)...);
        std::fflush(stdout);
    }
    /// On all ranks: whether rank 0 has found no failure, which it prints.
    bool agreed(const std::string& failure) {
        if (speaks_ && !failure.empty()) fmt::print(stderr, "colls_perf: {}\n", failure);
        return shared(comm_, failure.empty());
    }

    void pin() {
        cpu_set_t usable, own;
        if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
        int skip = (o_.transport == "world" || o_.transport == "mpi" ? colls::read_launch().local_rank : comm_.rank()) %
                   CPU_COUNT(&usable);
        for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
            if (CPU_ISSET(core, &usable) && skip-- == 0) {
                CPU_ZERO(&own);
                CPU_SET(core, &own);
                sched_setaffinity(0, sizeof own, &own);
            }
    }
    void find_places() {
        place own{};
        gethostname(own.host, sizeof own.host - 1);
        own.pid = static_cast<int>(getpid());
        own.core = sched_getcpu();
        places_ = collect(comm_, own);
    }

    /// Plans all rows, and reads and opens files, so that what is wrong is said before anything is measured.
    bool prepare() {
        std::string failure;
        try {
            plan();
            if (!o_.plot.empty() && std::ranges::all_of(plan_, [](const planned& p) { return p.size.bytes() == 0; }))
                throw std::runtime_error("--plot: there is nothing to draw: no size is above 0");
            if (speaks_)
                for (const auto& [name, file] : o_.peers) peers_.push_back(read_peer(name, file));
            for (const std::string& path : {o_.json, o_.plot})
                if (speaks_ && !path.empty() && !std::ofstream(path, std::ios::app))
                    throw std::runtime_error(path + " cannot be written");
            if (speaks_ && !o_.tune.empty()) check_writable(o_.tune);
        } catch (const std::exception& e) {
            failure = e.what();
        }
        if (!agreed(failure)) return false;
        std::size_t capacity = 0;
        for (const planned& p : plan_) capacity = std::max(capacity, p.size.bytes());
        for (int k = 0; k < o_.aggregate; ++k) {
            const auto buffer = [&] { return guarded(comm_, capacity, o_.unalign * most_element, o_.registered); };
            pairs_.push_back({buffer(), buffer()});
        }
        return true;
    }

    /// Why the schedule that the user names does not work for a collective; empty: it does.
    std::string misfit(job j) const {
        if (!o_.tune.empty())
            if (const std::string why = not_tuned(j); !why.empty()) return why;
        if (o_.schedule.empty() || j == job::send_recv)
            return o_.schedule.empty() ? "" : "send_recv passes messages between pairs of ranks, without a schedule";
        const colls::collective what = *collective_of(j);
        if (!provides(o_.schedule, what)) return fmt::format("{} has no schedule for {}", o_.schedule, name_of(j));
        if (!supports(o_.schedule, what, comm_.size()))
            return fmt::format("{} does not support {} ranks in {}", o_.schedule, comm_.size(), name_of(j));
        if (j == job::all_to_all_v && o_.schedule != "direct")
            return "all_to_all_v always goes by direct: no other rank knows the counts";
        return {};
    }

    void plan() {
        std::vector<std::string> left_out;
        for (const job j : o_.jobs) {
            std::string why = misfit(j);
            if (why.empty() && rooted(j) && o_.root >= comm_.size())
                throw std::runtime_error(
                    fmt::format("-r {}: out of range: this group has ranks 0 to {}", o_.root, comm_.size() - 1));
            if (!why.empty() && !o_.all_jobs) throw std::runtime_error(why);
            if (!why.empty()) {
                say("# Left out: {}: {}\n", name_of(j), why);
                continue;
            }
            plan(j);
        }
        if (plan_.empty())
            throw std::runtime_error((o_.tune.empty() ? o_.schedule : "--tune") +
                                     " works for none of the collectives, types and sizes asked for");
    }
    void plan(job j) {
        const std::vector<reduction> ops = reduces(j) ? o_.ops : std::vector{reduction::none};
        std::vector<const element_type*> types = o_.types;
        if (j == job::barrier) types.resize(1);
        const bool scan = j == job::inclusive_scan || j == job::exclusive_scan;
        for (const element_type* type : types)
            for (const reduction op : ops) {
                if (scan && op == reduction::avg) {
                    if (o_.all_ops || o_.all_jobs) continue;
                    throw std::runtime_error(fmt::format(
                        "-o avg: {} takes no average: its results are of different numbers of ranks", name_of(j)));
                }
                const int first = !rooted(j) || o_.root < 0 ? 0 : o_.root,
                          last = rooted(j) && o_.root < 0 ? comm_.size() - 1 : first;
                for (int root = first; root <= last; ++root) plan(call_kind{j, type, op, root, false, -1, o_.unalign});
            }
    }
    void plan(call_kind kind) {
        const auto what = collective_of(kind.what);
        if (what && !o_.schedule.empty()) kind.schedule = index_of(o_.schedule, *what);
        std::size_t before = 0;
        bool none = true;
        for (std::size_t bytes = o_.min_bytes; bytes <= o_.max_bytes;
            bytes = o_.step_factor > 1 ? std::max(bytes, std::size_t{1}) * o_.step_factor : bytes + o_.step_bytes) {
            const shape s = shape_of(kind.what, bytes, kind.type->size, comm_.size());
            if (const bool repeated = !none && s.bytes() == before; !repeated && fits(kind, s))
                plan_.push_back({kind, s});
            none = false;
            before = s.bytes();
            if (kind.what == job::barrier || (o_.step_factor < 2 && o_.step_bytes == 0)) break;
        }
    }
    /// False where the library would take another schedule than the one that the user names.
    bool fits(const call_kind& kind, const shape& s) {
        if (o_.schedule.empty() || kind.schedule >= 0 || schedule_of(kind, s) == o_.schedule) return true;
        say("# Left out: {} of {} bytes: {} does not work for it{}\n", name_of(kind.what), s.bytes(), o_.schedule,
            o_.reproducible ? ", or is not reproducible" : "");
        return false;
    }
    std::string schedule_of(const call_kind& kind, const shape& s) {
        const auto what = collective_of(kind.what);
        if (!what) return "exchange";
        if (kind.what == job::all_to_all_v) return "direct";
        return kind.schedule >= 0 ? o_.schedule : colls::chosen(comm_, *what, s.bytes());
    }

    int tune_all() {
        std::vector<tuned_cell> cells;
        for (const planned& p : plan_) {
            show_progress(cells.size(), p);
            cells.push_back(tune(comm_, p.kind, p.size, pairs_, o_));
            if (progress_) fmt::print(stderr, "\r\033[K");
        }
        std::string failure;
        try {
            if (speaks_) {
                const std::vector<tuned_line> lines = lines_of(cells);
                replace_file(o_.tune, tuning_text(origin(), lines));
                say("#\n{}# Written: {}\n", tuning_table(cells, lines), o_.tune);
            }
        } catch (const std::exception& e) {
            failure = e.what();
        }
        return agreed(failure) ? fine : failed;
    }
    tuning_origin origin() const {
        tuning_origin from{.measured = {}, .command = o_.command, .ranks = comm_.size(), .figures = figures_of(comm_)};
        const std::size_t hosts = hosts_of(places_).size();
        const call_kind& kind = plan_.front().kind;
        from.measured = fmt::format("transport {}, {} rank{} on {} host{}; {}, {}, {}, {}", o_.transport, comm_.size(),
            comm_.size() > 1 ? "s" : "", hosts, hosts > 1 ? "s" : "", kind.type->name, name_of(o_.ops.front()),
            o_.registered ? "buffers from communicator::allocate" : "ordinary buffers",
            o_.fresh ? "fresh data for each call" : "the same data for all calls");
        return from;
    }
    void show_progress(std::size_t done, const planned& p) {
        if (!progress_) return;
        fmt::print(stderr, "\r{} of {}: {} {} {} bytes \033[K", done + 1, plan_.size(), name_of(p.kind.what),
            p.kind.type->name, p.size.bytes());
    }

    void run_collective(std::size_t first, std::size_t last) {
        const job j = plan_[first].kind.what;
        const std::size_t before = rows_.size();
        if (speaks_) say("{}", columns(o_, j));
        for (std::size_t i = first; i < last; ++i) {
            const planned& p = plan_[i];
            show_progress(i, p);
            rows_.push_back(measured(p));
            if (progress_) fmt::print(stderr, "\r\033[K");
            if (speaks_) say("{}", line(o_, rows_.back()));
        }
        if (speaks_) say("{}", footer(j, {rows_.begin() + static_cast<std::ptrdiff_t>(before), rows_.end()}));
    }

    row measured(const planned& p) {
        const job j = p.kind.what;
        row r;
        r.what = j;
        r.size = p.size;
        r.type = j == job::barrier ? "" : p.kind.type->name;
        r.op = p.kind.op;
        r.root = rooted(j) ? p.kind.root : -1;
        r.ranks = comm_.size();
        r.schedule = schedule_of(p.kind, p.size);
        r.at = std::time(nullptr);
        if (runs_out_of_place(j)) r.out_of_place = measured(p, false);
        if (runs_in_place(j)) r.in_place = measured(p, true);
        if (!o_.json.empty() || !o_.plot.empty()) {
            const double copy = p.size.bytes() > 0 ? time_copies(comm_, pairs_.front(), p.size.bytes()) : 0;
            const auto what = collective_of(j);
            const int rounds = comm_.size() < 2 ? 0 : what ? fewest_rounds(*what, comm_.size()) : 1;
            r.bound_seconds = rounds * colls::model_of(comm_).alpha + least_copies(j, comm_.size()) * copy;
        }
        return r;
    }
    half measured(const planned& p, bool in_place) {
        call_kind kind = p.kind;
        kind.in_place = in_place;
        trial t(comm_, kind, p.size, pairs_);
        half h{measure(comm_, t, *kind.type, o_), {}};
        if (o_.checks == 0) return h;
        std::size_t wrong = 0;
        for (int i = 0; i < o_.checks; ++i) wrong += check(t, *kind.type);
        if (reduces(kind.what)) {  // the same once more with an operator that shows the order of its operands
            call_kind ordered = kind;
            ordered.op = reduction::compose;
            ordered.type = &unsigned_of(kind.type->size);
            trial o(comm_, ordered, p.size, pairs_);
            wrong += check(o, *ordered.type);
        }
        h.wrong = 0;
        for (const std::size_t each : collect(comm_, wrong)) *h.wrong += each;
        return h;
    }
    std::size_t check(trial& t, const element_type& type) {
        std::vector<colls::operation> started;
        return t.wrong_after(++seed_ * 1000, [&] { iterate(comm_, t, type, o_, started); });
    }

    void write() {
        if (!speaks_) return;
        if (!o_.json.empty())
            write_file(o_.json,
                to_json(o_, rows_, places_).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
        if (!o_.plot.empty()) write_file(o_.plot, draw(o_, rows_, peers_));
        if (std::ferror(stdout) != 0) throw std::runtime_error("cannot write to the standard output");
    }

    colls::communicator& comm_;
    const options& o_;
    bool speaks_, progress_;
    std::vector<place> places_;
    std::vector<planned> plan_;
    std::vector<peer> peers_;
    std::vector<buffer_pair> pairs_;
    std::vector<row> rows_;
    std::uint64_t seed_ = 0;
};

}  // namespace

void set_environment(const options& o) {
    if (!o.schedule.empty()) setenv("COLLS_SCHEDULE", o.schedule.c_str(), 1);
    if (o.reproducible) setenv("COLLS_REPRODUCIBLE", "1", 1);
    if (!o.timeout.empty()) setenv("COLLS_TIMEOUT", o.timeout.c_str(), 1);
    if (o.carried_by_messages()) setenv("COLLS_TRANSPORT", o.transport.c_str(), 1);
}

int run(colls::communicator& comm, const options& o) { return session(comm, o).run(); }

}  // namespace perf
