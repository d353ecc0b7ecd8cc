// Communication and compute, by rank, by gradient bucket and by link.

import { allRanks } from './api'
import type { Bucket, Communication, Figures, Link, View } from './api'
import type { Series } from './chart'
import { h, table } from './dom'
import { count, inMilliseconds, milliseconds, percent, scaled, unknown } from './format'
import type { Maybe } from './format'
import { color, partColor, seriesColor, seriesDash } from './theme'

// use returns the traffic of the busier direction as a fraction of the limit.
export function use(l: Link): number | null {
  const most = Math.max(l.sent ?? -1, l.received ?? -1)
  return l.limit && most >= 0 ? most / l.limit : null
}

// finding returns a sentence that states the cost of communication and the busiest link.
export function finding(c: Communication): string {
  const worst = [...c.ranks].sort((a, b) => b.exposed_seconds - a.exposed_seconds)[0]
  const parts: string[] = []
  if (worst && c.ranks.length > 1) {
    const total = worst.exposed_seconds + worst.hidden_seconds
    const time = worst.compute_seconds + worst.exposed_seconds
    parts.push(`Rank ${worst.rank} waits longest for gradients: ${milliseconds(worst.exposed_seconds)}${time > 0 ? `, ${percent(worst.exposed_seconds / time, 2)} of its time` : ''}.`)
    if (total > 0) parts.push(`The backward pass hides ${percent(worst.hidden_seconds / total, 2)} of its communication.`)
  }
  const busiest = c.links[0]
  const used = busiest ? use(busiest) : null
  if (busiest && used !== null) parts.push(`The busiest link, ${busiest.name} of rank ${busiest.rank}, carries ${percent(used, 2)} of its limit.`)
  return parts.join(' ')
}

type Part = { label: string; seconds: Maybe; colour: string }

// bar returns a row with a stacked bar. The full width represents the time longest, in s.
function bar(label: string, parts: Part[], longest: number, text: string): HTMLElement {
  return h('div', { class: 'bar-row' }, h('span', { class: 'bar-label', title: label }, label), h('div', { class: 'bar' }, ...parts.map(p => {
    const part = h('span', { class: 'part', title: `${p.label}: ${milliseconds(p.seconds)}` })
    part.style.width = `${(100 * (p.seconds ?? 0)) / longest}%`
    part.style.backgroundColor = p.colour
    return part
  })), h('span', { class: 'bar-total' }, text))
}

function key(parts: [string, string][]): HTMLElement {
  return h('ul', { class: 'key' }, ...parts.map(([label, colour]) => {
    const swatch = h('span', { class: 'swatch' })
    swatch.style.backgroundColor = colour
    return h('li', {}, swatch, label)
  }))
}

const hiddenColor = () => color('part-hidden')

function ranksOf(c: Communication): HTMLElement {
  const longest = Math.max(...c.ranks.map(r => r.compute_seconds + r.exposed_seconds), 1e-12)
  return h('div', {}, h('h3', {}, 'By rank'),
    h('div', { 'aria-hidden': 'true' },
      ...c.ranks.slice(0, 16).map(r => bar(`rank ${r.rank}`, [
        { label: 'compute', seconds: Math.max(0, r.compute_seconds - r.hidden_seconds), colour: partColor('backward') },
        { label: 'compute that hides communication', seconds: Math.min(r.hidden_seconds, r.compute_seconds), colour: hiddenColor() },
        { label: 'exposed communication', seconds: r.exposed_seconds, colour: partColor('communication') },
      ], longest, milliseconds(r.compute_seconds + r.exposed_seconds))),
      key([['compute', partColor('backward')], ['compute that hides communication', hiddenColor()], ['exposed communication', partColor('communication')]])),
    table('Communication of the ranks', [
      { title: 'rank', numeric: true, of: (r: Communication['ranks'][number]) => String(r.rank) },
      { title: 'compute', unit: 'ms', numeric: true, of: r => inMilliseconds(r.compute_seconds) },
      { title: 'exposed', unit: 'ms', numeric: true, hint: 'Wait for gradients after the backward pass', of: r => inMilliseconds(r.exposed_seconds) },
      { title: 'hidden', unit: 'ms', numeric: true, hint: 'Communication during the backward pass', of: r => inMilliseconds(r.hidden_seconds) },
      { title: 'gradients', numeric: true, hint: 'Bytes of gradients that the all-reduce sums in each step', of: r => scaled(r.bytes, 'B') },
    ], c.ranks))
}

