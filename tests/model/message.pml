/* Messages of one ordered pair of ranks in shared memory: advance_message() over a pair_line. The sender has up to two
 * messages in flight, and so has the receiver; each tries to advance them in any order. A message has one piece if the
 * receiver reaches the sender's buffer, else 1 ... PIECES, which go through two copies. When the send is over, its buffer
 * and the copies hold nothing any more.
 *
 * Holds: the receiver copies each message's pieces, in order, and those of no other message; no deadlock.
 *
 * Mutants, which break it:
 *   MUTANT_NO_ORDER      messages started later may go first
 *   MUTANT_THREE_AHEAD   a third piece is posted before the first one is taken
 *   MUTANT_POSTED_FIRST  `posted` is raised before the place of the piece is written
 *   MUTANT_ENDS_EARLY    a send is over when all its pieces are posted
 *   MUTANT_TAKEN_FIRST   `taken` is raised before the piece is copied
 *   MUTANT_LAST_LATE     the receiver checks whether a piece is the last one after it has raised `taken` */
#ifndef MESSAGES
#define MESSAGES 5
#endif
#ifndef PIECES
#define PIECES 3
#endif
#ifdef MUTANT_THREE_AHEAD
#define AHEAD 3
#else
#define AHEAD 2
#endif

/* pair_line. data[i]: the place of an even or odd piece; `bytes`: here the number of the message. (In the code the number
 * of pieces follows from the message's size and that of a piece.) */
byte posted, taken;
byte data[2], bytes, pieces;

/* The contents of the buffers of messages 0 ... MESSAGES - 1, and of the sender's two copies. */
#define buffer(m) (m)
#define copy(i) (MESSAGES + (i))
byte memory[MESSAGES + 2];
#define content(m, c) ((m) * PIECES + (c) + 1)

/* A rank's operations in flight: message m is operation m % 2. `over`: messages of the rank that are over. */
#ifdef MUTANT_NO_ORDER
#define may_advance(o) in_flight[o]
#else
#define may_advance(o) (in_flight[o] && sequence[o] == over)
#endif
inline start() {
    o = begun % 2;
    sequence[o] = begun;
    chunk[o] = 0;
    in_flight[o] = 1;
    begun++
}

/* The sender's half of advance_message(): advances as far as it can. */
#ifdef MUTANT_ENDS_EARLY
#define all_taken(seen) true
#else
#define all_taken(seen) ((seen) == posted)
#endif
#define can_send(o) (may_advance(o) && (chunk[o] == 0 || (chunk[o] < pieces && posted < taken + AHEAD) || \
                                        (chunk[o] == pieces && all_taken(taken))))
inline advance_send() {
    seen = taken;
    if
    :: chunk[o] == 0 ->
        bytes = sequence[o];
        if
        :: reached[o] || PIECES == 1 -> pieces = 1
        :: !reached[o] -> select(pieces : 1 .. PIECES)
        fi
    :: else
    fi;
    do
    :: chunk[o] < pieces && posted < seen + AHEAD ->
#ifdef MUTANT_POSTED_FIRST
        posted++;
        data[(posted - 1) % 2] = (reached[o] -> buffer(sequence[o]) : copy((posted - 1) % 2));
        memory[data[(posted - 1) % 2]] = content(sequence[o], chunk[o]);
#else
        if
        :: reached[o] -> data[posted % 2] = buffer(sequence[o])
        :: else ->
            memory[copy(posted % 2)] = content(sequence[o], chunk[o]);
            data[posted % 2] = copy(posted % 2)
        fi;
        posted++;
#endif
        chunk[o]++
    :: else -> break
    od;
    if
    :: chunk[o] == pieces && all_taken(seen) ->
        atomic {
            memory[buffer(sequence[o])] = 0;
            if
            :: !reached[o] -> memory[copy(0)] = 0; memory[copy(1)] = 0
            :: else
            fi;
            in_flight[o] = 0;
            over++
        }
    :: else
    fi
}

/* The receiver's half of advance_message(). */
#define can_receive(o) (may_advance(o) && taken < posted)
inline advance_receive() {
    seen = posted;
    do
    :: taken < seen ->
        assert(bytes == sequence[o]);                                  /* else: a mismatch */
        last = (chunk[o] + 1 == pieces);
#ifdef MUTANT_TAKEN_FIRST
        taken++;
        assert(memory[data[(taken - 1) % 2]] == content(sequence[o], chunk[o]));
#else
        assert(memory[data[taken % 2]] == content(sequence[o], chunk[o]));
        taken++;
#endif
#ifdef MUTANT_LAST_LATE
        last = (chunk[o] + 1 == pieces);
#endif
        chunk[o]++;
        if
        :: last -> atomic { in_flight[o] = 0; over++; last = 0; break }
        :: else
        fi
    :: taken == seen -> break
    od
}

active proctype sender() {
    byte begun, over, o, seen, sequence[2], chunk[2];
    bit in_flight[2], reached[2];
    do
    :: atomic {
        begun < MESSAGES && begun < over + 2 && !in_flight[begun % 2] ->
            start();
            if
            :: reached[o] = 1
            :: reached[o] = 0
            fi;
            memory[buffer(sequence[o])] = content(sequence[o], 0)
    }
    :: atomic { can_send(0) -> o = 0 } advance_send()
    :: atomic { can_send(1) -> o = 1 } advance_send()
    :: over == MESSAGES -> break
    od
}

active proctype receiver() {
    byte begun, over, o, seen, sequence[2], chunk[2];
    bit in_flight[2], last;
    do
    :: atomic { begun < MESSAGES && begun < over + 2 && !in_flight[begun % 2] -> start() }
    :: atomic { can_receive(0) -> o = 0 } advance_receive()
    :: atomic { can_receive(1) -> o = 1 } advance_receive()
    :: over == MESSAGES -> break
    od
}
