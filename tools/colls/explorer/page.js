// The page: what is chosen, what is drawn, and what the user does.
'use strict';

const data = JSON.parse(document.getElementById('data').textContent);
const element = id => document.getElementById(id);
const meanings = {
  broadcast: 'Every rank gets the root’s buffer.',
  scatter: 'Each rank gets its block of the root’s buffer.',
  gather: 'The root gets the block of each rank.',
  all_gather: 'Every rank gets the block of each rank.',
  reduce: 'The root gets the sum of all ranks’ buffers.',
  reduce_scatter: 'Each rank gets its block of the sum of all buffers.',
  all_reduce: 'Every rank gets the sum of all ranks’ buffers.',
  all_to_all: 'Each rank gets a block from each rank.',
  barrier: 'No rank goes on before all have come.',
  inclusive_scan: 'Each rank gets the sum of the buffers up to its own.',
  exclusive_scan: 'Each rank gets the sum of the buffers before its own.',
};
const sizes = {
  '8 B': 8,
  '1 KB': 2 ** 10,
  '32 KB': 2 ** 15,
  '1 MB': 2 ** 20,
  '32 MB': 2 ** 25,
  '1 GB': 2 ** 30
};
const gigabytes = beta => beta > 0 ? Number((1e-9 / beta).toPrecision(4)) : 1e6;

const choice = {
  collective: data.collective,
  ranks: data.ranks,
  root: 0,
  layout: data.hosts > 0 ? 'hosts' : 'ring',
  hosts: data.hosts || 4,
  round: 0,
  bytes: 2 ** 20,
  latency: Number((data.machine.alpha * 1e6).toPrecision(4)),
  bandwidth: gigabytes(data.machine.beta),
  hostLatency: Number((data.machine.alpha * 1e6).toPrecision(4)),
  hostBandwidth: gigabytes(data.machine.beta),
};
let schedule, states, picture, bars = [], seconds, selected = null, hovered = null, timer = null;

const supported = collective => Object.keys(data.collectives[collective].sizes).map(Number);
const lastRound = () => schedule.rounds.length;

/** Makes a choice, whatever it leaves open or cannot have, and draws what has changed. */
function choose(changes) {
  const before = schedule && {...choice};
  Object.assign(choice, changes);
  const known = supported(choice.collective);
  choice.ranks = known.reduce((best, n) => Math.abs(n - choice.ranks) < Math.abs(best - choice.ranks) ? n : best);
  // Sizes are those on offer: the address may have any number.
  const apart = bytes => Math.abs(Math.log2(bytes / Math.max(1, choice.bytes)));
  choice.bytes = Object.values(sizes).reduce((best, bytes) => apart(bytes) < apart(best) ? bytes : best);
  choice.hosts = Math.max(1, Math.min(32, Math.round(choice.hosts) || 1));
  const own = data.collectives[choice.collective].sizes[choice.ranks];
  if (own.verdict) choice.root = own.root;
  choice.root = Math.min(choice.root, choice.ranks - 1);
  const fresh = !before || ['collective', 'ranks', 'root'].some(key => before[key] !== choice[key]);
  if (fresh) {
    schedule = scheduleOf(data.collectives[choice.collective], choice.ranks, choice.root);
    states = statesOf(schedule);
    selected = hovered = null;
    if (schedule.verdict && !('round' in changes)) choice.round = schedule.verdict.at;
  }
  choice.round = Math.max(0, Math.min(lastRound(), choice.round));
  if (fresh || Object.keys(changes).some(key => key !== 'round')) {
    drawChoices();
    drawTimes();
    drawPicture();  // last: its blocks are filled before the browser looks at them, so that none grows from nothing
  }
  drawRound();
  const kept = ['ranks', 'root', 'layout', 'hosts', 'bytes', 'round'].map(key => [key, choice[key]]);
  const address = new URLSearchParams([['collective', schedule.name], ...kept]);
  try {
    history.replaceState(null, '', `#${address}`);
  } catch { /* in a frame without an address */
  }
}

function optionsOf(select, texts, chosen) {
  select.replaceChildren(
    ...texts.map(([value, text]) => new Option(text, value, false, String(value) === String(chosen))));
}

