// The tables of a run.

import { outcome } from './first'
import type { Alert, Decision, Profile, RunEvent, Verdict, View } from './api'
import { h, table } from './dom'
import { bytes, count, figure, inMilliseconds, percent, scaled, unknown } from './format'
import type { Maybe } from './format'
import { unitOf } from './panels'

const mostRanks = 64 // rows of the table

type Row = View['ranks'][number]

export const badgeOf = (health: string) => (health ? h('span', { class: 'badge ' + health.replaceAll(' ', '-') }, health === 'sick' ? 'slower than usual' : health) : unknown)

// select returns the ranks that the table shows. Of many ranks, it shows those that need attention.
export function select(ranks: Row[]): Row[] {
  if (ranks.length <= mostRanks) return ranks
  const urgent = (r: Row) => (r.health === 'sick' || r.missing ? 1 : 0)
  return [...ranks].sort((a, b) => urgent(b) - urgent(a) || (b.busy_seconds ?? 0) - (a.busy_seconds ?? 0) || a.rank - b.rank).slice(0, mostRanks)
}

// now returns the table of the ranks at the newest step that all of them have.
export function now(v: View): HTMLElement {
  const profile = new Map((v.profiles ?? []).map(p => [p.rank, p]))
  const temperature = v.ranks.some(r => r.record?.temperature != null), power = v.ranks.some(r => r.record?.power != null)
  const shown = select(v.ranks), unit = unitOf(v)
  return h('div', {}, h('p', { class: 'explain' }, v.speed.decision > 0 ? `Means over the window of the decision at step ${count(v.speed.decision)}. Utilisation, memory, temperature and power: step ${count(v.common)}.` : `Step ${count(v.common)}, the newest step that all ranks have recorded.`), v.ranks.length > shown.length && h('p', { class: 'explain' }, `${shown.length} of ${count(v.ranks.length)} ranks: first those that are slower than usual or have no records, then those with the longest compute time. The field Ranks selects ranks for the charts.`), table('Ranks now', [
    { title: 'rank', numeric: true, of: (r: Row) => String(r.rank) },
    { title: 'device', wide: true, minor: true, of: r => { const p = profile.get(r.rank); return p ? `${p.device.model || p.device.name}${p.host ? ' on ' + p.host : ''}` : unknown } },
    { title: 'share', unit: 'samples', numeric: true, of: r => count(r.share) },
    { title: 'speed', unit: unit.name + '/s', numeric: true, hint: 'Share divided by busy time', of: r =>
      figure(r.samples_per_second == null ? null : r.samples_per_second * unit.perSample) },
    { title: 'busy', unit: 'ms', numeric: true, hint: 'Own work in a step, without waits for other ranks', of: r => inMilliseconds(r.busy_seconds) },
    { title: 'waits', unit: 'ms', numeric: true, hint: 'For slower ranks, per step', of: r => inMilliseconds(r.waited_seconds) },
    { title: 'utilisation', unit: '%', numeric: true, of: r => figure(r.record?.gpu_utilization) },
    { title: 'memory', unit: '%', numeric: true, of: r => figure(r.record?.gpu_memory_percent) },
    ...(temperature ? [{ title: 'temperature', unit: '°C', numeric: true, of: (r: Row) => figure(r.record?.temperature) }] : []),
    ...(power ? [{ title: 'power', unit: 'W', numeric: true, of: (r: Row) => figure(r.record?.power) }] : []),
    { title: 'verdict', of: r => (r.record ? h('span', { title: r.cause }, badgeOf(r.health), r.cause ? ` cause: ${r.cause}` : '') : r.missing ? 'no records' : unknown) },
  ], shown))
}

// memory compares the planned memory of the ranks with their limits and with the measured use. It returns null if the run recorded none.
export function memory(v: View): HTMLElement | null {
  const known = v.ranks.filter(r => r.memory)
  if (known.length === 0) return null
  type Memory = NonNullable<Row['memory']>
  const of = (r: Row) => r.memory as Memory
  const parts = (list: Memory['device']) => (list ?? []).filter(p => p.bytes >= 2 ** 20 / 10).map(p => `${p.name} ${bytes(p.bytes)}`).join(', ') || unknown
  const unified = known.every(r => of(r).unified)
  return table('Memory of the ranks', [
    { title: 'rank', numeric: true, of: (r: Row) => String(r.rank) },
    { title: 'for', unit: 'samples', numeric: true, of: r => count(of(r).samples) },
    { title: 'resident', numeric: true, hint: 'Measured memory of the process at the newest step that all ranks have recorded. It contains all mapped program files; the plan of a rank has a part of those that ranks share. ≥: the memory is larger than what the rank may use, and not known exactly.', of: r => (of(r).used_at_least ? '≥ ' : '') + bytes(of(r).used || null) },
    { title: 'planned', numeric: true, hint: 'Without optional parts', of: r => bytes(of(r).host_bytes) },
    { title: 'limit', numeric: true, of: r => h('span', { title: of(r).limit_source }, bytes(of(r).limit || null)) },
    ...(unified ? [] : [
      { title: 'planned on the device', numeric: true, of: (r: Row) => of(r).unified ? unknown : bytes(of(r).device_bytes) },
      { title: 'limit of the device', numeric: true, of: (r: Row) => bytes(of(r).device_limit || null) }]),
    ...(known.some(r => of(r).image_decoders) ? [
      { title: 'image decoders', numeric: true, hint: 'Measured memory of the image decoders, the largest so far. The planned memory does not contain it.', of: (r: Row) => bytes(of(r).image_decoders || null) }] : []),
    { title: 'device', wide: true, of: r => parts(of(r).device) },
    { title: 'process', wide: true, of: r => parts(of(r).host) },
    { title: 'optional', wide: true, of: r => parts(of(r).optional) },
  ], select(known))
}

