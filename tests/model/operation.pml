/* Operations that access buffers of other ranks: the direct executor, include/colls/detail/execute/direct_executor.hpp. N
 * ranks make CALLS calls in a row, each of a kind that is chosen when the first rank comes to it, and have up to two of them
 * in flight. Each of a rank's two lanes runs every other operation. In the code one thread advances both, which only
 * excludes some orders.
 *
 * Holds: a rank accesses another rank's buffer only after its owner has entered the operation and before it has left it;
 * what it reads there is what the plan says; a published value is never taken for that of another operation; results are
 * complete when a rank leaves; no deadlock.
 *
 * -DN=2|3, -DCALLS=..., -DWINDOW=..., -DCHUNKS=..., -DSTAGED (only scratch memory is within reach), -DPLACES=... (then ranks
 * stage in a ring of so many places, and leave before their peers have read what is there), and mutants, which break it:
 *   MUTANT_SHORT_WINDOW   begin() uses an operation slot again one operation too early
 *   MUTANT_NO_MASK        finish() counts an operation that ends before an earlier one as the earlier one
 *   MUTANT_ENTRY_FIRST    enter() publishes before it has written where the buffers are
 *   MUTANT_NO_ENTRY_WAIT  buffers are accessed before their owner has entered
 *   MUTANT_NO_EXIT_WAIT   a rank leaves without the waits at the exit
 *   MUTANT_PUBLISH_FIRST  a rank publishes its copies before it has made them
 *   MUTANT_NO_RING_WAIT   (STAGED) scratch memory is written again before the chunk in it has been read
 *   MUTANT_NO_READ_CHECK  (PLACES) so is a place of the ring before all ranks have completed the operation that used it */
#ifndef N
#define N 2
#endif
#ifndef CALLS
#define CALLS 6
#endif
#ifndef WINDOW
#define WINDOW 3
#endif
#ifndef CHUNKS
#define CHUNKS 1
#endif
#define RING 2                         /* store_policy::staged_chunks, which is 3 */
#define LANES 2
#if N == 2
#define EVERY(f) (f(0) && f(1))
#else
#define EVERY(f) (f(0) && f(1) && f(2))
#endif

/* group_memory: operation(slot, rank), and `completed` of state(rank). `fingerprint`: the call's kind; `buffers`: the call
 * whose buffers the line names, + 1. */
short progress[WINDOW * N];
byte fingerprint[WINDOW * N], buffers[WINDOW * N];
byte completed[N];
#define line(q) ((s % WINDOW) * N + (q))
#define word(chunk, value) ((s + 1) * 64 + ((value) == 0 -> 0 : (chunk) * 4 + (value)))

/* The buffers of calls: which call uses them (+ 1; 0: none), and how many chunks of each block of the result they hold.
 * Scratch memory: which chunk (+ 1) a slot of the ring holds. */
#define KEPT 4                         /* more than can be in use */
byte owner[KEPT * N], result[KEPT * N * N];
#define own(q) owner[(s % KEPT) * N + (q)]
#define done(q, b) result[((s % KEPT) * N + (q)) * N + (b)]
#ifdef STAGED
#ifdef PLACES
#define IN_RING PLACES
byte user[N * PLACES];                 /* of a place: 1 + the operation that has staged there last */
#else
#define IN_RING 0
#endif
byte place[WINDOW * N];                /* of a line: where its rank stages, below KEPT for the time of the call alone */
byte scratch[(KEPT + IN_RING) * N * RING * 2];
#define slot_of(q, at, i) scratch[((place[line(q)] * N + (q)) * RING + (at) % RING) * 2 + (i)]
#define slot(q, i) slot_of(q, chunk, i)
#define tag ((s + 1) * 8 + chunk + 1)
#define in_ring(q) (place[line(q)] >= KEPT)
#endif

/* Each rank's context. */
byte sequence[N], completed_by_all[N], finished[N];

/* The kinds of the calls, which all ranks agree on. */
#define ALL_REDUCE 1                   /* direct: reduce_scatter, which pulls, and all_gather, which pushes */
#define FROM_FIRST 2                   /* broadcast, pulled */
#define FROM_LAST 3
#define AHEAD 8
byte kind[AHEAD], came[AHEAD], gone[AHEAD];
inline choose() {
    if
    :: kind[s % AHEAD] != 0
    :: else -> select(what : ALL_REDUCE .. FROM_LAST); kind[s % AHEAD] = what
    fi;
    what = kind[s % AHEAD];
    root = (what == FROM_LAST -> N - 1 : 0);
    came[s % AHEAD]++;
    if
    :: came[s % AHEAD] == N -> came[s % AHEAD] = 0; kind[s % AHEAD] = 0
    :: else
    fi
}

