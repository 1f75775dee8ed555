/* How a group fails: poison(), activate(), leave() and the deactivation at the end of a call (include/colls/detail/group/),
 * guarded() and progress() (include/colls/detail/execute/). N ranks start an operation S, make an eager call M and a
 * blocking call B, and wait for S. S belongs to the same group as M and B, or with -DTWO_GROUPS to another. (Three ranks:
 * start S, wait for it, call B.) At most FAILURES times, at any place, a rank fails: its deadline passes in a wait, it finds
 * a peer in another call, or its operator throws while it accesses a peer's buffer. The program catches the error and goes
 * on.
 *
 * Holds: no rank accesses a buffer whose call has ended; between calls a rank is not active; the first report stands, and
 * is complete when it is read; every rank comes to its end (else: an invalid end state). The deadlines in leave() and
 * throw_poison() are left out: a rank that needed one would be a deadlock here.
 *
 * -DN=2|3, -DFAILURES=..., and mutants, which break it:
 *   MUTANT_LATE_ACTIVE         activate() looks for poison before it sets this rank active
 *   MUTANT_NO_LEAVE            errors do not wait until the other ranks have left their calls
 *   MUTANT_LEAVE_STAYS         leave() does not set this rank inactive before it waits
 *   MUTANT_POISON_STORED       poison() loads and stores instead of comparing and swapping
 *   MUTANT_TEXT_LATE           poison() announces the text before it is written
 *   MUTANT_OPERATOR_UNTOLD     an operator that throws does not break the group
 *   MUTANT_EAGER_STAYS_ACTIVE  an eager call does not deactivate, though its waits have advanced operations
 *   MUTANT_OTHERS_ERRORS       progress() throws errors of another group's operation out of this group's call (TWO_GROUPS) */
#ifndef N
#define N 2
#endif
#ifndef FAILURES
#define FAILURES 1
#endif
#if N == 2
#define EVERY(f, x) (f(x, 0) && f(x, 1))
#else
#define EVERY(f, x) (f(x, 0) && f(x, 1) && f(x, 2))
#endif

/* group_memory of each group: the poison word, the rank that set it, the rank that wrote the text; `active` of state(rank). */
#ifdef TWO_GROUPS
#define GROUPS 2
#else
#define GROUPS 1
#endif
byte state[GROUPS], reporter[GROUPS], text[GROUPS];
bit active_[GROUPS * N];
#define is_active(g) active_[(g) * N + me]

/* The operations, and the buffers of the calls. */
#define B 0
#define S 1
#define M 2
#define of(o) ((o) == S -> GROUPS - 1 : 0)
bit entered_[3 * N], done_[3 * N], buffer_[3 * N], posted_[N];
#define entered(o, q) entered_[(o) * N + (q)]
#define done(o, q) done_[(o) * N + (q)]
#define buffer(o, q) buffer_[(o) * N + (q)]
#define posted(o, q) posted_[q]

byte failures = FAILURES;

/* What a rank has thrown and not yet caught. */
#define ERROR 1                        /* colls::error: the group is broken, and leave() is over */
#define OPERATOR 2                     /* an exception of a user's operator */

/* poison(): the first report stands. */
inline poison(g) {
#ifdef MUTANT_POISON_STORED
    first = (state[g] == 0);
    if
    :: first -> state[g] = 1
    :: else
    fi;
#else
    atomic {
        first = (state[g] == 0);
        if
        :: first -> state[g] = 1
        :: else
        fi
    }
#endif
    if
    :: first ->
        atomic { assert(reporter[g] == 0); reporter[g] = me + 1; first = 0 }
#ifdef MUTANT_TEXT_LATE
        state[g] = 2;
        text[g] = me + 1
#else
        text[g] = me + 1;
        state[g] = 2
#endif
    :: else
    fi
}

/* leave(): sets this rank inactive, and waits until all others are. */
inline leave(g) {
#ifndef MUTANT_LEAVE_STAYS
    is_active(g) = 0;
#endif
#ifndef MUTANT_NO_LEAVE
    r = 0;
    do
    :: atomic { r < N && (r == me || !active_[g * N + r]) -> r++ }
    :: r == N -> r = 0; break
    od;
#endif
    is_active(g) = 0
}

inline throw_poison(g) {
    state[g] == 2;
    assert(text[g] != 0 && text[g] == reporter[g]);
    thrown = ERROR
}

/* activate(): with leave() this is Dekker's algorithm. */
inline activate(g) {
#ifdef MUTANT_LATE_ACTIVE
    first = (state[g] == 0);
    is_active(g) = 1;
    if
    :: first -> first = 0
#else
    is_active(g) = 1;
    if
    :: state[g] == 0
#endif
    :: else -> leave(g); throw_poison(g)
    fi
}

inline call_threw(g) {
#ifndef MUTANT_OPERATOR_UNTOLD
    poison(g);
#endif
    leave(g)
}

