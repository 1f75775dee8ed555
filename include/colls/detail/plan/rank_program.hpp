// One rank's part of an execution plan: a list of instructions without branches, and the memory that they name.
// IWYU pragma: private, include <colls/collectives.hpp>
#pragma once

#include <colls/detail/support/list.hpp>

#include <cstdint>

namespace colls::inline v1::detail {

/// The kinds of memory of a rank. `input` and `output` are the user's buffers, indexed by unit (a part of a user block:
/// unit_map.hpp); `scratch` memory belongs to the operation and is indexed by scratch slot.
enum class buffer_kind : std::uint8_t { input, output, scratch };

struct location {
    int rank = 0;
    int index = 0;
    buffer_kind where = buffer_kind::input;
};

enum class opcode : std::uint8_t {
    wait,     ///< until `peer` has published `value`
    publish,  ///< this rank's progress: `value`
    copy,     ///< the one operand to `to`
    fold,     ///< the operands, in their order, into `to`
    send,     ///< post a message to `peer`: the operands are what it carries
    receive,  ///< post a receive from `peer`: the operands are where the message goes
    arrived,  ///< wait until receive number `value` of this program is complete
    left      ///< wait until send number `value` of this program no longer needs its operands
};

struct instruction {
    opcode op;
    bool finish = false;  ///< fold: the result is complete
    bool keep = false;    ///< copy, fold: the rank's own data, from its input to its output, after the last round
    int peer = 0;         ///< wait, send, receive, arrived, left: the other rank; copy, fold: the owner of `to`
    /// wait, publish: a progress value (dependencies.hpp); send, receive, arrived, left: the number of the message in
    /// this program, sends and receives apart
    int value = 0;
    int unit = 0;   ///< copy, fold: the unit that gives the length; send, receive: the port
    int round = 0;  ///< of the schedule; behind its last round: the number of rounds
    int first = 0;  ///< the operands are [first, first + count) of the program's
    int count = 0;
    int pushes = 0;   ///< fold, copy: this many instructions that follow copy its result, or its source, too
    int channel = 0;  ///< send, receive: which of the program's peers `peer` is
    location to{};    ///< copy, fold
};

struct rank_program {
    /// Staged: waits before a chunk whose scratch slots an earlier chunk used.
    list<instruction> reuse_waits;
    list<instruction> body;  ///< once per chunk
    list<instruction> exit;  ///< waits after the last chunk
    list<location> operands;
    int scratch = 0;  ///< scratch slots of this rank

    // Where messages pass:

    /// For each operand of a send or receive, the unit that gives its length.
    list<int> units;
    /// Where the segments of the body end, but for the last one. Segment k waits for the messages of round k - 1, folds
    /// them, and posts those of round k; segment 0 also posts those sent ahead.
    list<int> segments;
    int sends = 0, receives = 0;  ///< messages per chunk
    list<int> peers;              ///< the ranks that it sends to or receives from, each once
};

}  // namespace colls::inline v1::detail