/* begin(), which waits for the slot, and enter(). */
#ifdef MUTANT_SHORT_WINDOW
#define FREE (WINDOW + 1)
#else
#define FREE WINDOW
#endif
#define user_of_place user[me * PLACES + s % PLACES]
#ifdef MUTANT_NO_READ_CHECK
#define has_read(q) true
#else
#define has_read(q) (completed[q] >= user_of_place)
#endif
#define has_freed(q) (completed[q] + FREE > s)
#define is_least(q) (completed[q] >= least)
inline begin() {
    atomic {
        sequence[me] == s;
        choose();
        if
        :: s < WINDOW || completed_by_all[me] + FREE > s
        :: else ->
            EVERY(has_freed);
            completed_by_all[me] = completed[0];
            q = 1;
            do
            :: q == N -> q = 0; break
            :: q < N && completed[q] < completed_by_all[me] -> completed_by_all[me] = completed[q]
            :: q < N && completed[q] >= completed_by_all[me] -> q++
            od
        fi;
        own(me) = s + 1;
#ifdef STAGED
        place[line(me)] = s % KEPT;
#endif
#ifdef PLACES
        if
        :: EVERY(has_read) -> place[line(me)] = KEPT + s % PLACES; user_of_place = s + 1
        :: else
        fi;
#endif
#ifndef MUTANT_ENTRY_FIRST
        fingerprint[line(me)] = what;
        buffers[line(me)] = s + 1
#endif
    }
    atomic { progress[line(me)] = word(0, 0); sequence[me]++ }
#ifdef MUTANT_ENTRY_FIRST
    atomic { fingerprint[line(me)] = what; buffers[line(me)] = s + 1 }
#endif
}

/* Waits for progress. A rank does not wait for its own. A rank whose word is there must be in the same call. */
#define same_call(q) (fingerprint[line(q)] == what && buffers[line(q)] == s + 1 && progress[line(q)] < (s + 2) * 64)
#define reached(q, chunk, value) (q == me || progress[line(q)] >= word(chunk, value))
inline publish(value) { progress[line(me)] = word(chunk, value) }

#define has_entered(q) reached(q, 0, 0)
#define published_1(q) reached(q, chunk, 1)
#define published_2(q) reached(q, chunk, 2)
#define published_3(q) reached(q, chunk, 3)
#define published_4(q) reached(q, chunk, 4)

/* Accesses a peer's memory: it must be what the peer has exposed for this call, and still be in use by it. Reads from
 * several peers are one step, as late as possible, and so are writes. */
#ifdef STAGED
#define accesses(q) (same_call(q) && (own(q) == s + 1 || in_ring(q)))
#else
#define accesses(q) (same_call(q) && own(q) == s + 1)
#endif

#ifndef STAGED
/* direct, all_reduce: folds block `me` of all ranks, and pushes the result to all. In place: the result overwrites inputs. */
#define input_of(q) (accesses(q) && done(q, me) == chunk)
inline all_reduce() {
    do
    :: chunk < CHUNKS ->
        atomic {
#ifndef MUTANT_NO_ENTRY_WAIT
            EVERY(has_entered);
#endif
            assert(EVERY(input_of))
        }
#ifdef MUTANT_PUBLISH_FIRST
        publish(3);
#endif
        atomic {
            assert(EVERY(accesses));
            q = 0;
            do
            :: q < N -> done(q, me) = chunk + 1; q++
            :: q == N -> q = 0; break
            od
        }
        atomic { publish(3); chunk++ }
    :: chunk == CHUNKS -> break
    od
}

/* broadcast, pulled. The root waits for the others in each chunk, not at the exit; only then it checks their lines. */
inline broadcast() {
    do
    :: chunk < CHUNKS ->
        if
        :: me == root ->
#ifndef MUTANT_NO_EXIT_WAIT
            atomic { EVERY(published_2); assert(EVERY(same_call)); chunk++ }
#else
            chunk++
#endif
        :: else ->
#ifndef MUTANT_NO_ENTRY_WAIT
            reached(root, 0, 0);
#endif
#ifdef MUTANT_PUBLISH_FIRST
            publish(2);
#endif
            assert(accesses(root));
            atomic { publish(2); chunk++ }
        fi
    :: chunk == CHUNKS -> break
    od
}

