/* The eager path, include/colls/detail/execute/eager.hpp: N ranks make CALLS calls in a row, each of a kind that is chosen when
 * the first rank comes to it. A rank has four slots, used in turn; claim_slot() says when one may be written again.
 *
 * Holds: a rank reads the data of its own call; no deadlock (an invalid end state).
 *
 * -DN=2|3, -DCALLS=9..., and mutants, which break it:
 *   MUTANT_NO_CLAIM          a slot is written again without a check
 *   MUTANT_FULL_TOO_OLD      claim_slot() also trusts the full call that used the slot itself
 *   MUTANT_COUNTER_TOO_OLD   claim_slot() accepts counters one lower than it needs
 *   MUTANT_THREE_SLOTS       there is one slot less than claim_slot() assumes
 *   MUTANT_SCAN_IS_FULL      a scan counts as a call in which every rank waits for every other
 *   MUTANT_COUNTED_EARLY     `eager_sent` is raised before the data is read
 *   MUTANT_FLAG_FIRST        the flag is raised before the data is there
 *   MUTANT_ONLY_COUNTS       claim_slot() waits for counters also where a full call suffices, which does not raise them */
#ifndef N
#define N 3
#endif
#ifndef CALLS
#define CALLS 9
#endif
#if N == 2
#define EVERY(f) (f(0) && f(1))
#else
#define EVERY(f) (f(0) && f(1) && f(2))
#endif

#define SLOTS 4                        /* eager_slots */
#ifdef MUTANT_THREE_SLOTS
#define SLOTS_USED 3
#else
#define SLOTS_USED SLOTS
#endif

/* A kind of collective says which ranks post, which ranks read, and whether every rank waits for every other. A rank that
 * reads from several waits for all flags and then reads, as fold() does; one that reads as data arrives (gather(),
 * all_to_all) is done earlier. A reduce to the last rank needs less than a scan. */
#define ALL 1                          /* barrier, all_reduce, all_gather, reduce_scatter, all_to_all */
#define SCAN 2                         /* rank r reads from ranks 0 ... r */
#define FROM_FIRST 3                   /* broadcast, scatter: every rank reads from the root */
#define FROM_LAST 4
#define TO_FIRST 5                     /* reduce, gather: the root reads from every rank */

#define posts (what == FROM_FIRST -> me == 0 : (what == FROM_LAST -> me == N - 1 : 1))
#define reads(q) (what == ALL || (what == SCAN && q <= me) || (what == FROM_FIRST && q == 0 && me != 0) || \
                  (what == FROM_LAST && q == N - 1 && me != N - 1) || (what == TO_FIRST && me == 0))
#ifdef MUTANT_SCAN_IS_FULL
#define all_wait_for_all (what <= SCAN)
#else
#define all_wait_for_all (what == ALL)
#endif

/* group_memory: eager(slot, rank), and `eager_sent` of state(rank). A flag is the call's number + 1; the fingerprint beside
 * it is left out, since all ranks make the same calls. `data` says which call it is of. */
byte flag[SLOTS_USED * N], data[SLOTS_USED * N];
byte eager_sent[N];
#define slot_of(q) ((number % SLOTS_USED) * N + (q))

/* The program: the kinds of calls that some ranks have reached and others have not, and how many ranks have reached and
 * left each of them. */
#define AHEAD 8                        /* more calls than a rank can be ahead of another */
byte kind[AHEAD], came[AHEAD], gone[AHEAD];

inline choose() {
    if
    :: kind[number % AHEAD] != 0
    :: else -> select(what : ALL .. TO_FIRST); kind[number % AHEAD] = what
    fi;
    what = kind[number % AHEAD];
    came[number % AHEAD]++;
    if
    :: came[number % AHEAD] == N -> came[number % AHEAD] = 0; kind[number % AHEAD] = 0
    :: else
    fi
}

/* claim_slot(): all ranks must have read what the slot held four calls ago. */
#ifdef MUTANT_FULL_TOO_OLD
#define TRUSTED (SLOTS - 1)
#else
#define TRUSTED (SLOTS - 2)
#endif
#ifdef MUTANT_COUNTER_TOO_OLD
#define KNOWN SLOTS
#else
#define KNOWN (SLOTS - 1)
#endif
#define suffices(counter) ((counter) + KNOWN >= number)
#define has_read(q) (q == me || suffices(eager_sent[q]))
inline claim_slot() {
    if
#ifdef MUTANT_NO_CLAIM
    :: true
#endif
#ifndef MUTANT_ONLY_COUNTS
    :: last_full_eager + TRUSTED >= number
#endif
    :: number < SLOTS || suffices(eager_by_all)
    :: else ->
        EVERY(has_read);               /* backoff: until it is so */
        eager_by_all = 255;
        r = 0;
        do
        :: r == N -> r = 0; break
        :: r < N ->
            if
            :: r != me && eager_sent[r] < eager_by_all -> eager_by_all = eager_sent[r]
            :: else
            fi;
            r++
        od
    fi
}

/* post(): the data, then the flag. */
#ifdef MUTANT_FLAG_FIRST
#define FIRST flag
#define SECOND data
#else
#define FIRST data
#define SECOND flag
#endif

/* wait_for() the flags, then read the data. */
#define flagged(q) (!reads(q) || flag[slot_of(q)] == number + 1)
#define read_right(q) (!reads(q) || data[slot_of(q)] == number + 1)
inline fold() {
    EVERY(flagged);
    assert(EVERY(read_right))
}

/* The end of run(). */
inline done_reading() {
    if
    :: all_wait_for_all -> last_full_eager = number + 1
    :: else -> eager_sent[me] = number + 1
    fi
}

/* The next call. Values that cannot matter any more are set to 0, so that states that differ only in them are one: the data
 * of a call that all ranks have left, and counters too old to satisfy claim_slot() ever again. */
#define forget(counter) if :: (counter) + KNOWN <= number -> counter = 0 :: else fi
inline next() {
    gone[number % AHEAD]++;
    if
    :: gone[number % AHEAD] == N ->
        gone[number % AHEAD] = 0;
        r = 0;
        do
        :: r == N -> r = 0; break
        :: r < N ->
            if
            :: flag[slot_of(r)] == number + 1 -> flag[slot_of(r)] = 0
            :: else
            fi;
            if
            :: data[slot_of(r)] == number + 1 -> data[slot_of(r)] = 0
            :: else
            fi;
            forget(eager_sent[r]);
            r++
        od
    :: else
    fi;
    forget(last_full_eager);
    forget(eager_by_all);
    what = 0;
    number++;
    if
    :: number < CALLS -> choose()
    :: else
    fi
}

/* run(), CALLS times, in three steps between which other ranks may take theirs. Combining actions in one step hides no
 * fault: data is written as early as claim_slot() allows, and read as late as at the end of the call; whatever could be
 * overwritten before it is read in the code can be overwritten before the step. (A flag that is overwritten before it is
 * seen is a deadlock.) */
active [N] proctype rank() {
    byte me = _pid, number, what, r, last_full_eager, eager_by_all;
    atomic { choose() }
    do
    :: number < CALLS ->
        if
        :: posts ->
            atomic { claim_slot(); FIRST[slot_of(me)] = number + 1 }
            SECOND[slot_of(me)] = number + 1
        :: else -> atomic { claim_slot() }
        fi;
#ifdef MUTANT_COUNTED_EARLY
        done_reading();
#endif
        atomic {
            fold();
#ifndef MUTANT_COUNTED_EARLY
            done_reading();
#endif
            next()
        }
    :: number == CALLS -> break
    od
}
