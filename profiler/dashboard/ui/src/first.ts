// The first screen of a run: the utilization of the cluster, its largest loss, the decisions of the balancer, and
// advice.

import { learning } from './answers'
import { allRanks } from './api'
import type { Decision, Figures, View } from './api'
import { display, smooth } from './chart'
import type { Content } from './chart'
import { h, table } from './dom'
import { count, figure, inMilliseconds, milliseconds, percent, unknown } from './format'
import type { Maybe } from './format'
import { brief, describe, find, unitOf } from './panels'
import { color } from './theme'

// Account is package account of the program: the parts of a step in s, which sum to step.
export type Account = { step: number; useful: number; lost: Map<string, number>; of: string }

// The name of a part, its description and its colour.
const losses: Record<string, { name: string; what?: string; color: string }> = {
  imbalance: { name: 'imbalance', what: ', which the best shares would save', color: 'part-communication' },
  communication: { name: 'exposed communication', color: 'part-hidden' },
  data: { name: 'waits for data', color: 'part-data' },
  memory: { name: 'full memory', color: 'series-5' },
  noise: { name: 'noise', what: ': times vary from step to step', color: 'part-forward' },
  granularity: { name: 'granularity', what: ': samples cannot be divided further', color: 'part-backward' },
  pauses: { name: 'pauses', what: ' between steps and between their parts', color: 'soft' },
}

const nameOf = (cause: string): string => losses[cause]?.name ?? cause
const wordsOf = (cause: string): string => nameOf(cause) + (losses[cause]?.what ?? '')
const ofStep = (seconds: number, a: Account): string => `${figure(1000 * seconds)} of ${milliseconds(a.step)} a step`

const worthNaming = 0.05 // of a step

const known = (v: Maybe): v is number => v !== null && v !== undefined && Number.isFinite(v)

function accountOf(step: Maybe, useful: Maybe, part: (cause: string) => Maybe, of: string): Account | null {
  if (!known(step) || !known(useful) || step <= 0) return null
  const lost = new Map<string, number>()
  for (const cause of Object.keys(losses)) {
    const seconds = part(cause)
    if (known(seconds) && seconds > 0) lost.set(cause, seconds)
  }
  return { step, useful, lost, of }
}

type Decided = { step: number; steps: number; value: number }

// decisions returns the known values of a column of decisions. A decision describes the steps since the previous
// decision.
function decisions(f: Figures, column: string): Decided[] {
  let before = f.from - 1
  return (find(f, column, allRanks)?.mean ?? []).flatMap((value, i) => {
    const step = f.steps[i]
    if (!known(value) || step === undefined) return []
    const steps = Math.max(0, step - before)
    before = step
    return [{ step, steps, value }]
  })
}

const sum = (all: Decided[], of: (d: Decided) => number): number => all.reduce((n, d) => n + of(d), 0)

// allOf reports whether the figures contain all recorded steps of the segment. Not every step has a record.
const allOf = (v: Pick<View, 'segment_from' | 'first' | 'last'>, f: Pick<Figures, 'from' | 'to'>): boolean =>
  f.from <= Math.max(v.segment_from, v.first) && f.to >= v.last

// account returns the parts of a step. While the run trains, they are those of the newest window. After its end, they
// are those of the summary if all steps are selected, and otherwise those of the decisions on the selected steps.
export function account(v: Pick<View, 'state' | 'decision' | 'verdicts' | 'account' | 'segment_from' | 'first' | 'last'>,
  f: Figures): Account | null {
  const running = v.state.kind === 'running', whole = allOf(v, f)
  const verdict = v.verdicts?.filter(w => running || w.from >= f.from && w.to <= f.to).at(-1), d = v.decision
  const judged = () => accountOf(verdict?.step_seconds, verdict?.parts_seconds?.useful,
    cause => verdict?.parts_seconds?.[cause], `${range(verdict?.newest_from, verdict?.to)}, the newest window`)
  if (running) {
    return judged() ?? accountOf(d?.step_seconds, d?.useful_seconds, cause => d?.lost_seconds?.[cause],
      'the window of the newest decision')
  }
  const all = whole ? v.account : null, parts = all?.parts_seconds
  const summary = accountOf(all?.step_seconds, parts?.useful, cause => parts?.[cause],
    `${range(all?.from, all?.to)}, without the warm-up`)
  if (summary) return summary
  const column = (name: string): Maybe => {
    const list = decisions(f, name), steps = sum(list, x => x.steps)
    return steps > 0 ? sum(list, x => x.steps * x.value) / steps : null
  }
  return accountOf(column('decided_step'), column('useful'), cause => column('lost_' + cause),
    `${range(f.from, decisions(f, 'decided_step').at(-1)?.step)}, which the decisions of the balancer cover`) ??
    judged()
}

