#include "tune.hpp"

#include "exchange.hpp"
#include "measure.hpp"
#include "schedule_list.hpp"

#include <colls/detail/choose/explanation.hpp>  // the candidates, and a choice that is forced for one communicator
#include <colls/explain.hpp>
#include <colls/files/detail/tuning_file.hpp>

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace perf {

namespace {

constexpr double clear_gain = 0.05, nearly_fastest = 1.03, hopeless = 5;
constexpr double turn_seconds = 1e-3, cell_seconds = 0.25;
constexpr int most_calls = 1000, first_rounds = 3, least_rounds = 8, most_rounds = 15;
constexpr std::size_t finalists = 3;

double median(const std::vector<double>& times) { return percentile(times, 0.5); }

/// Forces schedules on one communicator, in the way of COLLS_SCHEDULE, and gives the choice back to the library in the
/// end. Every rank forces the same ones in the same order.
class forced_choice {
public:
    explicit forced_choice(colls::communicator& comm) : context_(comm.context()), before_(context_.env.schedule) {}
    ~forced_choice() { set(before_); }
    forced_choice(const forced_choice&) = delete;
    forced_choice& operator=(const forced_choice&) = delete;
    /// Null: the library chooses. The name is kept by its caller.
    void set(const char* name) {
        context_.env.schedule = name;
        context_.choices.clear();
    }

private:
    colls::detail::rank_context& context_;
    const char* before_;
};

/// The schedules that a file may name for the call in place of the choice: the same on all ranks.
std::vector<std::string> rivals_of(
    colls::communicator& comm, forced_choice& choice, colls::collective what, const tuned_cell& cell) {
    const colls::detail::rank_context& self = comm.context();
    const auto list = colls::detail::all_candidates_of(what);
    const auto is_weighed = [&](const std::string& name) {
        for (int i = 0; i < list.count; ++i)
            if (list.first[i].name == name)
                return colls::detail::is_weighed(list.first[i], self, colls::detail::reached_by(self));
        return true;
    };
    // Ordinary buffers of processes are staged, and the library may choose another schedule for that.
    const bool same_for_all_buffers = self.by_messages || self.access.is_whole();
    std::vector<std::string> rivals;
    for (const std::string& name : schedule_names()) {
        if (!supports(name, what, comm.size()) || !is_weighed(name)) continue;
        if (name == cell.usual && same_for_all_buffers) continue;
        choice.set(name.c_str());
        if (colls::chosen(comm, what, cell.bytes) == name) rivals.push_back(name);
    }
    return rivals;
}

}  // namespace

std::string not_tuned(job j) {
    switch (j) {
        case job::scatter:
        case job::gather:
            return fmt::format("{} always goes by direct: not all ranks know its size", name_of(j));
        case job::all_to_all_v:
            return fmt::format("{} always goes by direct: no other rank knows the counts", name_of(j));
        case job::send_recv:
            return fmt::format("{} passes messages between pairs of ranks, without a schedule", name_of(j));
        default:
            return {};
    }
}

bool clearly_faster(const std::vector<double>& times, const std::vector<double>& usual) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < times.size(); ++i) ratios.push_back(times[i] / usual[i]);
    return !ratios.empty() && percentile(ratios, 0.75) < 1 - clear_gain;
}

tuned_cell tune(colls::communicator& comm, const call_kind& kind, const shape& size, std::vector<buffer_pair>& pairs,
    const options& o) {
    const double begun = seconds_now();
    const colls::collective what = *collective_of(kind.what);
    forced_choice choice(comm);
    choice.set(nullptr);
    tuned_cell cell{kind.what, size.bytes(), colls::chosen(comm, what, size.bytes()), 0, {}};
    const std::vector<std::string> rivals = rivals_of(comm, choice, what, cell);

    trial t(comm, kind, size, pairs);
    options turn = o;
    turn.percentiles = turn.per_iteration = false;
    turn.warmup = std::clamp(o.warmup, 1, 2);
    const auto seconds_of = [&](const char* name) {
        choice.set(name);
        return measure(comm, t, *kind.type, turn).seconds;
    };
    turn.iterations = 3;
    const double once = seconds_of(nullptr);
    turn.iterations =
        o.iterations > 0
            ? o.iterations
            : shared(comm, static_cast<int>(std::clamp(turn_seconds / std::max(once, 1e-9), 1.0, 1.0 * most_calls)));

    std::vector<double> usual;
    std::vector<std::vector<double>> times(rivals.size());
    // Rank 0 knows the times, and decides: which rivals are measured on, by a bit each, and when to stop.
    std::uint64_t left = (std::uint64_t{1} << rivals.size()) - 1;
    const auto keep = [&](auto worth) {
        for (std::size_t i = 0; i < rivals.size(); ++i)
            if (left >> i & 1 && !worth(i)) left &= ~(std::uint64_t{1} << i);
        left = shared(comm, left);
    };
    const auto round = [&] {
        usual.push_back(seconds_of(nullptr));
        for (std::size_t i = 0; i < rivals.size(); ++i)
            if (left >> i & 1) times[i].push_back(seconds_of(rivals[i].c_str()));
    };
    const auto late = [&](double share) { return shared(comm, seconds_now() - begun > share * cell_seconds); };
    round();
    keep([&](std::size_t i) { return times[i][0] < hopeless * usual[0]; });
    for (int i = 1; i < first_rounds && !late(0.5); ++i) round();
    std::vector<double> medians;
    for (std::size_t i = 0; i < rivals.size(); ++i)
        if (left >> i & 1) medians.push_back(median(times[i]));
    std::ranges::sort(medians);
    keep([&](std::size_t i) {
        const double own = median(times[i]);
        return own < median(usual) && (medians.size() <= finalists || own < medians[finalists]);
    });

    usual.clear();
    for (std::vector<double>& each : times) each.clear();
    for (int i = 0; i < most_rounds && left != 0 && (i < least_rounds || !late(1)); ++i) round();
    if (usual.empty()) usual.push_back(once);
    cell.usual_seconds = median(usual);
    keep([&](std::size_t i) { return clearly_faster(times[i], usual); });
    for (std::size_t i = 0; i < rivals.size(); ++i)
        if (left >> i & 1) cell.faster.push_back({rivals[i], median(times[i])});
    std::ranges::sort(cell.faster, {}, &faster_schedule::seconds);
    return cell;
}

