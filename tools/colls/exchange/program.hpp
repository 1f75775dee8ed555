// What a plan of another library does, whatever its format: chunks that are moved, and which step waits for which.
#pragma once

#include <colls/schedule.hpp>
#include <colls/step.hpp>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace exchange {

/// The plan is wrong: it waits for ever, races, or reads what nothing has written. The text says which step and why.
struct refuted : std::runtime_error {
    using std::runtime_error::runtime_error;
};
/// The plan is malformed, or uses what cannot be expressed as a schedule. The text says which step and why.
struct refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A memory of one rank. `input` and `output` are the user's, and are numbered as the blocks of the collective are:
/// chunk c of the input of rank r in an all_gather is block r · chunks + c. A plan that works in place has an input
/// alone. `passing` holds what a step receives, reduces and sends on without storing it.
enum class memory : unsigned char { input, output, scratch, passing };

/// One chunk of a memory.
struct place {
    int rank = 0;
    memory in = memory::input;
    int index = 0;
    friend auto operator<=>(const place&, const place&) = default;
};

/// A step of the plan, which an executor runs without interruption after the steps that it waits for.
struct event {
    int rank = 0;
    int thread = 0;    ///< number of the thread block, counted over all ranks: its steps run in order
    int block = 0;     ///< the thread block, as the plan numbers it
    int step = 0;      ///< as the plan numbers it
    std::string type;  ///< as the plan spells it
};

/// One chunk that is copied or reduced. `read_at` and `written_at` are events; they differ where a message is
/// underway between the two.
struct move {
    colls::action action = colls::action::copy;
    place from, to;
    int read_at = 0, written_at = 0;
    int read_phase = 0, written_phase = 0;  ///< order of what one event does
    int group = 0;                          ///< moves of one group make up one message, or one local step
};

struct program {
    std::string name;
    colls::collective implements = colls::collective::all_reduce;
    int ranks = 0, blocks = 0, root = 0;
    int parts = 1;          ///< blocks that make up a chunk of the plan,
    int scratch_parts = 1;  ///< and those of one in scratch memory
    bool in_place = false;
    std::vector<event> events;
    std::vector<std::pair<int, int>> waits;  ///< the second event waits for the first
    std::vector<move> moves;
    int groups = 0;
    /// Where ranks access each other's memory: of each, the events before and after all its steps. What is not between
    /// them may find memory that is still the user's, or is so again.
    std::vector<int> begins, ends;

    /// Whether a rank's input has this block at the start.
    bool given(int rank, int block) const;
    /// Whether a rank's output must have this block at the end.
    bool wanted(int rank, int block) const;
};

/// "gpu 2, thread block 1, step 3 (rrc)"
std::string words(const event& e);
/// "o[3]"; in the numbers of the collective's blocks, or, where chunks have parts, "o[1] (part 2 of 2)".
std::string words(const program& plan, const place& p);

}  // namespace exchange