#define exit_waits (what != ALL_REDUCE || EVERY(published_3))
#else
/* agree(): whether all buffers are within reach is known when all ranks have entered; to a rank whose own are not, before. */
inline agree() {
#ifdef PLACES
    skip
#else
    atomic { EVERY(has_entered); assert(EVERY(same_call)) }
#endif
}

/* The same by copies in scratch memory, from which all data is pulled. Each chunk uses the slots of the chunk RING before it.
 * An all_reduce needs no further waits for them (memory_dependencies::flush_reuse()): slot 0 holds the input, 1 the result. */
#define input_of(q) (q == me || (accesses(q) && slot(q, 0) == tag))
#define result_of(q) (q == me || (accesses(q) && slot(q, 1) == tag))
inline all_reduce() {
    agree();
    do
    :: chunk < CHUNKS ->
        slot(me, 0) = tag;
        publish(1);
        atomic { EVERY(published_1); assert(EVERY(input_of)) }
        slot(me, 1) = tag;
        publish(3);
        atomic { EVERY(published_3); assert(EVERY(result_of)) }
        atomic { publish(4); chunk++ }
    :: chunk == CHUNKS -> break
    od
}

#define published_2_before(q) reached(q, chunk - RING, 2)
inline broadcast() {
    agree();
    do
    :: chunk < CHUNKS ->
        if
        :: me == root ->
            atomic {
#ifndef MUTANT_NO_RING_WAIT
                chunk < RING || EVERY(published_2_before);
#endif
                slot(me, 0) = tag
            }
            atomic { publish(1); chunk++ }
        :: else ->
#ifdef MUTANT_PUBLISH_FIRST
            reached(root, chunk, 1);
            publish(2);
            assert(accesses(root) && slot(root, 0) == tag);
#else
            atomic { reached(root, chunk, 1); assert(accesses(root) && slot(root, 0) == tag) }
#endif
            atomic { publish(2); chunk++ }
        fi
    :: chunk == CHUNKS -> break
    od
}
#define exit_waits (in_ring(me) || (what == ALL_REDUCE -> EVERY(published_4) : me != root || EVERY(published_2)))
#endif

/* The waits at the exit, for the last chunk, and finish(). Lines of a call that all ranks have left are set to 0, so that
 * states that differ only in them are one. */
#define complete(q) (done(me, q) == CHUNKS)
inline finish() {
    atomic {
        chunk = CHUNKS - 1;
#ifndef MUTANT_NO_EXIT_WAIT
        exit_waits;
#endif
#ifndef STAGED
        assert(what != ALL_REDUCE || EVERY(complete));
#endif
        own(me) = 0;
#ifdef MUTANT_NO_MASK
        completed[me]++;
#else
        finished[me] = finished[me] | (1 << (s - completed[me]));
        do
        :: finished[me] & 1 -> finished[me] = finished[me] >> 1; completed[me]++
        :: else -> break
        od;
#endif
        gone[s % AHEAD]++;
        q = 0;
        do
        :: q < N ->
            done(me, q) = 0;
#ifdef STAGED
            if
            :: q < RING && !in_ring(me) -> slot_of(me, q, 0) = 0; slot_of(me, q, 1) = 0
            :: else
            fi;
#endif
            if
            :: gone[s % AHEAD] == N && buffers[line(q)] == s + 1 ->
                progress[line(q)] = 0; fingerprint[line(q)] = 0; buffers[line(q)] = 0
            :: else
            fi;
            q++
        :: q == N -> q = 0; break
        od;
        if
        :: gone[s % AHEAD] == N -> gone[s % AHEAD] = 0
        :: else
        fi;
        what = 0; root = 0; chunk = 0;
        s = s + LANES
    }
}

active [N * LANES] proctype lane() {
    byte me = _pid / LANES, s = _pid % LANES, what, root, q, chunk;
    do
    :: s < CALLS ->
        begin();
        if
        :: what == ALL_REDUCE -> all_reduce()
        :: else -> broadcast()
        fi;
        finish()
    :: s >= CALLS -> break
    od
}
