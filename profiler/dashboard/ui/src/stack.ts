// Step time by rank as stacked bars: means over the selected steps.

import { band } from './api'
import type { Figures, Line } from './api'
import { h, table } from './dom'
import { inMilliseconds, milliseconds } from './format'
import type { Maybe } from './format'
import { parts } from './panels'
import { partColor } from './theme'

export type Bar = { label: string; seconds: number[] } // one number for each part

// mean weights all points equally, because all points except the last cover the same number of steps.
export function mean(values: Maybe[]): number {
  const known = values.filter((v): v is number => v !== null && v !== undefined)
  return known.length ? known.reduce((a, b) => a + b, 0) / known.length : 0
}

export function bars(f: Figures): Bar[] {
  const of = (column: string, rank: number): Line | undefined => f.lines.find(l => l.column === column && l.rank === rank)
  const ranks = [...new Set(f.lines.filter(l => l.column === 'forward' && l.mean.some(v => v !== null && v !== undefined)).map(l => l.rank))]
  return ranks.map(rank => ({
    label: rank === band ? 'median of ranks' : `rank ${rank}`,
    seconds: parts.map(p => mean(of(p.column, rank)?.mean ?? [])),
  }))
}

export function stack(f: Figures): HTMLElement {
  const all = bars(f)
  const longest = Math.max(...all.map(b => b.seconds.reduce((a, x) => a + x, 0)), 1e-12)
  const rows = all.map(b => {
    const total = b.seconds.reduce((a, x) => a + x, 0)
    return h('div', { class: 'bar-row' },
      h('span', { class: 'bar-label' }, b.label),
      h('div', { class: 'bar' }, ...b.seconds.map((s, i) => {
        const part = h('span', { class: 'part', title: `${parts[i]?.label}: ${milliseconds(s)} (${Math.round((100 * s) / (total || 1))} % of the step)` })
        part.style.width = `${(100 * s) / longest}%`
        part.style.backgroundColor = partColor(parts[i]?.column ?? '')
        return part
      })),
      h('span', { class: 'bar-total' }, milliseconds(total)))
  })
  const key = h('ul', { class: 'key' }, ...parts.map(p => {
    const swatch = h('span', { class: 'swatch' })
    swatch.style.backgroundColor = partColor(p.column)
    return h('li', {}, swatch, p.label)
  }))
  return h('div', {}, h('div', { 'aria-hidden': 'true' }, ...rows, key),
    h('details', {}, h('summary', {}, 'Numbers'), table('Parts of a step by rank', [
      { title: 'rank', of: (b: Bar) => b.label },
      ...parts.map((p, i) => ({ title: p.label, unit: 'ms', numeric: true, of: (b: Bar) => inMilliseconds(b.seconds[i]) })),
      { title: 'step', unit: 'ms', numeric: true, of: (b: Bar) => inMilliseconds(b.seconds.reduce((a, x) => a + x, 0)) },
    ], all)))
}

// waits returns a sentence that compares the longest wait for gradients with the shortest one.
export function waits(f: Figures): string {
  const all = bars(f)
  if (all.length < 2) return ''
  const wait = parts.findIndex(p => p.column === 'communication')
  const sorted = [...all].sort((a, b) => (a.seconds[wait] ?? 0) - (b.seconds[wait] ?? 0))
  const first = sorted[0], last = sorted.at(-1)
  if (!first || !last) return ''
  const difference = (last.seconds[wait] ?? 0) - (first.seconds[wait] ?? 0)
  const total = last.seconds.reduce((a, x) => a + x, 0)
  if (difference < 0.03 * total) return 'No rank waits noticeably longer than the others.'
  return `${last.label[0]?.toUpperCase()}${last.label.slice(1)} waits ${milliseconds(difference)} per step (${Math.round((100 * difference) / total)} %) longer than ${first.label}, the slowest rank.`
}
