// Where ranks stand in the picture: on a ring, a grid, a tree or by hosts. Nothing overlaps, and all fits into the
// width.
'use strict';

const gap = 14;          // between the cards of ranks
const labelHeight = 17;  // a rank's number, above its blocks
const inset = 4;         // from a card's border to its blocks

/** How many blocks a card has beside each other: a divisor that makes it about square, where there is one. */
function blocksPerLine(slots) {
  const least = Math.ceil(Math.sqrt(slots));
  for (let c = least; c <= 2 * Math.sqrt(slots); ++c)
    if (slots % c === 0) return c;
  return least;
}

/** The card of a rank whose blocks are squares of that size. */
function cardOf(slots, square) {
  const perLine = Math.max(1, blocksPerLine(slots)), lines = Math.max(1, Math.ceil(slots / perLine)),
        pitch = square + 2;
  return {
    square,
    pitch,
    perLine,
    width: Math.max(34, perLine * pitch - 2 + 2 * inset),
    height: labelHeight + lines * pitch - 2 + inset,
  };
}

/** Rows of ranks, each centred; `rows` are lists of ranks. Returns the centres, by rank, and the height. */
function inRows(rows, card, width, step = card.height + gap) {
  const spots = [];
  rows.forEach((row, y) => {
    const pitch =
      Math.min((width - card.width) / Math.max(1, row.length - 1), card.width + (width > 600 ? 6 : 3) * gap);
    row.forEach((rank, x) => {
      spots[rank] = {x: width / 2 + (x - (row.length - 1) / 2) * pitch, y: card.height / 2 + y * step};
    });
  });
  return {spots, height: (rows.length - 1) * step + card.height};
}
const cut = (all, each) =>
  Array.from({length: Math.ceil(all.length / each)}, (_, i) => all.slice(i * each, (i + 1) * each));
const fitting = (card, width) => Math.max(1, Math.floor((width + gap) / (card.width + gap)));

function gridOf(s, card, width) {
  const columns = Math.min(fitting(card, width), Math.ceil(Math.sqrt(s.n * (width > 600 ? 2 : 1))));
  return inRows(
    cut(s.ranks, Math.ceil(s.n / Math.ceil(s.n / columns))), card, width, card.height + (width > 600 ? 4 : 2.5) * gap);
}

/** n points on an ellipse, at equal distances along it, clockwise from the top. */
function onEllipse(n, a, b) {
  const parts = 360, points = [], lengths = [0];
  for (let i = 0; i <= parts; ++i) {
    const angle = i / parts * 2 * Math.PI - Math.PI / 2;
    points.push({x: a * Math.cos(angle), y: b * Math.sin(angle)});
    if (i > 0) lengths.push(lengths[i - 1] + Math.hypot(points[i].x - points[i - 1].x, points[i].y - points[i - 1].y));
  }
  const found = [];
  for (let i = 0; found.length < n; ++i)
    while (found.length < n && lengths[i] >= found.length / n * lengths[parts] - 1e-9) found.push(points[i]);
  return found;
}

/** On an ellipse as round as the width permits; rank 0 is on top. */
function ringOf(s, card, width, perHost, highest) {
  const apart = card.square > 8 ? 24 : 8;  // room for arrows, where there is some
  const overlaps = spots =>
    spots.some((a, i) => spots.some((b, j) => j < i && Math.abs(a.x - b.x) < card.width + apart &&
                   Math.abs(a.y - b.y) < card.height + apart));
  const least = s.n === 1 ? 0 : Math.max(width > 600 ? 140 : 90, s.n * Math.min(card.width, card.height) / 2 / Math.PI);
  for (let radius = least;; radius += 6) {
    const height = 2 * radius + card.height;
    if (height > highest) return null;
    const spots = onEllipse(s.n, Math.min((width - card.width) / 2, radius), radius);
    if (!overlaps(spots)) return {spots: spots.map(p => ({x: width / 2 + p.x, y: height / 2 + p.y})), height};
  }
}

