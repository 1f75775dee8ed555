/* How a group fails: poison(), activate(), leave(), rest(), guarded() of include/colls/detail/group/rank_context.hpp and operation.hpp. N ranks
 * start an operation S, make a small call M through the mailboxes and a blocking call B, and wait for S; S is of the same
 * group as M and B, or with -DTWO_GROUPS of another. (Three ranks: start S, wait for it, call B.) At most FAILURES times,
 * wherever that may be, a rank fails: its deadline passes in a wait, it finds a peer in another call, or its operator throws
 * while it touches a peer's buffer. The program catches and goes on.
 *
 * Holds: nobody touches a buffer whose call has ended; between calls a rank is not active; the first report stands, and
 * is whole when it is read; every rank comes to its end (else: an invalid end state). The deadlines in leave() and
 * throw_poison() are left out: whoever would need them to go on is stuck here.
 *
 * -DN=2|3, -DFAILURES=..., and what breaks it:
 *   MUTANT_LATE_ACTIVE        activate() looks for poison before it says that it is active
 *   MUTANT_NO_LEAVE           errors do not wait until the others are out
 *   MUTANT_LEAVE_STAYS        leave() does not say that this rank is out before it waits
 *   MUTANT_POISON_STORED      poison() loads and stores where it should compare and swap
 *   MUTANT_TEXT_LATE          poison() says that the text is written before it is
 *   MUTANT_OPERATOR_UNTOLD    an operator that throws does not break the group
 *   MUTANT_MAIL_STAYS_ACTIVE  a call through the mailboxes does not rest, though its waits have advanced operations
 *   MUTANT_OTHERS_ERRORS      progress() lets errors of another group's operation out of this group's call (TWO_GROUPS) */
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

/* group_memory of each group: the poison word, who set it, whose text it is; `active` of state(rank). */
#ifdef TWO_GROUPS
#define GROUPS 2
#else
#define GROUPS 1
#endif
byte state[GROUPS], reporter[GROUPS], text[GROUPS];
bit active_[GROUPS * N];
#define is_active(g) active_[(g) * N + me]

/* The operations, and the calls' buffers. */
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

/* What a rank has thrown and not caught. */
#define ERROR 1                        /* colls::error: the group is broken, and leave() is over */
#define OPERATOR 2                     /* what a user's operator threw */

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

/* leave(): this rank is out, and waits until all others are. */
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

/* activate(): Dekker with leave(). */
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

/* runner::advance(): touches each peer's buffer once the peer has entered, publishes, and leaves when all have published.
 * Touching takes a while: the buffer must be there when it begins and when it ends. */
#define PUBLISH (N + 1)
#define EXIT (N + 2)
#define OVER (N + 3)
#define flies(o) (at[o] > 0 && at[o] < OVER)
#define can_advance(o) (flies(o) && (at[o] <= N -> (at[o] == me + 1 || entered(o, at[o] - 1)) : \
                                     (at[o] == PUBLISH || EVERY(done, o))))
inline advance(o) {
    if
    :: flies(o) && !is_active(of(o)) -> activate(of(o))
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

/* progress(), called in a wait of group g: advances S. Its errors are another group's: they come out of that one's calls. */
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

/* patience, in a call of group g: returns when what is waited for is there, looks for poison and the deadline, and makes
 * progress. It blocks until there is something of that to do: a busy wait would hide a hang. */
#define can_progress(g) (can_advance(S) && (of(S) == g || state[of(S)] == 0))
#define there(o) ((o) == M -> EVERY(posted, 0) : can_advance(o))
inline patience(g, o) {
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

/* guarded() and rest(): what a call of group g does about what is thrown in it. */
inline guarded(g) {
    if
    :: thrown == OPERATOR -> call_threw(g)
    :: else
    fi;
    is_active(g) = 0
}

/* A call of operation o has ended, well or not: its buffers go, and its rank touches nobody's. */
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
    :: thrown || !flies(o) -> break
    :: !thrown && flies(o) ->
        advance(o);
        if
        :: thrown || !flies(o)
        :: !thrown && flies(o) -> patience(of(o), o)
        fi
    od;
    guarded(of(o))
}

active [N] proctype rank() {
    byte me = _pid, r, thrown, at[3];
    bit first;

    /* engine: begin_call() */
    begin(S);
    if
    :: thrown -> ended(S)
    :: else -> is_active(of(S)) = 0
    fi;

#if N == 2
    /* run_to_end() through mailman::run() */
    if
    :: state[0] != 0 -> throw_poison(0)
    :: else ->
        posted(0, me) = 1;
        do
        :: thrown || there(M) -> break
        :: !thrown -> patience(0, M)
        od
    fi;
#ifndef MUTANT_MAIL_STAYS_ACTIVE
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

    /* run_to_end() through begin() */
    begin(B);
    wait_until_done(B);
    ended(B);

#if N == 2
    wait_until_done(S);
    ended(S)
#endif
}