/* advance(): accesses each peer's buffer once the peer has entered, publishes, and leaves when all have published. An access
 * takes time: the buffer must be there when it begins and when it ends. */
#define PUBLISH (N + 1)
#define EXIT (N + 2)
#define OVER (N + 3)
#define in_flight(o) (at[o] > 0 && at[o] < OVER)
#define can_advance(o) (in_flight(o) && (at[o] <= N -> (at[o] == me + 1 || entered(o, at[o] - 1)) : \
                                     (at[o] == PUBLISH || EVERY(done, o))))
inline advance(o) {
    if
    :: in_flight(o) && !is_active(of(o)) -> activate(of(o))
    :: else
    fi;
    do
    :: thrown || !can_advance(o) -> break
    :: !thrown && can_advance(o) ->
        if
        :: at[o] == me + 1 -> at[o]++
        :: at[o] != me + 1 && at[o] <= N ->
            assert(buffer(o, at[o] - 1));
            if
            :: true
            :: atomic { failures > 0 -> failures-- }
                poison(of(o));         /* fail_mismatch(): the peer is in another call */
                leave(of(o));
                thrown = ERROR
            :: atomic { failures > 0 -> failures--; thrown = OPERATOR }
            fi;
            if
            :: thrown == ERROR
            :: else -> assert(buffer(o, at[o] - 1)); at[o]++
            fi
        :: at[o] == PUBLISH -> done(o, me) = 1; at[o] = EXIT
        :: at[o] == EXIT -> at[o] = OVER
        fi
    od
}

/* progress(), called in a wait of group g: advances S. If S belongs to another group, that group's calls throw its errors. */
inline progress(g) {
    if
    :: of(S) == g -> advance(S)
    :: of(S) != g && state[of(S)] == 0 ->
        advance(S);
#ifndef MUTANT_OTHERS_ERRORS
        if
        :: thrown == OPERATOR -> call_threw(of(S))
        :: else
        fi;
        thrown = 0;
        is_active(of(S)) = 0
#else
        if
        :: thrown
        :: else -> is_active(of(S)) = 0
        fi
#endif
    :: else
    fi
}

/* backoff, in a call of group g: returns when the awaited condition holds, looks for poison and the deadline, and makes
 * progress. It blocks until one of these is possible: a busy wait would hide a deadlock. */
#define can_progress(g) (can_advance(S) && (of(S) == g || state[of(S)] == 0))
#define there(o) ((o) == M -> EVERY(posted, 0) : can_advance(o))
inline backoff(g, o) {
    if
    :: there(o)
    :: can_progress(g) -> progress(g)
    :: state[g] != 0 -> leave(g); throw_poison(g)
    :: atomic { failures > 0 -> failures-- }
        poison(g);                     /* fail() */
        leave(g);
        thrown = ERROR
    fi
}

/* guarded(): how a call of group g ends, whatever has been thrown in it. */
inline guarded(g) {
    if
    :: thrown == OPERATOR -> call_threw(g)
    :: else
    fi;
    is_active(g) = 0
}

/* A call of operation o has ended, by an error or not: its buffers are freed, and its rank accesses no other's. */
inline ended(o) {
    atomic {
        buffer(o, me) = 0;
        at[o] = 0;
        thrown = 0;
        assert(!is_active(0) && !is_active(GROUPS - 1))
    }
}

inline begin(o) {
    buffer(o, me) = 1;
    activate(of(o));
    if
    :: !thrown -> atomic { entered(o, me) = 1; at[o] = 1 }
    :: else
    fi
}
inline wait_until_done(o) {
    do
    :: thrown || !in_flight(o) -> break
    :: !thrown && in_flight(o) ->
        advance(o);
        if
        :: thrown || !in_flight(o)
        :: !thrown && in_flight(o) -> backoff(of(o), o)
        fi
    od;
    guarded(of(o))
}

active [N] proctype rank() {
    byte me = _pid, r, thrown, at[3];
    bit first;

    /* a started operation */
    begin(S);
    if
    :: thrown -> ended(S)
    :: else -> is_active(of(S)) = 0
    fi;

#if N == 2
    /* an eager call */
    if
    :: state[0] != 0 -> throw_poison(0)
    :: else ->
        posted(0, me) = 1;
        do
        :: thrown || there(M) -> break
        :: !thrown -> backoff(0, M)
        od
    fi;
#ifndef MUTANT_EAGER_STAYS_ACTIVE
    guarded(0);
#else
    if
    :: thrown == OPERATOR -> call_threw(0)
    :: else
    fi;
#endif
    ended(M);
#else
    wait_until_done(S);
    ended(S);
#endif

    /* a blocking call by a schedule */
    begin(B);
    wait_until_done(B);
    ended(B);

#if N == 2
    wait_until_done(S);
    ended(S)
#endif
}
