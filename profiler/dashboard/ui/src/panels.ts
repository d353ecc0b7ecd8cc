// The charts over steps of a run, with their contents and their columns.

import { charts } from './answers'
import { allRanks, band } from './api'
import type { Figures, Line, View } from './api'
import type { Content, Mark, Series } from './chart'
import { trafficPanels } from './communication'
import { count, figure, milliseconds, percent, scaled } from './format'
import type { Maybe } from './format'
import { color, partColor, seriesColor, seriesDash } from './theme'

export type Panel = {
  id: string
  title: string
  unit: string
  explain: string
  columns: string[]
  zero?: boolean
  top?: number
  format?: (v: number) => string
  optional?: boolean // hidden if the run has none of these values
  rate?: boolean // the unit is that of the run, per second
  overall?: boolean // in a comparison, only the first line is shown
  split?: string // in a comparison, each line has its own chart; this text explains it
  series: (f: Figures, v: View) => Series[]
  marks?: (v: View) => Mark[]
}

// unitOf returns the unit of the throughput of a run, such as img or tok, and the number of units per sample.
export function unitOf(v: Pick<View, 'starts'>): { name: string; perSample: number } {
  const start = v.starts?.at(-1)?.start
  return start?.unit && start.units_per_sample > 0 ? { name: start.unit,
    perSample: start.units_per_sample } : { name: 'samples', perSample: 1 }
}

const times = (values: Maybe[] | undefined, factor: number): Maybe[] | undefined =>
  values?.map(x => (x === null || x === undefined ? null : x * factor))

export const find = (f: Figures, column: string, rank: number): Line | undefined => f.lines.find(l => l.column === column && l.rank === rank)

// one returns the line of a column that has one value for all ranks.
function one(f: Figures, column: string, label: string, stroke: string, factor = 1): Series[] {
  const l = find(f, column, allRanks)
  return l ? [{ label, color: stroke, values: times(l.mean, factor) ?? [], low: times(l.min, factor), high: times(l.max, factor) }] : []
}

// perRank returns a line for each rank, or the median with a band over ranks.
export function perRank(f: Figures, column: string, factor = 1, suffix = ''): Series[] {
  const over = find(f, column, band)
  if (over) {
    return [{
      label: `median of ranks${suffix}`, color: seriesColor(0), values: times(over.mean, factor) ?? [], low: times(over.min, factor), high: times(over.max, factor),
      note: i => (over.worst?.[i] ?? -1) >= 0 ? `worst rank ${over.worst?.[i]}` : '',
    }]
  }
  return f.lines.filter(l => l.column === column && l.rank >= 0).map(l => ({
    label: `rank ${l.rank}${suffix}`, color: seriesColor(l.rank), dash: seriesDash(l.rank), values: times(l.mean, factor) ?? [], low: times(l.min, factor), high: times(l.max, factor),
  }))
}

// atSteps places each value at the first point that covers the step of the value.
export function atSteps(f: Figures, values: { step: number; value: Maybe }[]): Maybe[] {
  const out: Maybe[] = f.steps.map(() => null)
  let i = 0
  for (const v of values) {
    while (i < f.steps.length && (f.steps[i] ?? 0) < v.step) i++
    if (i < f.steps.length && v.step >= f.from) out[i] = v.value
  }
  return out
}

// evaluations returns a metric of the evaluations as points; key "" is the loss.
function evaluations(f: Figures, v: View, key: string, label: string, factor: number): Series[] {
  const points = (v.evals ?? []).map(e => ({ step: e.step, value: key === '' ? e.evaluation?.loss : e.evaluation?.metrics?.[key] }))
  const values = times(atSteps(f, points), factor) ?? []
  return values.some(x => x !== null) ? [{ label, color: seriesColor(1), values, points: true }] : []
}

const causes = ['imbalance', 'communication', 'data', 'noise', 'granularity', 'pauses']

const ms = (v: number) => milliseconds(v / 1000)
const pc = (v: number) => percent(v / 100)