function bucketsOf(buckets: Bucket[]): HTMLElement {
  const time = (b: Bucket) => (b.exposed_seconds ?? 0) + (b.hidden_seconds ?? 0)
  const longest = Math.max(...buckets.map(time), 1e-12)
  return h('div', {}, h('h3', {}, 'By bucket'),
    h('div', { 'aria-hidden': 'true' },
      ...buckets.slice(0, 32).map(b => bar(b.name, [
        { label: 'hidden', seconds: b.hidden_seconds, colour: hiddenColor() }, { label: 'exposed', seconds: b.exposed_seconds, colour: partColor('communication') },
      ], longest, b.hidden_seconds === undefined ? unknown : milliseconds(time(b)))),
      key([['hidden', hiddenColor()], ['exposed', partColor('communication')]])),
    table('Gradient buckets', [
      { title: 'bucket', of: (b: Bucket) => b.name },
      { title: 'size', numeric: true, of: b => scaled(b.bytes, 'B') },
      { title: 'hidden', unit: 'ms', numeric: true, hint: 'Part of the all-reduce during the backward pass', of: b => inMilliseconds(b.hidden_seconds) },
      { title: 'exposed', unit: 'ms', numeric: true, hint: 'Part of the all-reduce after the backward pass', of: b => inMilliseconds(b.exposed_seconds) },
      { title: 'bus bandwidth', numeric: true, hint: 'Computed from bytes and time; the time includes waits for slower ranks', of: b => scaled(b.bus_bandwidth, 'B/s') },
    ], buckets))
}

// measured explains how the traffic of a link is measured.
const measured: Record<string, string> = {
  counter: 'byte counter', sample: 'means over 20 ms', computed: 'computed from bytes and time',
}

function linksOf(c: Communication): HTMLElement {
  return h('div', {}, h('h3', {}, 'By link'),
    c.left > 0 && h('p', { class: 'explain' }, `The table shows the ${c.links.length} links closest to their limits, of ${c.links.length + c.left} links.`),
    table('Links of the ranks', [
      { title: 'link', of: (l: Link) => l.name },
      { title: 'rank', numeric: true, of: l => String(l.rank) },
      { title: 'kind', of: l => l.kind },
      { title: 'sent', numeric: true, of: l => scaled(l.sent, 'B/s') },
      { title: 'received', numeric: true, of: l => scaled(l.received, 'B/s') },
      { title: 'limit', numeric: true, hint: 'Limit of each direction', of: l => scaled(l.limit || null, 'B/s') },
      { title: 'in use', hint: 'Traffic of the busier direction as a fraction of the limit', of: l => {
        const used = use(l)
        if (used === null) return unknown
        const filled = h('span', { class: 'meter-fill' })
        filled.style.width = `${Math.min(100, 100 * used)}%`
        return h('span', { class: 'meter' }, h('span', { class: 'meter-track', 'aria-hidden': 'true' }, filled), percent(used, 2))
      } },
      { title: 'measured by', of: l => measured[l.basis] ?? l.basis },
    ], c.links))
}

// communication returns the section, or null if nothing is known.
export function communication(c: Communication | null): HTMLElement | null {
  if (!c || (c.ranks.length < 2 && c.links.length === 0)) return null
  return h('div', {},
    h('p', { class: 'finding' }, finding(c)),
    h('p', { class: 'explain' }, c.steps === 1 ? `Values of step ${count(c.step)}.` : `Means over ${count(c.steps)} steps up to step ${count(c.step)}.`),
    c.ranks.length > 1 && ranksOf(c),
    c.buckets?.length ? bucketsOf(c.buckets) : null,
    c.links.length > 0 && linksOf(c))
}

// The charts of traffic by kind of link.
const kinds: [string, string, string][] = [
  ['nvlink', 'NVLink', 'Bytes per second of all NVLink connections of each GPU, from byte counters.'],
  ['pcie', 'PCIe', 'Bytes per second between each GPU and its host: means over 20 ms, measured twice a second.'],
  ['network', 'Network', 'Bytes per second of the network interfaces of each machine, from byte counters. The first rank of each machine reports them. Traffic of other programs is included.'],
  ['rdma', 'RDMA', 'Bytes per second of the RDMA ports of each machine, from byte counters. The first rank of each machine reports them.'],
]

const band = -2

// series returns the two directions of a kind of link, by rank.
function series(f: Figures, kind: string): Series[] {
  return (['sent', 'received'] as const).flatMap((direction, at) => f.lines.filter(l => l.column === `${kind}_${direction}` && l.rank !== allRanks).map(l => ({
    label: `${l.rank === band ? 'median of ranks' : `rank ${l.rank}`} ${direction}`, color: seriesColor(2 * Math.max(0, l.rank) + at), dash: at === 1 ? [4, 3] : seriesDash(2 * Math.max(0, l.rank)),
    values: l.mean.map(v => (v === null || v === undefined ? null : v / 1e6)),
    low: l.min?.map(v => (v === null || v === undefined ? null : v / 1e6)), high: l.max?.map(v => (v === null || v === undefined ? null : v / 1e6)),
  })))
}

export const trafficPanels = kinds.map(([kind, title, explain]) => ({
  id: 'traffic-' + kind, title: title + ' traffic', unit: 'MB/s', explain, columns: [kind + '_sent', kind + '_received'], zero: true, optional: true,
  format: (v: number) => scaled(v * 1e6, 'B/s'), series: (f: Figures, _: View) => series(f, kind),
}))

