// What a schedule does: the tool's compact text is read, and played on sets of ranks instead of data.
'use strict';

/** "0-3,7,.2" -> [0, 1, 2, 3, 7, null, null] */
function numbers(text) {
  const out = [];
  for (const part of text === '' ? [] : text.split(',')) {
    if (part[0] === '.') {
      for (let left = Number(part.slice(1) || 1); left > 0; --left) out.push(null);
    } else {
      const [first, last = first] = part.split('-').map(Number);
      for (let x = first; x <= last; ++x) out.push(x);
    }
  }
  return out;
}

/** Kinds of messages, by the character between ranks and blocks: explorer.cpp. */
const kinds = {
  '=': 'copy',
  '+': 'reduce',
  '!': 'unreceived',
  '?': 'unsent'
};

/** "0>1+2-3@5-6": rank 0 sends its blocks 2 and 3, which rank 1 reduces into its slots 5 and 6. */
function messageOf(text, round, rankOf) {
  const [, from, to, kind, sent, , stored = sent] = /^(\d+)>(\d+)([=+!?])([^@]*)(@(.*))?$/.exec(text);
  return {
    round,
    kind: kinds[kind],
    from: rankOf(Number(from)),
    to: rankOf(Number(to)),
    sent: numbers(sent),
    stored: numbers(stored),
  };
}

/**
 * The schedule of a collective on n ranks, for a root: the tool's data are for data.root, and all ranks are rotated
 * along with it, as the library does (the tool has proven each of these rotations).
 */
function scheduleOf(collective, n, root) {
  const data = collective.sizes[n];
  const shift = collective.rooted ? root - data.root + n : 0;
  const rankOf = role => (role + shift) % n;
  const ofRank = (value, rank) => Array.isArray(value) ? value[(rank - shift + 2 * n) % n] : value;
  const ranks = [...Array(n).keys()];
  const labels = value =>
    ranks.map(r => value === undefined ? Array(data.slots).fill(null) : numbers(ofRank(value, r)));
  const owned = ['scatter', 'gather', 'all_gather', 'reduce_scatter'].includes(collective.name);
  const homes = data.homes === undefined ? [...Array(data.blocks).keys()] : numbers(data.homes);
  const rounds = data.rounds.map((text, k) => text === '' ? [] : text.split(';').map(m => messageOf(m, k, rankOf)));
  rounds.flat().forEach((m, i) => {
    m.number = i;
  });
  return {
    name: collective.name,
    n,
    ranks,
    rounds,
    reduces: collective.reduces,
    rooted: collective.rooted,
    root: collective.rooted ? root : null,
    blocks: data.blocks,
    slots: data.slots,
    start: labels(data.start),
    want: labels(data.want),
    parts: ranks.map(r => ofRank(data.parts, r) ?? 1),
    homes: owned ? homes.map(h => h === null ? null : rankOf(h)) : null,
    verdict:
      data.verdict && {...data.verdict, at: data.verdict.round < 0 ? data.rounds.length : data.verdict.round + 1},
  };
}

/** A set of ranks is a number of 32 bits. */
const only = rank => (1 << rank) >>> 0;
const both = (a, b) => (a | b) >>> 0;
const ranksOf = set => [...Array(32).keys()].filter(r => set >>> r & 1);
const sizeOf = set => ranksOf(set).length;

/**
 * What each slot holds before the first round and after each one: states[k][rank][slot], with the label of its block
 * (null: nothing), the set of ranks whose contributions it combines, the gifts that made it so, and whether it is what
 * the collective asks for.
 */