/** Each rank below one that it exchanges messages with, as near to the root as there is. */
function treeOf(s, card, width) {
  const level = s.ranks.map(() => null), levels = [[s.root ?? 0]], peers = s.ranks.map(() => new Set());
  for (const m of s.rounds.flat()) peers[m.from].add(m.to), peers[m.to].add(m.from);
  level[levels[0][0]] = 0;
  for (let depth = 0; levels[depth].length > 0; ++depth) {
    levels.push([]);
    for (const parent of levels[depth])
      for (const r of [...peers[parent]].sort((a, b) => a - b))
        if (level[r] === null) {
          level[r] = depth + 1;
          levels[depth + 1].push(r);
        }
  }
  levels.push(s.ranks.filter(r => level[r] === null));  // with no message at all
  const each = fitting(card, width);
  return inRows(levels.flatMap(row => cut(row, each)).filter(row => row.length > 0), card, width,
    card.height + (width > 600 ? 5 : 3) * gap);
}

/** A box for each host, with its ranks in rows. */
function hostsOf(s, card, width, perHost) {
  const hosts = cut(s.ranks, perHost), most = Math.min(perHost, s.n), title = 20, apart = card.square > 8 ? 28 : gap;
  const columns =
    Math.min(Math.max(1, Math.floor((width - 2 * gap + apart) / (card.width + apart))), Math.ceil(Math.sqrt(most)));
  const box = {
    width: columns * (card.width + apart) - apart + 2 * gap,
    height: title + Math.ceil(most / columns) * (card.height + apart) - apart + gap,
  };
  const fit = Math.max(1, Math.floor((width + 2 * gap) / (box.width + 2 * gap)));
  const across =
    Math.ceil(hosts.length / Math.ceil(hosts.length / Math.min(fit, Math.ceil(Math.sqrt(1.5 * hosts.length)))));
  const left = (width - across * box.width - (across - 1) * 2 * gap) / 2;
  const spots = [];
  const boxes = hosts.map((ranks, h) => {
    const x = left + h % across * (box.width + 2 * gap), y = Math.floor(h / across) * (box.height + 2 * gap);
    ranks.forEach((rank, i) => {
      spots[rank] = {
        x: x + gap + i % columns * (card.width + apart) + card.width / 2,
        y: y + title + Math.floor(i / columns) * (card.height + apart) + card.height / 2,
      };
    });
    return {x, y, ...box, text: `host ${h}`};
  });
  return {spots, boxes, height: Math.ceil(hosts.length / across) * (box.height + 2 * gap) - 2 * gap};
}

/** The places of all ranks in a picture of that width, with the largest blocks with which it is not too high. */
function placed(s, kind, width, perHost) {
  const ways = {ring: ringOf, grid: gridOf, tree: treeOf, hosts: hostsOf};
  for (const square of width > 600 ? [36, 28, 24, 20, 17, 14, 12, 10, 8, 7, 6] : [20, 17, 14, 12, 10, 8, 7, 6]) {
    const card = cardOf(s.slots, square), highest = square === 6 ? Infinity : width > 600 ? 640 : 560;
    if (card.width + 4 * gap > width && square > 6) continue;
    const found = ways[kind](s, card, width, perHost, highest);
    if (found !== null && found.height <= highest) return {boxes: [], ...found, card};
  }
  return null;
}

/** A curve from one card to another, from border to border. */
function arrowPath(from, to, card) {
  const dx = to.x - from.x, dy = to.y - from.y, length = Math.hypot(dx, dy) || 1;
  const bend = Math.min(40, length * 0.14);
  const middle = {x: (from.x + to.x) / 2 - dy / length * bend, y: (from.y + to.y) / 2 + dx / length * bend};
  const border = (at, towards) => {
    const x = towards.x - at.x, y = towards.y - at.y;
    const scale =
      Math.min((card.width / 2 + 3) / Math.max(Math.abs(x), 1e-9), (card.height / 2 + 3) / Math.max(Math.abs(y), 1e-9));
    return `${(at.x + x * scale).toFixed(1)} ${(at.y + y * scale).toFixed(1)}`;
  };
  return `M${border(from, middle)} Q${middle.x.toFixed(1)} ${middle.y.toFixed(1)} ${border(to, middle)}`;
}