const range = (from: Maybe, to: Maybe) => `steps ${count(from)} to ${count(to)}`

// empty returns the reason why a run that has ended has no account of the selected steps.
export function empty(f: Pick<Figures, 'steps' | 'from' | 'to'>): string {
  return f.steps.length === 0 ? 'No values in this range of steps.' :
    `No decision of the balancer is in ${range(f.from, f.to)}, so the parts of a step are unknown.`
}

// unaccounted returns one sentence for each reason why runs have no account.
export function unaccounted(runs: { label: string; view: View; figures: Figures }[]): string[] {
  const reasons = new Map<string, string[]>()
  for (const r of runs.filter(r => !account(r.view, r.figures))) {
    const why = empty(r.figures)
    reasons.set(why, [...reasons.get(why) ?? [], r.label])
  }
  return [...reasons].map(([why, of]) => `${of.length > 3 ? `${of.length} runs` : of.join(', ')}: ${why}`)
}

// largest returns the largest loss and its time, or null if no loss is at least worthNaming.
export function largest(a: Account): [string, number] | null {
  const [first] = [...a.lost].sort((x, y) => y[1] - x[1])
  return first && first[1] >= worthNaming * a.step ? first : null
}

// slowest returns the rank for which the other ranks wait, or null if there is no single such rank. While the run
// trains, it is the rank of the newest window. After its end, it is the rank of the verdict on all steps.
export function slowest(v: Pick<View, 'state' | 'decision' | 'verdicts' | 'account' | 'segment_from' | 'first' | 'last'>,
  f: Pick<Figures, 'from' | 'to'>): number | null {
  if (v.state.kind !== 'running') return allOf(v, f) && v.account?.bound === 'straggler' ? v.account.rank ?? null : null
  const caused = v.decision?.ranks?.map(r => r.caused_seconds ?? 0) ?? []
  const most = Math.max(...caused, 0)
  if (most > 0) return caused.indexOf(most)
  const verdict = v.verdicts?.at(-1)
  return verdict?.bound === 'straggler' && verdict.rank >= 0 ? verdict.rank : null
}

// Gain is the throughput divided by the throughput with equal shares, with the ends of its 90 % interval if they are
// known. part is the fraction of the steps with a known gain.
export type Gain = { value: number; low: number | null; high: number | null; part: number }

const leastPart = 0.5 // smallest part for which a gain is shown, because the other steps may have a different gain

// gain returns the gain over the steps of the figures, or null if it is known for too few of them.
export function gain(f: Figures): Gain | null {
  const of = (name: string) => new Map(decisions(f, name).map(d => [d.step, d.value]))
  const equal = of('equal_step'), low = of('equal_step_low'), high = of('equal_step_high')
  const estimates = decisions(f, 'decided_step').filter(d => equal.has(d.step))
  const measured = sum(estimates, d => d.steps * d.value), covered = sum(estimates, d => d.steps)
  const part = covered / (f.to - f.from + 1)
  if (measured <= 0 || part < leastPart) return null
  const over = (column: Map<number, number>) =>
    sum(estimates, d => d.steps * (column.get(d.step) ?? NaN)) / measured
  const end = (x: number): number | null => (Number.isFinite(x) ? x : null)
  return { value: over(equal), low: end(over(low)), high: end(over(high)), part }
}

// estimated states that a gain is an estimate, with its interval and the fraction of the steps.
function estimated(low: number | null, high: number | null, part: number): string {
  const interval = low !== null && high !== null ? `, 90 % interval ${low.toFixed(2)} to ${high.toFixed(2)}` : ''
  return ` (estimate${interval}${part < 0.995 ? `, over ${(100 * part).toFixed(0)} % of the steps` : ''})`
}