function drawChoices() {
  const known = supported(choice.collective), {verdict} = schedule;
  element('family').textContent = data.family;
  element('meaning').textContent = `${schedule.name}. ${meanings[schedule.name] ?? ''}`;
  optionsOf(element('collective'), data.collectives.map((c, i) => [i, c.name]), choice.collective);
  element('collective').disabled = data.collectives.length === 1;
  Object.assign(
    element('ranks'), {max: known.length - 1, value: known.indexOf(choice.ranks), disabled: known.length === 1});
  element('ranks').setAttribute('aria-valuetext', counted(choice.ranks, 'rank'));
  element('ranks-text').textContent = `${choice.ranks}${known.length > 1 ? ` of ${listed(known)}` : ''}`;
  element('root-label').hidden = !schedule.rooted || verdict !== undefined;
  optionsOf(element('root'), schedule.ranks.map(r => [r, `rank ${r}`]), choice.root);
  element('layout').value = choice.layout;
  element('hosts').value = choice.hosts;
  optionsOf(element('bytes'), Object.entries(sizes).map(([text, bytes]) => [bytes, text]), choice.bytes);
  for (const [id, key] of networkFields) element(id).value = choice[key];
  element('round').max = lastRound();

  element('verdict').hidden = !verdict;
  if (verdict) {
    const wrong = known.filter(n => data.collectives[choice.collective].sizes[n].verdict);
    element('verdict-text').textContent = `On ${counted(choice.ranks, 'rank')}: ${verdict.text}.`;
    element('verdict-sizes').textContent = `${schedule.name} is refuted on ${wrong.length} of the ${
      counted(known.length, 'group size')} here: ${listed(wrong)}.`;
  }
  element('legend-copy').hidden = !schedule.rounds.flat().some(m => m.kind === 'copy');
  element('legend-reduce').hidden = !schedule.rounds.flat().some(m => m.kind === 'reduce');
  element('legend-far').hidden = !schedule.rounds.flat().some(m => between(m, choice.hosts));
  element('legend-scratch').hidden = schedule.slots <= schedule.blocks;
  element('legend-fill').hidden = !schedule.reduces;
}