function statesOf(s) {
  const settled = (slot, rank, at) => {
    const all = s.name.endsWith('scan') || s.reduces ? sizeOf(slot.who) === s.parts[rank] : true;
    const asked = s.want[rank][at];
    return {...slot, done: asked !== null && slot.label === asked && all};
  };
  let now =
    s.ranks.map(r => s.start[r].map(
                  (label, at) => settled({label, who: label === null ? 0 : only(r), gifts: [], fresh: false}, r, at)));
  const states = [now];
  for (const messages of s.rounds) {
    // Sends read the state at the start of the round, and copies come before reductions.
    const next = now.map(slots => slots.map(slot => ({...slot, fresh: false})));
    for (const kind of ['copy', 'reduce'])
      for (const m of messages.filter(of => of.kind === kind))
        m.sent.forEach((from, i) => {
          const given = now[m.from][from], kept = next[m.to][m.stored[i]];
          const gift = {round: m.round, from: m.from, slot: from, who: given.who, reduces: kind === 'reduce'};
          if (kind === 'copy') Object.assign(kept, {label: given.label, who: 0, gifts: []});
          Object.assign(kept, {who: both(kept.who, given.who), gifts: [...kept.gifts, gift], fresh: true});
        });
    now = next.map((slots, r) => slots.map((slot, at) => settled(slot, r, at)));
    states.push(now);
  }
  return states;
}

/** "0, 1 and 5"; three or more that follow each other as "0 to 3". */
function listed(all) {
  const parts = [];
  for (let i = 0, j; i < all.length; i = j) {
    for (j = i + 1; j < all.length && all[j] === all[j - 1] + 1;) ++j;
    parts.push(...(j - i > 2 ? [`${all[i]} to ${all[j - 1]}`] : all.slice(i, j).map(String)));
  }
  return parts.length < 2 ? parts.join('') : `${parts.slice(0, -1).join(', ')} and ${parts.at(-1)}`;
}
const counted = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;
const ranksText = all => `${all.length === 1 ? 'rank' : 'ranks'} ${listed(all)}`;

/** The data that a label stands for, as "the block of rank 3". */
function dataText(s, label) {
  if (s.name === 'all_to_all') {
    const source = Math.floor(label / s.blocks), to = Math.floor(label % s.blocks / (s.blocks / s.n));
    const piece = s.blocks > s.n ? `, piece ${label % (s.blocks / s.n)}` : '';
    return `the block from rank ${source} for rank ${to}${piece}`;
  }
  if (s.name === 'barrier') return 'the news that ranks have come';
  if (s.homes) return `block ${label}${s.homes[label] === null ? '' : `, of rank ${s.homes[label]}`}`;
  return s.blocks === 1 ? 'the whole buffer' : `block ${label} of ${s.blocks}`;
}

/** What a slot holds in a state, and who gave it in which round: one line each. */
function holdingText(s, slot, rank, at) {
  const what = s.name === 'barrier' ? `Rank ${rank}` : `Rank ${rank}, ${at < s.blocks ? 'slot' : 'scratch slot'} ${at}`;
  if (slot.label === null) return [`${what} is empty.`];
  const lines = [];
  if (s.name === 'barrier') {
    lines.push(`${what} has heard of ${ranksText(ranksOf(slot.who))}.`);
  } else if (s.reduces) {
    const whose = sizeOf(slot.who) === s.n && s.n > 1 ? `all ${s.n} ranks` : ranksText(ranksOf(slot.who));
    lines.push(
      `${what} holds ${dataText(s, slot.label)}, with the contribution${sizeOf(slot.who) > 1 ? 's' : ''} of ${whose}.`);
  } else {
    lines.push(`${what} holds ${dataText(s, slot.label)}.`);
  }
  if (slot.gifts.length === 0) lines.push('It was there from the start.');
  for (const g of slot.gifts) {
    const giver = g.from === rank ? 'The rank itself' : `Rank ${g.from}`;
    if (s.name === 'barrier')
      lines.push(`${giver} told of ${ranksText(ranksOf(g.who))} in round ${g.round}.`);
    else if (g.reduces)
      lines.push(`${giver} gave the part of ${ranksText(ranksOf(g.who))} in round ${g.round}.`);
    else
      lines.push(`${giver} gave it in round ${g.round}, as a copy.`);
  }
  if (slot.done) lines.push(`That is what ${s.name} asks for.`);
  return lines;
}
