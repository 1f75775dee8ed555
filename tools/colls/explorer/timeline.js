// When each message goes, by the model of colls/simulate.hpp, which the test of this page compares with it:
// - a rank begins a round when its messages of the round before are done and folded;
// - a message begins when both of its ranks are in its round; after the latencies of its route its bytes flow;
// - those that flow at a time share links by max-min fairness.
// Each rank has a link into a switch and one out of it; where ranks are on several hosts, so has each host.
'use strict';

const hostOf = (rank, perHost) => Math.floor(rank / perHost);
const between = (m, perHost) => hostOf(m.from, perHost) !== hostOf(m.to, perHost);

/** The links of a message: out of its rank, out of its host, into the other host, into the other rank. */
function routeOf(m, n, perHost, net) {
  const inside = [[m.from, net.rank], [n + m.to, net.rank]];
  if (!between(m, perHost)) return inside;
  const hosts = Math.ceil(n / perHost), up = 2 * n + hostOf(m.from, perHost),
        down = 2 * n + hosts + hostOf(m.to, perHost);
  return [inside[0], [up, net.host], [down, net.host], inside[1]];
}

/**
 * Sets the rate of each flow: the link with the least left for each of its open flows closes these, then the next one.
 */
function share(flows) {
  const links = new Map();
  for (const flow of flows)
    for (const [number, link] of flow.route) {
      if (!links.has(number)) links.set(number, {left: link.bandwidth, flows: [], open: 0});
      links.get(number).flows.push(flow);
      ++links.get(number).open;
    }
  for (const flow of flows) flow.rate = null;
  for (let open = flows.length; open > 0;) {
    let least = null;
    for (const link of links.values())
      if (link.open > 0 && (least === null || link.left / link.open < least.left / least.open)) least = link;
    const rate = Math.max(0, least.left / least.open);
    for (const flow of least.flows)
      if (flow.rate === null) {
        flow.rate = rate;
        --open;
        for (const [number] of flow.route) {
          links.get(number).left -= rate;
          --links.get(number).open;
        }
      }
  }
}

/**
 * Plays the schedule with a buffer of `bytes` bytes: sets begin and end of each message that is not local, in seconds,
 * and returns when the last rank is done. net: {rank: {latency, bandwidth}, host: the same, gamma}.
 */
function play(s, bytes, perHost, net) {
  const blockBytes = s.name === 'barrier' ? 0 : bytes / s.blocks;
  const size = m => blockBytes * m.sent.length;
  const mine = s.rounds.map(messages => {
    const byRank = s.ranks.map(() => []);
    for (const m of messages)
      for (const r of m.from === m.to ? [m.from] : [m.from, m.to]) byRank[r].push(m);
    return byRank;
  });
  const members = s.ranks.map(() => ({round: 0, pending: 0, ready: 0, folded: 0}));
  const waiting = [];  // messages whose bytes do not flow yet
  let flows = [], end = 0, now = 0;

  const goOn = (r, time) => {
    const member = members[r];
    for (; member.round < s.rounds.length; ++member.round) {
      const all = mine[member.round][r], far = all.filter(m => m.from !== m.to);
      member.folded = all.filter(m => m.to === r && m.kind === 'reduce').reduce((sum, m) => sum + size(m), 0);
      if (far.length > 0) {
        Object.assign(member, {pending: far.length, ready: time});
        for (const m of far) {
          const other = members[m.from === r ? m.to : m.from];
          if (other.pending === 0 || other.round !== member.round) continue;
          m.begin = Math.max(member.ready, other.ready);
          const route = routeOf(m, s.n, perHost, net);
          waiting.push({m, route, left: size(m), at: m.begin + route.reduce((sum, [, link]) => sum + link.latency, 0)});
        }
        return;
      }
      time += net.gamma * member.folded;
    }
    member.ready = time;
    end = Math.max(end, time);
  };

  s.ranks.forEach(r => goOn(r, 0));
  while (waiting.length + flows.length > 0) {
    let next = Math.min(...waiting.map(f => f.at), ...flows.map(f => now + f.left / f.rate));
    const close = 1e-12 * next;
    for (const f of flows) f.left -= f.rate * (next - now);
    now = next;
    const over = flows.filter(f => f.left <= f.rate * close);
    flows = flows.filter(f => f.left > f.rate * close);
    for (let i = waiting.length; i-- > 0;)
      if (waiting[i].at <= now + close) {
        const [f] = waiting.splice(i, 1);
        (f.left > 0 ? flows : over).push(f);
      }
    for (const {m} of over) m.end = now;
    for (const {m} of over)
      for (const r of [m.from, m.to]) {
        if (--members[r].pending > 0) continue;
        ++members[r].round;
        goOn(r, now + net.gamma * members[r].folded);
      }
    if (flows.length > 0) share(flows);
  }
  return end;
}
