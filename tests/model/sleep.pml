/* How a rank sleeps until a peer publishes something (include/colls/detail/group/sleeper.hpp). One peer publishes VALUES
 * values of a word, and RANKS ranks wait for each of them in turn. What the peer stores goes through its store buffer, from
 * which it leaves at any time; its atomic addition empties the buffer, as does a fence of its own (-DFENCED: ranks outnumber
 * cores) or one that the system makes (membarrier).
 *
 * Holds: every rank comes to its end, though sleeps have no deadline here (else: an invalid end state).
 *
 * Mutants:
 *   MUTANT_NO_FENCE      neither side has a fence
 *   MUTANT_LOAD_FIRST    the peer looks for sleepers before it stores the word
 *   MUTANT_NO_LOOK       a rank sleeps without a look behind the fence
 *   MUTANT_HEARD_LATE    a rank reads the number of rings after its look, right before it sleeps
 *   MUTANT_WAKES_FIRST   the peer wakes the ranks, and adds to the rings after that */
#ifndef RANKS
#define RANKS 2
#endif
#ifndef VALUES
#define VALUES 2
#endif

byte word, buffered, rings, sleepers;
bit asleep[RANKS];

#define empty_buffer if :: buffered != 0 -> word = buffered; buffered = 0 :: else fi

active proctype store_buffer() {
end:
    do
    :: atomic { buffered != 0 -> word = buffered; buffered = 0 }
    od
}

active proctype peer() {
    byte v = 1, s;
    do
    :: v > VALUES -> break
    :: else ->
#ifdef MUTANT_LOAD_FIRST
        s = sleepers;
#endif
        atomic { empty_buffer; buffered = v };
#if defined(FENCED) && !defined(MUTANT_NO_FENCE)
        atomic { empty_buffer };
#endif
#ifndef MUTANT_LOAD_FIRST
        s = sleepers;
#endif
        if
        :: s != 0 ->
#ifdef MUTANT_WAKES_FIRST
            d_step { asleep[0] = 0; asleep[RANKS - 1] = 0 };
            d_step { empty_buffer; rings++ }
#else
            d_step { empty_buffer; rings++ };
            d_step { asleep[0] = 0; asleep[RANKS - 1] = 0 }
#endif
        :: else
        fi;
        v++
    od
}

active [RANKS] proctype rank() {
    byte me = _pid - 2, v = 1, heard;
    bit is_there;
    do
    :: v > VALUES -> break
    :: v <= VALUES && word >= v ->     /* the wait is over */
        atomic { sleepers = sleepers - is_there; is_there = 0; v++ }
    :: v <= VALUES && word < v ->
        if
        :: !is_there ->                /* come() */
            heard = rings;
            sleepers++;
            is_there = 1;
#if !defined(FENCED) && !defined(MUTANT_NO_FENCE)
            atomic { empty_buffer };
#endif
#ifdef MUTANT_NO_LOOK
            goto sleep
#endif
        :: is_there ->                 /* sleep(): the kernel compares and falls asleep in one step */
sleep:
#ifdef MUTANT_HEARD_LATE
            heard = rings;
#endif
            atomic {
                if
                :: rings == heard -> asleep[me] = 1
                :: else
                fi
            };
            !asleep[me];
            heard = rings
        fi
    od
}