// brief returns the shares of the first ranks.
export const brief = (list: number[] | null): string => (list ?? []).length > 8 ?
  `${(list ?? []).slice(0, 8).join('/')}/…` : (list ?? []).join('/')

// describe returns a decision in one line.
export function describe(d: { step: number; shares: number[] | null; next: number[] | null; changed?: boolean; reason: string }): string {
  if (d.changed === false) return `step ${d.step}: shares stay ${brief(d.shares)}: ${d.reason}`
  return `step ${d.step}: ${brief(d.shares)} → ${brief(d.next)}: ${d.reason}`
}

const decisions = (v: View): Mark[] => (v.changes ?? []).map(d => ({ step: d.step, text: describe(d) }))

export const panels: Panel[] = [
  {
    id: 'loss', title: 'Loss', unit: '', columns: ['loss'], explain: 'Mean loss of each training step over the global batch, and of each evaluation.',
    series: (f, v) => [...one(f, 'loss', 'training', seriesColor(0)), ...evaluations(f, v, '', 'evaluation', 1)],
  },
  {
    id: 'accuracy', title: 'Accuracy', unit: '%', columns: ['accuracy'], zero: true, optional: true, format: pc,
    explain: 'Fraction of samples whose top prediction is correct, in each training step and in each evaluation.',
    series: (f, v) => [...one(f, 'accuracy', 'training', seriesColor(0), 100), ...evaluations(f, v, 'top1', 'evaluation', 100)],
  },
  {
    id: 'perplexity', title: 'Perplexity', unit: '', columns: ['loss'], optional: true, explain: 'Exponential of the loss of each training step and of each evaluation.',
    series: (f, v) => {
      const eval_ = evaluations(f, v, 'perplexity', 'evaluation', 1)
      const l = find(f, 'loss', allRanks)
      return eval_.length && l ? [{ label: 'training', color: seriesColor(0), values: l.mean.map(x => (x === null || x === undefined ? null : Math.exp(x))) }, ...eval_] : []
    },
  },
  {
    id: 'throughput', title: 'Throughput', unit: 'samples/s', columns: ['throughput', 'total_throughput'], zero: true,
      rate: true, overall: true,
    explain: 'Throughput of all ranks together, and of each rank. A rank with a larger share has a higher line. Better balance raises the total.',
    series: (f, v) => {
      const units = unitOf(v).perSample, ranks = f.lines.filter(l => l.column === 'throughput')
      return [...one(f, 'total_throughput', 'all ranks', color('text'), units),
        ...(ranks.length > 1 || find(f, 'throughput', band) ? perRank(f, 'throughput', units) : [])]
    },
  },
  {
    id: 'shares', title: 'Shares', unit: 'samples per step', columns: ['share'], zero: true, format: v => (Number.isInteger(v) ? count(v) : figure(v, 4)),
    explain: 'Samples of the global batch that each rank gets.',
    series: f => perRank(f, 'share').map(l => ({ ...l, steps: 'after' as const })), marks: decisions,
  },
  {
    id: 'own', title: 'Compute time of each rank', unit: 'ms', columns: ['own'], zero: true, format: ms,
    explain: 'Time of data loading, forward and backward, without waits for other ranks. With balanced shares, the lines coincide and no rank waits.',
    series: f => perRank(f, 'own', 1000), marks: decisions,
  },
  {
    id: 'oracle', title: 'Fraction of the oracle', unit: '%', columns: ['share_of_oracle', 'share_of_oracle_low', 'share_of_oracle_high'], top: 100, optional: true, format: pc,
    explain: 'Step time with the best possible shares divided by the step time with the actual shares. At 100 %, no other shares are faster. The band is the 90 % interval.',
    series: f => {
      const l = find(f, 'share_of_oracle', allRanks), low = find(f, 'share_of_oracle_low', allRanks), high = find(f, 'share_of_oracle_high', allRanks)
      return l ? [{ label: 'fraction of the oracle', color: seriesColor(2), values: times(l.mean, 100) ?? [], low: times(low?.mean, 100), high: times(high?.mean, 100) }] : []
    },
    marks: decisions,
  },
  {
    id: 'lost', title: 'Lost time by cause', unit: 'ms per step', columns: causes.map(c => 'lost_' + c), zero: true,
      optional: true, split: 'Time of a step that this cause costs.', format: ms,
    explain: 'Lost time per step. With the useful work, the causes sum to the measured step: imbalance (the best shares would save it), exposed communication, waiting for data, noise (times vary from step to step; no shares remove it), granularity (a share is a whole number of samples), and pauses between steps.',
    series: f => causes.flatMap((c, i) => one(f, 'lost_' + c, c, seriesColor(i), 1000).map(s => ({ ...s, low: undefined, high: undefined }))),
  },
  {
    id: 'communication', title: 'Communication', unit: 'ms', columns: ['communication', 'hidden'], zero: true, format: ms,
    explain: 'Exposed: time that a rank waits for gradients after the backward pass. Hidden: communication during the backward pass, which adds no time to the step.',
    series: f => [...perRank(f, 'communication', 1000, ' exposed'), ...perRank(f, 'hidden', 1000, ' hidden').map(s => ({ ...s, dash: [3, 3], low: undefined, high: undefined }))],
  },
  {
    id: 'bandwidth', title: 'Bus bandwidth', unit: 'GB/s', columns: ['bus_bandwidth'], zero: true, optional: true, format: v => scaled(v * 1e9, 'B/s'),
    explain: 'Bandwidth of each link in the gradient all-reduce, computed from bytes and time. It is not read from a hardware counter.',
    series: f => perRank(f, 'bus_bandwidth', 1e-9),
  },
  ...trafficPanels,
  {
    id: 'utilization', title: 'Utilisation', unit: '%', columns: ['utilization'], zero: true, top: 100, optional: true, format: pc,
    explain: 'GPU: fraction of the time in which a kernel runs. CPU rank: used fraction of the CPUs that the rank may use.',
    series: f => perRank(f, 'utilization'),
  },
  {
    id: 'memory', title: 'Memory', unit: '%', columns: ['memory'], zero: true, top: 100, optional: true, format: pc,
    explain: 'Memory in use: fraction of the GPU memory, or of the memory that a CPU rank may use. A rank near 100 % cannot take a larger share.',
    series: f => perRank(f, 'memory'),
  },
  {
    id: 'temperature', title: 'Temperature', unit: '°C', columns: ['temperature'], optional: true, explain: 'Temperature of each device.', series: f => perRank(f, 'temperature'),
  },
  {
    id: 'power', title: 'Power', unit: 'W', columns: ['power'], zero: true, optional: true, explain: 'Electric power of each device.', series: f => perRank(f, 'power'),
  },
  ...charts.map(c => ({
    ...c, columns: [c.column], format: c.digits > 0 ? (v: number) => figure(v, c.digits) : undefined, series: (f: Figures) => one(f, c.column, c.label, seriesColor(0)),
  })),
]

// The parts of a step in chronological order.
export const parts: { column: string; label: string }[] = [
  { column: 'data', label: 'wait for data' }, { column: 'forward', label: 'forward' }, { column: 'backward', label: 'backward' },
  { column: 'communication', label: 'wait for gradients' }, { column: 'optimizer', label: 'optimizer' },
]

export const columnsOf = (): string[] => [...new Set([...panels.flatMap(p => p.columns), ...parts.map(p => p.column),
  'step', 'exchange', 'decided_step', 'useful', 'equal_step', 'equal_step_low', 'equal_step_high'])]

export function contentOf(p: Panel, f: Figures, v: View): Content {
  return { steps: f.steps, times: f.times, width: f.width, unit: p.rate ? unitOf(v).name + '/s' : undefined,
    series: p.series(f, v).map(s => ({ ...s, rate: p.rate })), marks: p.marks?.(v).filter(m => m.step >= f.from && m.step <= f.to) }
}

export { partColor, percent }