// sharesOf lists shares: all of a few ranks, and the first ones of many.
function sharesOf(list: number[]): string {
  return list.length <= 16 ? list.join(' / ') : list.slice(0, 6).join(' / ') + ` / … (${list.length} ranks)`
}

export const changes = (list: Decision[]): HTMLElement => table('Decisions that changed the shares', [
  { title: 'step', numeric: true, of: (d: Decision) => count(d.step) },
  { title: 'shares before', of: d => sharesOf(d.shares) },
  { title: 'shares after', of: d => sharesOf(d.next) },
  { title: 'fraction of oracle', numeric: true, of: d => percent(d.share_of_oracle) },
  { title: 'brought', of: outcome },
  { title: 'reason', wide: true, of: d => d.reason },
], [...list].reverse().slice(0, 200))

export const verdicts = (list: Verdict[]): HTMLElement => table('Bottleneck verdicts', [
  { title: 'steps', of: (v: Verdict) => `${count(Math.max(1, v.from))} to ${count(v.to)}` },
  { title: 'limited by', of: v => h('span', { class: 'badge ' + v.bound.replaceAll(' ', '-') }, v.bound) },
  { title: 'finding', wide: true, of: v => v.text },
  { title: 'advice', wide: true, of: v => v.advice },
], [...list].reverse().slice(0, 100))

export const alerts = (list: Alert[]): HTMLElement => table('Alerts', [
  { title: 'step', numeric: true, of: (a: Alert) => count(Math.max(1, a.step)) },
  { title: 'kind', of: a => h('span', { class: 'badge ' + a.kind.replaceAll(' ', '-') }, a.kind) },
  { title: 'rank', of: a => (a.rank >= 0 ? String(a.rank) : 'all') },
  { title: 'message', wide: true, of: a => a.text },
  { title: 'evidence or advice', wide: true, of: a => a.evidence || unknown },
], [...list].reverse().slice(0, 200))

// measured returns what a rank measured. The server sends this part of the profile unchanged.
const measured = (p: Profile) => p.measured as { dtype?: string; tflops?: Maybe; memory?: Record<string, unknown> } | null

// hardware compares the devices of the ranks.
export function hardware(list: Profile[]): HTMLElement {
  const bandwidth = (p: Profile): number | null => {
    const m = measured(p)?.memory
    for (const key of ['copy', 'triad', 'gbytes_per_second', 'copy_gbytes_per_second', 'read']) if (typeof m?.[key] === 'number') return m[key]
    for (const value of Object.values(m ?? {})) if (typeof value === 'number') return value
    return null
  }
  const best = (of: (p: Profile) => number | null) => Math.max(...list.map(p => of(p) ?? 0), 1e-12)
  const bar = (value: number | null, most: number, text: string) => {
    const fillBar = h('span', { class: 'meter-fill' })
    fillBar.style.width = `${(100 * (value ?? 0)) / most}%`
    return h('span', { class: 'meter' }, h('span', { class: 'meter-track', 'aria-hidden': 'true' }, fillBar), text)
  }
  const tflops = (p: Profile) => measured(p)?.tflops ?? null
  return table('Hardware of the ranks', [
    { title: 'rank', numeric: true, of: (p: Profile) => String(p.rank) },
    { title: 'host', of: p => p.host },
    { title: 'device', wide: true, of: p => `${p.device.model || p.device.name}${p.device.cpus ? `, ${figure(p.device.cpus)} CPUs` : ''}${p.device.isa ? ', ' + p.device.isa : ''}` },
    { title: 'score', hint: 'Compute score. The balancer computes the first shares from the scores.', of: p => bar(p.compute_score, best(x => x.compute_score), `${figure(p.compute_score)} (${figure(p.relative_score)} × slowest)`) },
    { title: 'compute', unit: 'TFLOP/s', of: p => bar(tflops(p), best(tflops), `${figure(tflops(p))} ${measured(p)?.dtype ?? ''}`) },
    { title: 'memory', unit: 'GB/s', of: p => bar(bandwidth(p), best(bandwidth), figure(bandwidth(p))) },
    { title: 'capacity', numeric: true, of: p => scaled(p.memory_bytes, 'B') },
  ], list)
}

export const evaluations = (list: RunEvent[], titles: Map<string, { title: string; percent: boolean }>): HTMLElement => {
  const keys = [...new Set(list.flatMap(e => Object.keys(e.evaluation?.metrics ?? {})))]
  return table('Evaluations', [
    { title: 'step', numeric: true, of: (e: RunEvent) => count(e.step) },
    { title: 'loss', numeric: true, of: e => figure(e.evaluation?.loss, 4) },
    ...keys.map(k => ({ title: titles.get(k)?.title ?? k, numeric: true, of: (e: RunEvent) => titles.get(k)?.percent ? percent(e.evaluation?.metrics?.[k], 4) : figure(e.evaluation?.metrics?.[k], 4) })),
    { title: 'samples', numeric: true, of: e => count(e.evaluation?.samples) },
    { title: 'best so far', of: e => (e.evaluation?.best ? 'yes' : '') },
  ], [...list].reverse().slice(0, 100))
}