const times = (x: number) => `${x.toFixed(2)} times`

const most = 0.8 // fraction of the lost time that must be before the step that ended returns
const enough = 0.2 // fraction of the steps that must be after this step

// ended returns the step before which most of the time lost to imbalance was lost, or null if there is no such step.
// After this step, the mean loss of a step is less than a quarter of the mean loss before.
function ended(v: Pick<View, 'changes'>, f: Figures): number | null {
  const all = decisions(f, 'lost_imbalance'), total = sum(all, d => d.steps * d.value), steps = sum(all, d => d.steps)
  let lost = 0, past = 0
  for (const d of all) {
    const from = past
    lost += d.steps * d.value
    past += d.steps
    const left = steps - past
    if (lost < most * total || left < enough * steps || (total - lost) * past * 4 >= lost * left) continue
    const change = v.changes?.at(-1)?.step ?? 0
    return change > from + f.from - 1 && change <= d.step ? change : d.step
  }
  return null
}

// usedSince returns the useful fraction of the steps after a step, or null if no decision states it.
function usedSince(step: number, f: Figures): number | null {
  const useful = new Map(decisions(f, 'useful').map(d => [d.step, d.value]))
  const later = decisions(f, 'decided_step').filter(d => d.step > step && useful.has(d.step))
  const time = sum(later, d => d.steps * d.value)
  return time > 0 ? sum(later, d => d.steps * (useful.get(d.step) ?? 0)) / time : null
}

// sentence states the utilization of the cluster, its largest loss, and the gain over equal shares. A failure comes
// first.
export function sentence(v: Pick<View, 'state' | 'decision' | 'changes' | 'verdicts' | 'settings' | 'ranks' | 'account' |
  'segment_from' | 'first' | 'last'>,
  a: Account, gained: Gain | null, f: Figures): string {
  const running = v.state.kind === 'running', loss = largest(a), past = running ? null : ended(v, f), imbalance = a.lost.get('imbalance') ?? 0
  const cluster = v.ranks.length > 1 ? 'The cluster' : 'The rank'
  const since = loss?.[0] === 'imbalance' && past !== null && slowest(v, f) === null ? usedSince(past, f) : null
  const did = `${running ? 'does' : 'did'} ${percent(a.useful / a.step, 2)} of what it could` +
    (since !== null ? `, and ${percent(since, 2)} after step ${count(past)}.` : '.')
  const text = broken(v) ? [`${failure(v)} Before, ${cluster.toLowerCase()} ${did}`] :
    [`${cluster} ${did}`]
  if (!loss) text.push(`No loss ${running ? 'exceeds' : 'exceeded'} ${percent(worthNaming)} of a step.`)
  else {
    const [cause, seconds] = loss, rank = slowest(v, f), of = ofStep(seconds, a)
    if (cause === 'imbalance' && rank !== null) text.push(`Rank ${rank} ${running ? 'is' : 'was'} waited for: ${of}.`)
    else if (cause === 'imbalance' && past !== null) text.push(`${of} were lost to imbalance, mostly up to step ${count(past)}.`)
    else text.push(`${of} ${running ? 'are' : 'were'} lost to ${wordsOf(cause)}${cause === 'noise' && running ? blamed(v.decision) : ''}.`)
  }
  if (v.ranks.length < 2) return text.join(' ')
  const policy = v.settings.balance.policy
  if (!learning.includes(policy) && imbalance >= worthNaming * a.step) text.push(
    `Policy hybrid would make it about ${times(a.step / (a.step - imbalance))} faster.`)
  else if (gained !== null && policy !== 'none') {
    const { value, low, high, part } = gained, equal = low !== null && high !== null && low <= 1 && high >= 1
    if (equal) text.push(`Equal shares ${running ? 'are' : 'were'} about as fast${estimated(low, high, part)}.`)
    else if (value >= 1) text.push(
      `It ${running ? 'is' : 'was'} about ${times(value)} faster than with equal shares${estimated(low, high, part)}.`)
    else text.push(`Equal shares would be about ${times(1 / value)} faster${estimated(high && 1 / high, low && 1 / low, part)}.`)
  }
  else if (policy === 'none') text.push('Other shares would hardly make it faster.')
  return text.join(' ')
}

