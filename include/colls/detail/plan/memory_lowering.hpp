// Execution plans for executors that load from and store to the memory of peers.
// IWYU pragma: private, include <colls/collectives.hpp>
//
// Each round has two phases. In the send phase a rank stores into its peers' memory, in the fold phase it folds into
// its own; it publishes a progress value after each. A block that is reduced is pulled: the receiver reads the sender's
// slot while it folds. A block that is copied is pushed, that is, stored by its sender, or pulled, as the plan's
// `copies` says. Where a round both sends and overwrites a slot, data go through a scratch slot of the receiver.
//
// Within reach::scratch everything is pulled, and what peers read is staged: copied once to a scratch slot of its
// owner. Within reach::processes it is staged only where the round overwrites it.
#pragma once

#include <colls/detail/plan/lowering.hpp>

namespace colls::inline v1::detail {

class memory_lowering final : lowering {
public:
    memory_lowering(const step_table& steps, const unit_map& units, execution_plan& plan)
        : lowering(steps, units, plan.within), plan_(plan) {}

    /// Makes all programs of the plan.
    [[gnu::cold]] void lower() {
        lower_rounds();
        for (int r = 0; r < steps_.size; ++r) {
            rank_program& program = programs_[r];
            if (within_ == reach::scratch) accesses_.flush_reuse(r, program.reuse_waits, steps_.rounds);
            accesses_.flush_exit(r, program.exit, steps_.rounds);
        }
        for (int r = 0; r < steps_.size; ++r) {
            accesses_.drop_unneeded_publications(r, programs_[r].body);
            mark_pushes(programs_[r]);
            plan_.add_program(r, std::move(programs_[r]));
        }
    }

private:
    static int stored(int round) { return 2 * round + 1; }
    static int folded(int round) { return 2 * round + 2; }

    void send(int rank, int round, int port) override {
        const send_part& from = steps_.at(rank, round, port).send;
        const receive_part& into = steps_.at(from.peer, round, port).recv;
        for (int i = 0; i < from.blocks.size(); ++i)
            send_block(rank, from.blocks[i], from.peer, into.blocks[i], into.action, round);
    }
    void receive(int, int, int) override {}
    void end_transfers(int rank, int round) override {
        record(rank, stored(round));
        append_phase(rank, round);
        publish(rank, stored(round), round);
    }
    void end_folds(int rank, int round) override {
        const bool over = round == steps_.rounds;
        if (over && (within_ == reach::scratch || (within_ == reach::buffers && plan_.copies == copying::pulled)))
            copy_early(rank);
        record(rank, over ? plan_.values() : folded(round));
        // A barrier has no data whose accesses would make ranks wait.
        for (int p = 0; !over && steps_.what == collective::barrier && p < steps_.ports; ++p)
            if (const int peer = steps_.at(rank, round, p).recv.peer; peer != none)
                accesses_.need(rank, peer, stored(round));
        append_phase(rank, round);
        if (!over) publish(rank, folded(round), round);
    }
    int combined(int, int, int, int sum) const override { return sum; }

    void send_block(int sender, int slot, int receiver, int to, action act, int round) {
        if (units_.is_empty(slot)) return;
        const slot_state& source = slots_.at(sender, slot);
        arrival block{to, sender, source.at, source.contributions, act};
        // Peers may pull it, unless the round may overwrite it. Input and output of an all_to_all are different memory.
        const bool stays = source.received_in != round ||
                           (steps_.what == collective::all_to_all && source.at.where == buffer_kind::input);
        if (pulls_all(within_) && !pushes(sender, slot, receiver)) {
            if (source.at.where != buffer_kind::scratch && (within_ != reach::processes || !stays))
                block.source = stage(sender, slot, round);
            add_arrival(receiver, block);
        } else if (!pulls_all(within_) && stays && (act == action::reduce || plan_.copies == copying::pulled)) {
            add_arrival(receiver, block);
        } else {
            const location from = source.at;
            add_copy(sender, from, land(sender, receiver, block, round), units_.length_unit(sender, slot, from), round);
        }
    }
    // See pulls_all().
    bool pushes(int sender, int slot, int receiver) const {
        if (within_ != reach::processes) return false;
        if (steps_.what == collective::gather) return true;
        return steps_.what == collective::broadcast && steps_.rounds == 1 && steps_.blocks == steps_.size &&
               sender == steps_.root && slot == receiver;
    }
    // The scratch slot from which peers read the slot's data: they are copied there for the first of them.
    [[gnu::cold]] location stage(int rank, int slot, int round) {
        slot_state& own = slots_.at(rank, slot);
        const location from = own.at;
        const bool is_staged = own.staged != none;
        if (!is_staged) own.staged = slots_.take(rank, rank).index;
        const location copy{rank, own.staged, buffer_kind::scratch};
        if (!is_staged) add_copy(rank, from, copy, units_.length_unit(rank, slot, from), round);
        return copy;
    }
    void record(int rank, int done) {
        for (const instruction& i : phase_) accesses_.access(rank, i, programs_[rank].operands, done);
    }
    void publish(int rank, int value, int round) {
        programs_[rank].body.push_back({.op = opcode::publish, .value = value, .round = round});
        accesses_.publish(rank, value);
    }
    // Moves copies of what has stayed in the rank's input to where they cost least; they need no waits. Where peers
    // pull from the input, in place there is nothing to copy: to the begin of the program, where there is time while
    // the others enter. Where it is staged: behind what stages the same, so that both are one pass; or else to the
    // first wait.
    [[gnu::cold]] void copy_early(int rank) {
        rank_program& program = programs_[rank];
        const auto source = [&](const instruction& i) { return program.operands[i.first]; };
        list<instruction> body;
        const auto move = [&](int index) {
            std::size_t kept = 0;
            for (const instruction& i : phase_) {
                const location from = source(i);
                const bool moves = i.op == opcode::copy && from.where == buffer_kind::input;
                if (moves && (index == none || from.index == index))
                    body.push_back(i);
                else
                    phase_[kept++] = i;
            }
            phase_.resize(kept);
        };
        bool moved = within_ == reach::buffers;
        if (moved) move(none);
        for (const instruction& i : program.body) {
            if (i.op == opcode::wait && !moved) {
                move(none);
                moved = true;
            }
            body.push_back(i);
            if (moved || i.op != opcode::copy || i.to.where != buffer_kind::scratch ||
                source(i).where != buffer_kind::input)
                continue;
            const std::size_t after = body.size();
            move(source(i).index);
            body[after - 1].pushes = static_cast<int>(body.size() - after);
        }
        program.body = std::move(body);
    }
    // A fold and the copies of its result that follow it can be done piece by piece, while a piece is in the nearest
    // cache.
    [[gnu::cold]] static void mark_pushes(rank_program& program) {
        list<instruction>& body = program.body;
        for (std::size_t i = 0; i < body.size(); ++i) {
            if (body[i].op != opcode::fold) continue;
            const location& made = body[i].to;
            for (std::size_t j = i + 1; j < body.size() && body[j].op == opcode::copy; ++j) {
                const location& sent = program.operands[body[j].first];
                if (sent.rank != made.rank || sent.where != made.where || sent.index != made.index) break;
                ++body[i].pushes;
            }
        }
    }

    execution_plan& plan_;
};

}  // namespace colls::inline v1::detail
