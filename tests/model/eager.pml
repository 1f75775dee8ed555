/* The mailboxes of include/colls/detail/execute/eager.hpp: N ranks make CALLS calls in a row, each of a kind that is chosen when the
 * first rank comes to it. A rank has four mailboxes, used in turn; mailman::claim() says when one may be written again.
 *
 * Holds: whoever reads a letter reads the one of its own call; nothing blocks for ever (an invalid end state).
 *
 * -DN=2|3, -DCALLS=9..., and what breaks it:
 *   MUTANT_NO_CLAIM      a mailbox is written again without a look
 *   MUTANT_FULL_TOO_OLD  claim() also trusts the full call that used the mailbox itself
 *   MUTANT_MAIL_TOO_OLD  ... and counters one lower than it needs
 *   MUTANT_THREE_BOXES   there is a mailbox less than claim() counts on
 *   MUTANT_SCAN_IS_FULL  a scan counts as a call in which everyone hears
 *   MUTANT_MAILED_EARLY  `mailed` is raised before the letters are read
 *   MUTANT_FLAG_FIRST    the flag is raised before the letter is there
 *   MUTANT_ONLY_COUNTS   claim() waits for counters also where a full call suffices, which does not raise them */
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

#define SLOTS 4                        /* mail_slots */
#ifdef MUTANT_THREE_BOXES
#define BOXES 3
#else
#define BOXES SLOTS
#endif

/* All that matters of a collective is who posts, who reads, and whether everyone hears of everyone. Readers of several
 * letters wait for all flags and then read, as fold() does; those that read letters as they come (gather(), all_to_all)
 * are done with them earlier. A reduce to the last rank asks for less than a scan. */
#define ALL 1                          /* barrier, all_reduce, all_gather, reduce_scatter, all_to_all */
#define SCAN 2                         /* rank r reads of ranks 0 ... r */
#define FROM_FIRST 3                   /* broadcast, scatter: everyone reads of the root */
#define FROM_LAST 4
#define TO_FIRST 5                     /* reduce, gather: the root reads of everyone */

#define posts (what == FROM_FIRST -> me == 0 : (what == FROM_LAST -> me == N - 1 : 1))
#define reads(q) (what == ALL || (what == SCAN && q <= me) || (what == FROM_FIRST && q == 0 && me != 0) || \
                  (what == FROM_LAST && q == N - 1 && me != N - 1) || (what == TO_FIRST && me == 0))
#ifdef MUTANT_SCAN_IS_FULL
#define everyone_hears (what <= SCAN)
#else
#define everyone_hears (what == ALL)
#endif

/* group_memory: mail(slot, rank), and `mailed` of state(rank). A flag is the call's number + 1; the fingerprint beside it
 * is the same on all ranks, for they make the same calls. A letter says of which call it is. */
byte flag[BOXES * N], letter[BOXES * N];
byte mailed[N];
#define box(q) ((number % BOXES) * N + (q))

/* The program: calls that some ranks have come to and others not, and how many have come to them, and left them. */
#define AHEAD 8                        /* more than a rank can be ahead of another */
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

/* mailman::claim(): the slot's previous use, four calls ago, must have been read by everyone. */
#ifdef MUTANT_FULL_TOO_OLD
#define TRUSTED (SLOTS - 1)
#else
#define TRUSTED (SLOTS - 2)
#endif
#ifdef MUTANT_MAIL_TOO_OLD
#define KNOWN SLOTS
#else
#define KNOWN (SLOTS - 1)
#endif
#define suffices(counter) ((counter) + KNOWN >= number)
#define has_mailed(q) (q == me || suffices(mailed[q]))
inline claim() {
    if
#ifdef MUTANT_NO_CLAIM
    :: true
#endif
#ifndef MUTANT_ONLY_COUNTS
    :: last_full_mail + TRUSTED >= number
#endif
    :: number < SLOTS || suffices(mailed_by_all)
    :: else ->
        EVERY(has_mailed);             /* patience: until it is so */
        mailed_by_all = 255;
        r = 0;
        do
        :: r == N -> r = 0; break
        :: r < N ->
            if
            :: r != me && mailed[r] < mailed_by_all -> mailed_by_all = mailed[r]
            :: else
            fi;
            r++
        od
    fi
}

/* mailman::post(): the letter, then the flag. */
#ifdef MUTANT_FLAG_FIRST
#define FIRST flag
#define SECOND letter
#else
#define FIRST letter
#define SECOND flag
#endif

/* mailman::wait() for the flags, and the letters are read. */
#define flagged(q) (!reads(q) || flag[box(q)] == number + 1)
#define read_right(q) (!reads(q) || letter[box(q)] == number + 1)
inline fold() {
    EVERY(flagged);
    assert(EVERY(read_right))
}

/* The end of mailman::run() */
inline done_reading() {
    if
    :: everyone_hears -> last_full_mail = number + 1
    :: else -> mailed[me] = number + 1
    fi
}

/* On to the next call. What can no longer matter is set to 0, so that states that differ in it alone are one: the letters of
 * a call that all ranks have left, and counters too old to satisfy claim() ever again. */
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
            :: flag[box(r)] == number + 1 -> flag[box(r)] = 0
            :: else
            fi;
            if
            :: letter[box(r)] == number + 1 -> letter[box(r)] = 0
            :: else
            fi;
            forget(mailed[r]);
            r++
        od
    :: else
    fi;
    forget(last_full_mail);
    forget(mailed_by_all);
    what = 0;
    number++;
    if
    :: number < CALLS -> choose()
    :: else
    fi
}

/* mailman::run(), CALLS times, in three steps that others' may come between. What is put into one step loses no fault: a
 * letter is written as soon as claim() lets it, and others' are read as late as the call's end; what could be overwritten
 * before they are read in truth can be so before the step. (A flag that is overwritten before it is seen blocks for ever.) */
active [N] proctype rank() {
    byte me = _pid, number, what, r, last_full_mail, mailed_by_all;
    atomic { choose() }
    do
    :: number < CALLS ->
        if
        :: posts ->
            atomic { claim(); FIRST[box(me)] = number + 1 }
            SECOND[box(me)] = number + 1
        :: else -> atomic { claim() }
        fi;
#ifdef MUTANT_MAILED_EARLY
        done_reading();
#endif
        atomic {
            fold();
#ifndef MUTANT_MAILED_EARLY
            done_reading();
#endif
            next()
        }
    :: number == CALLS -> break
    od
}