// failure states that a run failed or crashed, and names a lost rank.
export function failure(v: Pick<View, 'state' | 'last'>): string {
  const lost = /rank \d+ is lost/.exec(v.state.why ?? '')
  return broken(v) ? `The run ${v.state.kind} after step ${count(v.last)}${lost ? `: ${lost[0]}` : ''}.` : ''
}

// broken reports whether a run ended before it was complete.
const broken = (v: Pick<View, 'state'>): boolean => v.state.kind === 'failed' || v.state.kind === 'crashed'

// blamed names the rank and the cause of noise, if they are known.
function blamed(d: Decision | null): string {
  const rank = d && known(d.noisy_rank) ? `, mostly of rank ${d.noisy_rank}` : ''
  return rank + (d?.noise_evidence ? ` (${d.noise_evidence})` : '')
}

// bar shows the account as one bar, with the time of each part below.
export function bar(a: Account, running: boolean): HTMLElement {
  const key = h('ul', { class: 'key', 'aria-label': 'Parts of a step' })
  for (const p of partsOf(a)) {
    if (p.seconds >= 0.005 * a.step) key.append(h('li', {}, swatch(p.shade), `${p.name}: `,
      h('strong', {}, milliseconds(p.seconds)), ` (${percent(p.seconds / a.step, 2)})`))
  }
  return h('div', {}, line(a, a.step), key, h('p', { class: 'explain' },
    `A step ${running ? 'takes' : 'took'} ${milliseconds(a.step)}: mean of ${a.of}. ` +
    '100 % would be useful work alone: no waits, no noise, no pauses.'))
}

// accounts shows the accounts of several runs as bars on one scale, with the times in a table.
export function accounts(runs: { label: string; a: Account }[]): HTMLElement {
  const longest = Math.max(...runs.map(r => r.a.step), 1e-12)
  const parts = new Map(runs.flatMap(r => partsOf(r.a)).map(p => [p.name, p.shade]))
  const key = h('ul', { class: 'key', 'aria-label': 'Parts of a step' },
    ...[...parts].map(([name, shade]) => h('li', {}, swatch(shade), name)))
  const seconds = (a: Account, name: string) => partsOf(a).find(p => p.name === name)?.seconds
  return h('div', {}, ...runs.map(r => h('div', {}, h('p', { class: 'account-of' }, `${r.label}: `,
    h('strong', {}, milliseconds(r.a.step)), ' a step'), line(r.a, longest))),
    key, h('details', {}, h('summary', {}, 'Numbers'), table('Parts of a step by run', [
      { title: 'run', of: (r: { label: string; a: Account }) => r.label },
      { title: 'step', unit: 'ms', numeric: true, of: r => inMilliseconds(r.a.step) },
      ...[...parts.keys()].map(name => ({ title: name, unit: 'ms', numeric: true, of: (r: { a: Account }) =>
        inMilliseconds(seconds(r.a, name)) })),
    ], runs)))
}

type Part = { name: string; seconds: number; shade: string }

// partsOf returns useful work and the losses, the largest one first.
function partsOf(a: Account): Part[] {
  return [{ name: 'useful work', seconds: a.useful, shade: 'part-optimizer' },
    ...[...a.lost].sort((x, y) => y[1] - x[1])
    .map(([cause, seconds]) => ({ name: wordsOf(cause), seconds,
      shade: losses[cause]?.color ?? 'soft' }))]
}

function swatch(shade: string): HTMLElement {
  const element = h('span', { class: 'swatch' })
  element.style.backgroundColor = color(shade)
  return element
}

// line returns the bar of an account. The full width of the bar represents the time longest, in s.
function line(a: Account, longest: number): HTMLElement {
  return h('div', { class: 'bar account', 'aria-hidden': 'true' }, ...partsOf(a).map(p => {
    const piece = h('span', { class: 'part', title: `${p.name}: ${milliseconds(p.seconds)}` })
    piece.style.width = `${(100 * p.seconds) / longest}%`
    piece.style.backgroundColor = color(p.shade)
    return piece
  }))
}

