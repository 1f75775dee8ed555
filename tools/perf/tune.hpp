// --tune: which schedules are faster than the library's own choice, and the file of COLLS_TUNE that says so.
#pragma once

#include "options.hpp"
#include "trial.hpp"

#include <colls/extend/machine.hpp>

#include <optional>
#include <string>
#include <vector>

namespace perf {

/// A schedule that was measured to be clearly faster than the library's choice.
struct faster_schedule {
    std::string name;
    double seconds;
};
/// What was measured of one collective at one size; on rank 0, on the others without times.
struct tuned_cell {
    job what{};
    std::size_t bytes = 0;
    std::string usual;                    ///< the library's own choice
    double usual_seconds = 0;             ///< of a call, the median
    std::vector<faster_schedule> faster;  ///< the fastest first; empty: the choice stays
};

/// Why --tune does nothing for a collective; empty: it is one that `automatic` chooses a schedule for, by its size.
std::string not_tuned(job j);

/// Is a schedule clearly faster, by the times of both in each round? It is 5 % faster in three rounds of four.
bool clearly_faster(const std::vector<double>& times, const std::vector<double>& usual);

/// Measures the library's choice and all other schedules for a call, by short turns of each: up to three rounds, in
/// which those that take five times as long are dropped, then 8 to 15 rounds of the choice and of the three that were
/// fastest. Takes about 0.3 s on a free machine, and longer where a call takes more than a few ms. Collective. `pairs`
/// as for trial.
tuned_cell tune(colls::communicator& comm, const call_kind& kind, const shape& size, std::vector<buffer_pair>& pairs,
    const options& o);

/// A line of the file: from so many bytes on this schedule, or `automatic`, the library's choice.
struct tuned_line {
    job what{};
    std::size_t from = 0;
    std::string name;
    const tuned_cell* by = nullptr;  ///< the cell that begins it; null where it ends what cells have measured
};
/// The lines that follow from cells, which lie in order of size within each collective. Between two sizes a line begins
/// at their geometric mean. Where the schedule of the size before is nearly the fastest (3 %) it is kept.
std::vector<tuned_line> lines_of(const std::vector<tuned_cell>& cells);

/// What a file says about itself.
struct tuning_origin {
    std::string measured;  ///< transport, ranks, hosts, type, buffers
    std::string command;
    int ranks = 0;
    std::optional<colls::extend::machine> figures;  ///< none for messages, whose figures no file changes
};
/// The figures of the machine from which `automatic` predicts in comm's group; none for messages.
std::optional<colls::extend::machine> figures_of(colls::communicator& comm);
/// The file's text.
std::string tuning_text(const tuning_origin& origin, const std::vector<tuned_line>& lines);
/// A table of the sizes whose schedule changes, with the gain.
std::string tuning_table(const std::vector<tuned_cell>& cells, const std::vector<tuned_line>& lines);

/// Throws where no file can be written there.
void check_writable(const std::string& path);
/// Writes the file under another name, and renames it: a reader finds the whole file, or the one before.
void replace_file(const std::string& path, const std::string& text);

}  // namespace perf