std::vector<tuned_line> lines_of(const std::vector<tuned_cell>& cells) {
    std::vector<tuned_line> lines;
    const tuned_cell* before = nullptr;
    const std::string automatic(colls::detail::automatic_name);
    std::string in_force = automatic;
    const auto end = [&] {  // beyond what was measured the library chooses
        if (before && before->bytes > 0 && in_force != automatic)
            lines.push_back({before->what, before->bytes + 1, automatic, nullptr});
        in_force = automatic;
    };
    for (const tuned_cell& cell : cells) {
        if (before && before->what != cell.what) {
            end();
            before = nullptr;
        }
        std::string name = cell.faster.empty() ? automatic : cell.faster.front().name;
        for (const faster_schedule& f : cell.faster)
            if (f.name == in_force && f.seconds < nearly_fastest * cell.faster.front().seconds) name = in_force;
        if (name != in_force) {
            // Sizes are told apart by classes: the least size of its class stands for the first one.
            const double from = before ? std::ceil(std::sqrt(static_cast<double>(before->bytes + 1)) *
                                                   std::sqrt(static_cast<double>(cell.bytes)))
                                       : colls::detail::class_bytes(cell.bytes);
            const std::size_t least = static_cast<std::size_t>(colls::detail::class_bytes(cell.bytes));
            lines.push_back({cell.what, std::min(static_cast<std::size_t>(from), least), name, &cell});
        }
        in_force = name;
        before = &cell;
    }
    end();
    return lines;
}

std::optional<colls::extend::machine> figures_of(colls::communicator& comm) {
    const colls::detail::rank_context& self = comm.context();
    return self.by_messages ? std::nullopt : std::optional(self.backend->figures());
}

std::string tuning_text(const tuning_origin& origin, const std::vector<tuned_line>& lines) {
    std::string out = "# Schedules that were measured to be faster than the library's choice, for COLLS_TUNE\n";
    const auto remark = [&](const std::string& text) {
        constexpr std::size_t width = 200;  // the reader takes lines of 254 characters
        for (std::size_t at = 0; at < text.size(); at += width) out += "# " + text.substr(at, width) + "\n";
    };
    remark(origin.measured);
    remark(origin.command);
    if (const auto& m = origin.figures)
        out += fmt::format("machine {:.9g} {:.9g} {:.9g} {:.9g}\n", m->alpha, m->beta, m->gamma, m->near_below);
    else
        remark("no line with the machine's figures: those of messages are the transport's own");
    for (const tuned_line& l : lines) {
        if (l.by && !l.by->faster.empty())
            remark(fmt::format("{} of {} bytes: {} takes {:.2f} us, {} {:.2f} us", name_of(l.what), l.by->bytes,
                l.by->usual, l.by->usual_seconds * 1e6, l.by->faster.front().name, l.by->faster.front().seconds * 1e6));
        out += fmt::format("schedule {} {} {} {}\n", name_of(l.what), origin.ranks, l.from, l.name);
    }
    return out;
}

std::string tuning_table(const std::vector<tuned_cell>& cells, const std::vector<tuned_line>& lines) {
    std::string rows;
    for (const tuned_cell& cell : cells) {
        const tuned_line* holds = nullptr;
        for (const tuned_line& l : lines)
            if (l.what == cell.what && static_cast<double>(l.from) <= colls::detail::class_bytes(cell.bytes))
                holds = &l;
        for (const faster_schedule& f : cell.faster)
            if (holds && f.name == holds->name)
                rows += fmt::format("  {:<16} {:>12} {:<20} {:>10.2f}  {:<20} {:>10.2f} {:>6.2f}\n", name_of(cell.what),
                    cell.bytes, cell.usual, cell.usual_seconds * 1e6, f.name, f.seconds * 1e6,
                    cell.usual_seconds / f.seconds);
    }
    if (rows.empty()) return fmt::format("# The library's choice is best at all {} sizes\n", cells.size());
    return fmt::format("# {:<16} {:>12} {:<20} {:>10}  {:<20} {:>10} {:>6}\n", "collective", "size (B)",
               "library's choice", "time (us)", "faster", "time (us)", "gain") +
           rows;
}

namespace {

std::string unfinished(const std::string& path) { return fmt::format("{}.{}.unfinished", path, getpid()); }

}  // namespace

void check_writable(const std::string& path) {
    const std::string beside = unfinished(path);
    const bool opens = !std::filesystem::is_directory(path) && std::ofstream(beside).is_open();
    unlink(beside.c_str());
    if (!opens) throw std::runtime_error(path + " cannot be written");
}
void replace_file(const std::string& path, const std::string& text) {
    const std::string beside = unfinished(path);
    std::ofstream out(beside);
    out << text;
    out.close();
    if (out && std::rename(beside.c_str(), path.c_str()) == 0) return;
    unlink(beside.c_str());
    throw std::runtime_error(path + " cannot be written");
}

}  // namespace perf