const window = 20 // points of the mean in the curve

// curve returns the measured throughput, and the throughput that the best shares and equal shares would reach.
export function curve(f: Figures, v: View): Content {
  const unit = unitOf(v), units = unit.perSample
  const batch = v.settings.data.batch_size, column = (name: string) => find(f, name, allRanks)?.mean ?? []
  const step = column('decided_step'), lost = column('lost_imbalance'), equal = column('equal_step')
  const rate = (seconds: Maybe): Maybe => (known(seconds) && seconds > 0 && batch > 0 ? (batch * units) / seconds : null)
  const best = step.map((s, i) => rate(known(s) && known(lost[i]) ? s - (lost[i] ?? 0) : null)), equally = equal.map(rate)
  const has = (values: Maybe[]) => values.some(known), measured = column('total_throughput').map(x => (known(x) ? x * units : null))
  return {
    steps: f.steps, times: f.times, width: f.width, unit: unit.name + '/s',
    series: [
      ...(display.smooth > 1 ? [] : [{ label: 'each step', color: color('line'), values: measured }]),
      { label: display.smooth > 1 ? 'measured' : `measured, mean of ${window} points`, color: color('text'), values: display.smooth > 1 ? measured : means(f.steps, measured, v.changes ?? []), rate: true },
      ...(has(best) ? [{ label: 'best shares (oracle)', color: color('series-2'), dash: [8, 4], values: best, steps: 'before' as const }] : []),
      ...(has(equally) ? [{ label: 'equal shares', color: color('series-1'), dash: [2, 3], values: equally, steps: 'before' as const }] : []),
    ],
    marks: (v.changes ?? []).filter(d => d.step >= f.from && d.step <= f.to).map(d => ({ step: d.step, text: describe(d) })),
  }
}

// means smooths throughputs separately between changes of the shares.
export function means(steps: number[], values: Maybe[], changes: { step: number }[]): Maybe[] {
  const cuts = changes.map(c => steps.findIndex(s => s > c.step)).filter(i => i > 0)
  const at = [0, ...new Set(cuts), values.length].sort((a, b) => a - b)
  return at.slice(1).flatMap((end, i) => smooth(values.slice(at[i], end), window, true))
}

// byDelay returns the ranks in the order of a table. If there are many ranks, the ranks for which others wait longest
// come first.
export function byDelay(v: Pick<View, 'decision'>, ranks: View['ranks']): View['ranks'] {
  const caused = (r: View['ranks'][number]) => v.decision?.ranks?.[r.rank]?.caused_seconds ?? 0
  if (ranks.length <= fewRanks) return ranks
  return [...ranks].sort((a, b) => caused(b) - caused(a) || (b.busy_seconds ?? 0) - (a.busy_seconds ?? 0) ||
    a.rank - b.rank)
}

export const fewRanks = 8 // all of them fit on the first screen

// ranks returns the table that shows who waits for whom.
export function ranks(v: View, shown: View['ranks'], badge: (r: View['ranks'][number]) => Node | string): HTMLElement {
  const of = (r: View['ranks'][number]) => v.decision?.ranks?.[r.rank]
  type Row = View['ranks'][number]
  return table('Ranks', [
    { title: 'rank', numeric: true, of: (r: Row) => String(r.rank) },
    { title: 'share', numeric: true, hint: 'Samples of the global batch', of: r => count(r.share) },
    { title: 'busy', unit: 'ms', numeric: true, hint: 'Own work in a step, without waits for other ranks', of: r => inMilliseconds(r.busy_seconds) },
    { title: 'waits', unit: 'ms', numeric: true, hint: 'For slower ranks, per step', of: r => inMilliseconds(r.waited_seconds) },
    { title: 'delays', unit: 'ms', numeric: true, hint: 'Sum of the times for which the other ranks wait for this rank, per step', of: r => inMilliseconds(of(r)?.caused_seconds) },
    { title: 'verdict', minor: true, of: badge },
  ], shown)
}