function shape(name, attributes, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Blocks of different data have different colours; red is for what is broken. */
function colourOf(label) {
  const kindsOfData = Math.max(schedule.blocks, schedule.n);
  const which = schedule.name === 'all_to_all' ? Math.floor(label / schedule.blocks) : label;
  return `oklch(var(--light) var(--strong) ${60 + (which % kindsOfData) / kindsOfData * 280})`;
}

const head = kind => shape('marker', {
  id: `head-${kind}`,
  viewBox: '0 0 6 6',
  refX: 5,
  refY: 3,
  markerWidth: 7,
  markerHeight: 7,
  markerUnits: 'userSpaceOnUse',
  orient: 'auto',
},
  shape('path', {class: `head ${kind}`, d: 'M0 0 L6 3 L0 6 z'}));

/** Hosts, cards and blocks, without what changes by round. */
function drawPicture() {
  const svg = element('picture'), margin = 4;
  const width = Math.floor(svg.getBoundingClientRect().width) || 320;
  picture = placed(schedule, choice.layout, width - 2 * margin, choice.hosts);
  picture.width = width;
  picture.spots = picture.spots.map(p => ({x: p.x + margin, y: p.y + margin}));
  const {card} = picture, height = picture.height + 2 * margin;
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('height', height);
  const boxes = picture.boxes.flatMap(
    b => [shape('rect', {class: 'box', x: b.x + margin, y: b.y + margin, width: b.width, height: b.height, rx: 10}),
      shape('text', {x: b.x + margin + 10, y: b.y + margin + 15}, b.text),
  ]);
  picture.blocks = [];
  picture.ranks = schedule.ranks.map(rank => {
    const {x, y} = picture.spots[rank], left = x - card.width / 2, top = y - card.height / 2;
    const isRoot = rank === schedule.root;
    const across = Math.min(card.perLine, Math.max(1, schedule.slots)) * card.pitch - 2;
    picture.blocks[rank] = [...Array(schedule.slots).keys()].map(slot => {
      const at = {
        x: x - across / 2 + slot % card.perLine * card.pitch,
        y: top + labelHeight + Math.floor(slot / card.perLine) * card.pitch,
        width: card.square,
        height: card.square,
        rx: 2,
      };
      const frame = shape('rect', {...at, class: 'frame'}), fill = shape('rect', {...at, class: 'fill'});
      const block =
        shape('g', {class: 'block', role: 'img', tabindex: -1, 'data-rank': rank, 'data-slot': slot}, frame, fill);
      return {block, frame, fill, at};
    });
    return shape('g', {class: 'rank', 'data-rank': rank},
      shape('rect', {class: 'card', x: left, y: top, width: card.width, height: card.height, rx: 6}),
      shape('text', {x, y: top + 13}, isRoot && card.width >= 52 ? `${rank} root` : String(rank)),
      ...picture.blocks[rank].map(b => b.block));
  });
  picture.arrows = shape('g', {'aria-hidden': 'true'});
  svg.replaceChildren(
    shape('defs', {}, ...['copy', 'reduce', 'broken'].map(head)), ...boxes, picture.arrows, ...picture.ranks);
}

const isBroken = () => schedule.verdict && choice.round === schedule.verdict.at;

/** The messages that led to the state shown, and the one that is broken even where no other rank takes part in it. */
function messagesShown() {
  const messages = choice.round === 0 ? [] : schedule.rounds[choice.round - 1].filter(m => m.from !== m.to),
        {verdict} = schedule;
  if (!isBroken() || verdict.round < 0) return messages.map(m => ({...m, broken: false}));
  const [from, to] = verdict.sends ? [verdict.rank, verdict.peer] : [verdict.peer, verdict.rank];
  const marked =
    messages.map(m => ({...m, broken: !(m.kind in {copy: 1, reduce: 1}) || (m.from === from && m.to === to)}));
  const both = [from, to].every(r => r >= 0 && r < schedule.n) && from !== to;
  if (both && !marked.some(m => m.from === from && m.to === to))
    marked.push({from, to, kind: 'copy', sent: [], broken: true});
  return marked;
}

/** Sets the classes of a shape: those that hold, by name. */
function mark(made, base, holds) {
  made.setAttribute('class', [base, ...Object.keys(holds).filter(name => holds[name])].join(' '));
}

/** What changes by round: how far blocks are filled, and all texts. */
function drawRound() {
  const state = states[choice.round], {verdict} = schedule;
  for (const rank of schedule.ranks) {
    const broken = isBroken() && verdict.rank === rank;
    mark(picture.ranks[rank], 'rank', {root: rank === schedule.root, broken});
    picture.blocks[rank].forEach(({block, frame, fill, at}, slot) => {
      const held = state[rank][slot], bad = broken && verdict.block === slot;
      const share = held.label === null ? 0 : schedule.reduces ? Math.max(0.12, sizeOf(held.who) / schedule.n) : 1;
      mark(frame, 'frame', {scratch: slot >= schedule.blocks, fresh: held.fresh, done: held.done});
      if (held.label !== null) fill.style.fill = colourOf(held.label);
      fill.style.transform = `scaleY(${share})`;
      block.setAttribute('aria-label', describe(rank, slot).join(' '));
      block.querySelector('.cross')?.remove();
      if (!bad) return;
      const left = at.x + 3, right = at.x + at.width - 3, top = at.y + 3, bottom = at.y + at.height - 3;
      block.append(
        shape('path', {class: 'cross', d: `M${left} ${top}L${right} ${bottom}M${right} ${top}L${left} ${bottom}`}));
    });
  }
  drawState(messagesShown());
  markTimes();
  drawShown();
}

/** What changes when a block is pointed at: it, those that hold the same data, and the messages of its rank. */
function drawShown() {
  const state = states[choice.round], shown = hovered ?? selected, messages = messagesShown(), {verdict} = schedule;
  const spotlight = shown && schedule.name !== 'barrier' ? state[shown.rank][shown.slot].label : null;
  const focusable = selected ?? {rank: 0, slot: 0};
  picture.blocks.forEach((blocks, rank) => blocks.forEach(({block}, slot) => {
    const is = place => place !== null && place.rank === rank && place.slot === slot;
    const broken = isBroken() && verdict.rank === rank && verdict.block === slot;
    const other = spotlight !== null && state[rank][slot].label !== spotlight && !broken;
    mark(block, 'block', {broken, other, shown: is(shown)});
    block.setAttribute('tabindex', is(focusable) ? 0 : -1);
  }));
  picture.arrows.replaceChildren(...messages.map(m => {
    const kind = m.broken ? 'broken' : m.kind;
    const path = shape('path', {
      d: arrowPath(picture.spots[m.from], picture.spots[m.to], picture.card),
      'marker-end': `url(#head-${kind})`,
      'data-from': m.from,
      'data-to': m.to,
    });
    const faint = shown !== null && m.from !== shown.rank && m.to !== shown.rank && !m.broken;
    mark(path, `arrow ${kind}`, {far: between(m, choice.hosts), many: messages.length > 40, faint});
    return path;
  }));
  drawDetail(shown);
}

function describe(rank, slot) {
  const lines = holdingText(schedule, states[choice.round][rank][slot], rank, slot), {verdict} = schedule;
  if (isBroken() && verdict.rank === rank && (verdict.block === slot || verdict.block < 0))
    lines.push(`Broken: ${verdict.text}.`);
  return lines;
}

function drawDetail(shown) {
  const {verdict} = schedule,
        place = isBroken() && verdict.block >= 0 ? {rank: verdict.rank, slot: verdict.block} : null,
        of = shown ?? place;
  const lines = of ? describe(of.rank, of.slot) :
                     ['Point at a block, or tap it: what the rank holds there, who gave it, and in which round.'];
  element('detail').replaceChildren(...lines.map(line => {
    const p = document.createElement('p');
    p.textContent = line;
    if (line.startsWith('Broken:')) p.className = 'bad';
    return p;
  }));
}

function drawState(messages) {
  const k = choice.round, last = lastRound(), state = states[k];
  const ready =
    schedule.ranks.filter(r => schedule.want[r].every((label, at) => label === null || state[r][at].done)).length;
  const where = last === 0 ? 'There are no rounds.' :
    k === 0                ? `Before the first of ${counted(last, 'round')}.` :
                             `After round ${k - 1} (${k} of ${last}):`;
  const far = messages.filter(m => between(m, choice.hosts)).length;
  const sent = k === 0 ? '' : ` ${counted(messages.length, 'message')}, ${far === 0 ? 'none' : far} between hosts.`;
  const all = schedule.slots === 0 ?
    '' :
    ` ${ready === schedule.n ? 'Every rank has' : `${ready} of ${schedule.n} ranks have`} all that is asked for.`;
  const bold = document.createElement('b');
  bold.textContent = where;
  element('state').replaceChildren(bold, `${sent}${isBroken() ? ' Here the schedule is wrong.' : all}`);
  element('round').value = k;
  element('round').setAttribute('aria-valuetext', k === 0 ? 'before the first round' : `after round ${k - 1}`);
  element('first').disabled = element('back').disabled = k === 0;
  element('on').disabled = element('last').disabled = k === last;
  element('picture-text').textContent =
    `${data.family}, ${schedule.name} on ${counted(schedule.n, 'rank')}, each with ` +
    `${counted(schedule.blocks, 'block')}. ` +
    (messages.length > 24 ? '' : messages.map(m => `Rank ${m.from} to rank ${m.to}.`).join(' '));
}

const timeText = t => t < 0.9995e-3 ? `${Number((t * 1e6).toPrecision(3))} µs` :
  t < 0.9995 ? `${Number((t * 1e3).toPrecision(3))} ms` :
               `${Number(t.toPrecision(3))} s`;
const sizeText = bytes => Object.keys(sizes).find(text => sizes[text] === bytes);

function drawFigures() {
  const all = schedule.rounds.flat().filter(m => m.from !== m.to),
        far = all.filter(m => between(m, choice.hosts)).length;
  const sent =
    Math.max(...schedule.ranks.map(r => all.filter(m => m.from === r).reduce((sum, m) => sum + m.sent.length, 0)));
  const figures = [
    ['rounds', lastRound()],
    ['messages', all.length],
    ['between hosts', far],
    [
      'buffers sent, busiest rank',
      schedule.name === 'barrier' ? 0 : Number((sent / Math.max(1, schedule.blocks)).toPrecision(3))
    ],
    [`with ${sizeText(choice.bytes)}`, seconds === null ? '–' : timeText(seconds)],
  ];
  element('figures').replaceChildren(...figures.map(([name, value]) => {
    const [div, dt, dd] = ['div', 'dt', 'dd'].map(tag => document.createElement(tag));
    dt.textContent = name;
    dd.textContent = value;
    div.append(dt, dd);
    return div;
  }));
}

/** Bars that are under way at the same time lie below each other. Returns how many lie so at most. */
function stack(all) {
  const ends = [];
  for (const bar of all.sort((a, b) => a.m.begin - b.m.begin || a.m.end - b.m.end)) {
    let lane = ends.findIndex(end => end <= bar.m.begin * (1 + 1e-9) + 1e-15);
    if (lane < 0) lane = ends.length;
    ends[lane] = bar.m.end;
    bar.lane = lane;
  }
  return Math.max(1, ends.length);
}

/** 1, 2 or 5 times a power of ten: at most five of them up to `all`. */
function tickOf(all) {
  const power = 10 ** Math.floor(Math.log10(all / 5));
  return [1, 2, 5, 10].map(x => x * power).find(x => all / x <= 5);
}

function drawTimes() {
  const svg = element('times'), {verdict} = schedule;
  svg.replaceChildren();
  seconds = null;
  bars = [];
  const far = schedule.rounds.flat().filter(m => m.from !== m.to);
  element('times-note').hidden = Boolean(verdict);
  if (!verdict) {
    seconds = play(schedule, choice.bytes, choice.hosts, {
      rank: {latency: choice.latency * 1e-6 / 2, bandwidth: choice.bandwidth * 1e9},
      host: {latency: choice.hostLatency * 1e-6 / 2, bandwidth: choice.hostBandwidth * 1e9},
      gamma: data.machine.gamma,
    });
  }
  drawFigures();
  if (verdict || far.length === 0 || seconds === 0) {
    svg.setAttribute('height', 0);
    return;
  }
  const width = Math.floor(svg.getBoundingClientRect().width) || 320, left = 26, right = 6, axis = 22;
  const x = time => left + time / seconds * (width - left - right);
  const rows = schedule.ranks.map(
    r => [far.filter(m => m.from === r), far.filter(m => m.to === r)].map(all => all.map(m => ({m}))));
  const lanes = rows.map(halves => halves.map(stack)), most = Math.max(...lanes.flat());
  const half = Math.max(most * 1.6, Math.min(12, 480 / schedule.n / 2 - 2)), pitch = 2 * half + 5,
        height = schedule.n * pitch + axis;
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('height', height);
  const made = [];
  rows.forEach((halves, r) => {
    const y = r * pitch + 1;
    made.push(shape('rect', {class: 'row', x: left, y, width: width - left - right, height: 2 * half + 1}),
      shape('text', {x: left - 6, y: y + half + 4, 'text-anchor': 'end'}, String(r)));
    halves.forEach((lying, below) => lying.forEach(({m, lane}) => {
      const from = x(m.begin), each = half / lanes[r][below], bar = shape('rect', {
        class: 'bar',
        x: from.toFixed(2),
        y: (y + below * (half + 1) + lane * each).toFixed(2),
        width: Math.max(0.8, x(m.end) - from - 0.4).toFixed(2),
        height: (each * (lanes[r][below] > 3 ? 1 : 0.92)).toFixed(2),
        'data-message': m.number,
      });
      bars.push({m, bar});
      made.push(bar);
    }));
  });
  const tick = tickOf(seconds), bottom = schedule.n * pitch, lines = [];
  for (let t = 0; t <= seconds * (1 + 1e-9); t += tick) {
    const at = x(t), anchor = at + 24 > width ? 'end' : t === 0 ? 'start' : 'middle';
    lines.push(shape('line', {class: 'axis', x1: at, x2: at, y1: 0, y2: bottom + 3}));
    made.push(shape(
      'text', {x: anchor === 'end' ? width : at, y: bottom + 16, 'text-anchor': anchor}, t === 0 ? '0' : timeText(t)));
  }
  svg.append(
    ...made.filter(e => e.classList.contains('row')), ...lines, ...made.filter(e => !e.classList.contains('row')));
}

const whenText = m => `Round ${m.round}: rank ${m.from} to rank ${m.to}, ${
                        schedule.name === 'barrier' ? 'a message' : counted(m.sent.length, 'block')}` +
  `${between(m, choice.hosts) ? ', between hosts' : ''}; ${timeText(m.begin)} to ${timeText(m.end)}.`;

function markTimes() {
  const thick = bar => Number(bar.getAttribute('height')) >= 5;  // else there is no room for a border
  for (const {m, bar} of bars)
    mark(bar, `bar ${m.kind}`,
      {far: thick(bar) && between(m, choice.hosts), now: m.round === choice.round - 1 || choice.round === 0});
  const now = bars.filter(({m}) => m.round === choice.round - 1);
  const whenNow = () => {
    const begin = Math.min(...now.map(({m}) => m.begin)), end = Math.max(...now.map(({m}) => m.end));
    return `Round ${choice.round - 1}: ${timeText(begin)} to ${timeText(end)}, of ${timeText(seconds)}.`;
  };
  element('times-text').textContent = schedule.verdict ? 'A schedule that is refuted has no times.' :
    seconds === 0 ? 'No message goes.' :
    now.length > 0 ? whenNow() :
    `The last rank is done after ${timeText(seconds)}.`;
}

// What the user does.

function stop() {
  clearInterval(timer);
  timer = null;
  element('play').classList.remove('playing');
  element('play').setAttribute('aria-label', 'Play');
}
function startOrStop() {
  if (timer) return stop();
  if (choice.round === lastRound()) choose({round: 0});
  element('play').classList.add('playing');
  element('play').setAttribute('aria-label', 'Pause');
  timer = setInterval(() => {
    choose({round: choice.round + 1});
    if (choice.round === lastRound()) stop();
  }, 1000);
}
function step(by) {
  stop();
  choose({round: choice.round + by});
}
function select(rank, slot) {
  selected = {rank, slot};
  hovered = null;
  drawShown();
}

const networkFields = [
  ['latency', 'latency'], ['bandwidth', 'bandwidth'], ['host-latency', 'hostLatency'],
  ['host-bandwidth', 'hostBandwidth']
];
for (const id of ['choices', 'network']) element(id).onsubmit = event => event.preventDefault();
element('collective').onchange = e => choose({collective: Number(e.target.value)});
element('ranks').oninput = e => choose({ranks: supported(choice.collective)[Number(e.target.value)]});
element('root').onchange = e => choose({root: Number(e.target.value)});
element('layout').onchange = e => choose({layout: e.target.value});
element('hosts').onchange = e => choose({hosts: Number(e.target.value)});
element('bytes').onchange = e => choose({bytes: Number(e.target.value)});
/** The next of 1, 2 and 5 times the powers of ten, above or below. */
function roundStep(value, up) {
  if (value <= 0) return up ? 1 : 0;
  const power = 10 ** Math.floor(Math.log10(value));
  const all = [0.5, 1, 2, 5, 10, 20].map(x => Number((x * power).toPrecision(1)));
  return up ? all.find(x => x > value) : all.findLast(x => x < value);
}
for (const [id, key] of networkFields) {
  element(id).onkeydown = e => {
    if (e.key !== 'ArrowUp' && e.key !== 'ArrowDown') return;
    e.preventDefault();
    e.target.value = roundStep(Number(e.target.value), e.key === 'ArrowUp');
    e.target.onchange(e);
  };
  element(id).onchange = e => {
    const value = Number(e.target.value), least = key.endsWith('atency') ? 0 : 1e-6;
    choose(e.target.value !== '' && value >= least && value <= 1e9 ? {[key]: value} : {[key]: choice[key]});
  };
}
element('round').oninput = e => {
  stop();
  choose({round: Number(e.target.value)});
};
element('first').onclick = () => step(-Infinity);
element('back').onclick = () => step(-1);
element('play').onclick = startOrStop;
element('on').onclick = () => step(1);
element('last').onclick = () => step(Infinity);
element('verdict-show').onclick = () => {
  stop();
  choose({round: schedule.verdict.at});
  if (schedule.verdict.block >= 0) select(schedule.verdict.rank, schedule.verdict.block);
  element('picture').scrollIntoView({block: 'center'});
};

const blockOf = event => {
  const block = event.target.closest?.('.block');
  return block && {rank: Number(block.dataset.rank), slot: Number(block.dataset.slot)};
};
/** The block of a card that is nearest to where it was touched: blocks are smaller than fingers. */
function nearest(event) {
  const card = event.target.closest?.('.rank');
  if (!card || schedule.slots === 0) return null;
  const rank = Number(card.dataset.rank);
  const distance = ({block}) => {
    const {left, right, top, bottom} = block.getBoundingClientRect();
    return Math.hypot((left + right) / 2 - event.clientX, (top + bottom) / 2 - event.clientY);
  };
  const all = picture.blocks[rank].map(distance);
  return {rank, slot: all.indexOf(Math.min(...all))};
}
const svg = element('picture');
svg.onpointerover = event => {
  if (event.pointerType !== 'mouse') return;
  hovered = blockOf(event) ?? null;
  drawShown();
};
svg.onpointerleave = () => {
  hovered = null;
  drawShown();
};
svg.onclick = event => {
  const at = nearest(event);
  if (at) return select(at.rank, at.slot);
  selected = null;
  drawShown();
};
svg.addEventListener('focusin', event => {
  const at = blockOf(event);
  if (at && (selected?.rank !== at.rank || selected?.slot !== at.slot)) select(at.rank, at.slot);
});
let touched = null;
svg.onpointerdown = event => {
  touched = event.pointerType === 'touch' ? {x: event.clientX, y: event.clientY} : null;
};
svg.onpointerup = event => {
  const dx = touched ? event.clientX - touched.x : 0, dy = touched ? event.clientY - touched.y : 0;
  if (Math.abs(dx) > 50 && Math.abs(dx) > 2 * Math.abs(dy)) step(dx < 0 ? 1 : -1);
  touched = null;
};
element('times').onclick = event => {
  const number = event.target.dataset.message;
  if (number !== undefined) step(schedule.rounds.flat()[Number(number)].round + 1 - choice.round);
};
element('times').onpointerover = event => {
  const number = event.target.dataset.message;
  if (number !== undefined) element('times-text').textContent = whenText(schedule.rounds.flat()[Number(number)]);
};

/** Moves the focus from block to block. */
function moveFocus(bySlot, byRank) {
  const at = selected ?? {rank: 0, slot: 0}, {n, slots} = schedule;
  const number = (at.rank * slots + at.slot + bySlot + n * slots) % (n * slots);
  const rank = byRank === 0 ? Math.floor(number / slots) : (at.rank + byRank + n) % n;
  const slot = byRank === 0 ? number % slots : at.slot;
  select(rank, slot);
  picture.blocks[rank][slot].block.focus();
}
document.onkeydown = event => {
  const tag = event.target.tagName, typing = ['INPUT', 'SELECT'].includes(tag);
  if (event.ctrlKey || event.altKey || event.metaKey || typing) return;
  const onBlock = event.target.closest?.('.block');
  const actions = {
    ArrowLeft: () => step(-1),
    ArrowRight: () => step(1),
    Home: () => step(-Infinity),
    End: () => step(Infinity),
    ...(tag === 'BUTTON' ? {} : {' ': startOrStop}),
    ...(onBlock ? {
      ArrowUp: () => moveFocus(-1, 0),
      ArrowDown: () => moveFocus(1, 0),
      PageUp: () => moveFocus(0, -1),
      PageDown: () => moveFocus(0, 1),
      Escape: () => onBlock.blur(),
    } :
                  {}),
  };
  if (event.key === 'Escape') {
    selected = null;
    drawShown();
  }
  if (!(event.key in actions)) return;
  event.preventDefault();
  actions[event.key]();
};

/** The address may say what is shown: #collective=all_reduce&ranks=8&round=3. */
function choiceOfAddress() {
  const found = {};
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
    const collective = data.collectives.findIndex(c => c.name === value);
    if (key === 'collective' && collective >= 0) found.collective = collective;
    if (key === 'layout' && ['ring', 'grid', 'tree', 'hosts'].includes(value)) found.layout = value;
    if (['ranks', 'root', 'hosts', 'round', 'bytes'].includes(key) && /^\d{1,10}$/.test(value))
      found[key] = Number(value);
  }
  return found;
}
window.onhashchange = () => choose(choiceOfAddress());
let drawnWidth = 0;
new ResizeObserver(() => {
  const width = document.documentElement.clientWidth;
  if (width === drawnWidth) return;
  drawnWidth = width;
  choose({layout: choice.layout});
}).observe(document.documentElement);
choose(choiceOfAddress());