// outcome describes the effect of a change of shares: "1.18 times faster (predicted 1.20)".
export function outcome(d: Pick<Decision, 'outcome'>): string {
  const o = d.outcome
  if (!o || !known(o.achieved)) return unknown
  const predicted = known(o.predicted) ? `predicted ${o.predicted.toFixed(2)}` : ''
  const interval = known(o.achieved_low) && known(o.achieved_high) ?
    `90 % interval ${o.achieved_low.toFixed(2)} to ${o.achieved_high.toFixed(2)}` : ''
  const more = [interval, predicted].filter(Boolean).join(', ')
  const speed = o.achieved >= 1 ? `${times(o.achieved)} faster` : `${o.achieved.toFixed(2)} times the speed`
  return (o.worse ? 'made it worse: ' : '') + speed + (more && ` (${more})`)
}

// decided describes the newest decision that changed the shares, its prediction and its outcome.
export function decided(v: Pick<View, 'decision' | 'changes' | 'settings'>): HTMLElement | null {
  const d = v.decision, change = v.changes?.at(-1)
  if (!d) return null
  const predicted = known(d.step_seconds) && known(d.predicted_step_seconds) && d.changed ? d.step_seconds / d.predicted_step_seconds : null
  const off = v.settings.balance.policy === 'none' && !d.changed
  return h('div', {}, h('p', {}, off ? `Policy none keeps the shares: ${brief(d.shares)}.` : describe(d)), predicted !== null && h('p', {}, `Predicted: ${times(predicted)} faster.`),
    change?.outcome && h('p', {}, `Last change, step ${change.step}, compared with the shares before: ${outcome(change)}.`),
    differs(d) && h('p', {}, differs(d)),
    d.noise_evidence && h('p', {}, `Noise: ${d.noise_evidence}.`),
    d.equal_step_unknown && h('p', {}, `The gain over equal shares is unknown: ${d.equal_step_unknown}.`))
}

// differs says why the fraction of the oracle and the times of the ranks differ.
export const differs = (d: Pick<Decision, 'share_of_oracle' | 'share_of_oracle_disagreement'>): string =>
  d.share_of_oracle_disagreement ? `Fraction of the oracle: ${percent(d.share_of_oracle)}; ${d.share_of_oracle_disagreement}.` : ''

// lossOf returns the loss that a verdict names.
const lossOf = (bound: string): string => (bound === 'straggler' ? 'imbalance' : bound.replace(/-bound$/, ''))

// advice returns the recommended next step.
export function advice(v: Pick<View, 'state' | 'verdicts' | 'settings' | 'ranks'>, a: Account | null): string {
  const again = broken(v) ? `Read logs/train.log for the cause. The same command ${v.state.saved ? 'resumes the run' : 'starts the run again'}. ` : ''
  const imbalance = a?.lost.get('imbalance') ?? 0, policy = v.settings.balance.policy
  if (a && v.ranks.length > 1 && !learning.includes(policy) && largest(a)?.[0] === 'imbalance') return `${again}Set balance.policy = "hybrid" (now "${policy}"): it saves about ${milliseconds(imbalance)} a step.` +
    (v.state.kind === 'running' ? ' A run that is stopped resumes with it.' : '')
  if (again) return again.trim()
  // After the end of a run, the largest loss of the whole run counts, and not that of its last window.
  const most = a && v.state.kind !== 'running' ? largest(a)?.[0] : undefined
  const verdict = v.verdicts?.findLast(b => lossOf(b.bound) === most) ?? v.verdicts?.at(-1)
  if (!verdict) return v.state.kind === 'running' || v.state.kind === 'unknown' ?
    'Advice follows after the first 52 steps of a process.' :
    'There is no advice: it needs 52 steps of one process.'
  if (!verdict.advice) return 'There is no advice for the settings of another program.'
  if (verdict.bound === 'compute-bound') {
    const small = a && [...a.lost.values()].every(lost => lost < 0.1 * a.step)
    return `${small ? 'No single loss takes a tenth of the time. ' : ''}For more speed: ${verdict.advice}.`
  }
  const cause = lossOf(verdict.bound), lost = a?.lost.get(cause)
  return a && lost ? `To lose less to ${nameOf(cause)} (${ofStep(lost, a)}): ${verdict.advice}.` :
    verdict.advice[0]?.toUpperCase() + verdict.advice.slice(1) + '.'
}
