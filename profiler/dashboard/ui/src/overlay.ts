// The lines of several runs in one chart.

import { band } from './api'
import type { Figures, Line, View } from './api'
import type { Content, Series } from './chart'
import { figure } from './format'
import type { Maybe } from './format'
import { find, unitOf } from './panels'
import type { Panel } from './panels'
import { seriesColor, seriesDash } from './theme'

// Compared is a run of a comparison.
export type Compared = { label: string; index: number; view: View; figures: Figures } // index of its colour

const mostLines = 8 // ranks of all runs with one line per rank
const mostBands = 3 // runs with bands from the smallest to the largest value
const mostPlaces = 1200 // points on the common axis: more than pixels

// join aligns the lines of several runs on one axis. On an axis with too many points, join moves a point to the next
// remaining place. It omits points whose place is unknown.
export function join(runs: { at: Maybe[]; values: Maybe[] }[], most =
  mostPlaces): { at: number[]; values: Maybe[][] } {
  const all = [...new Set(runs.flatMap(r => r.at.filter(known)))].sort((a, b) => a - b)
  const every = Math.max(1, Math.ceil(all.length / most))
  const at = all.filter((_, i) => (all.length - 1 - i) % every === 0) // includes the last point
  return {
    at, values: runs.map(r => {
      const values: Maybe[] = at.map(() => null)
      let place = 0
      r.at.forEach((x, i) => {
        if (!known(x)) return
        while (place < at.length - 1 && (at[place] ?? 0) < x) place++
        const v = r.values[i]
        if (v !== null && v !== undefined) values[place] = v
      })
      return values
    }),
  }
}

const known = (v: Maybe): v is number => v !== null && v !== undefined

// condense replaces the lines of ranks by their median, with a band over ranks.
export function condense(f: Figures): Figures {
  const columns = [...new Set(f.lines.filter(l => l.rank >= 0).map(l => l.column))]
  const medians = columns.map((column): Line => {
    const of = f.lines.filter(l => l.column === column && l.rank >= 0)
    const sorted = f.steps.map((_, i) => of.map(l => l.mean[i]).filter(known).sort((a, b) => a - b))
    return {
      column, unit: of[0]?.unit ?? '', rank: band, mean: sorted.map(v =>
        (v.length ? ((v[(v.length - 1) >> 1] ?? 0) + (v[v.length >> 1] ?? 0)) / 2 : null)),
      min: sorted.map(v => v[0] ?? null), max: sorted.map(v => v.at(-1) ?? null),
    }
  })
  return { ...f, lines: [...f.lines.filter(l => l.rank < 0), ...medians] }
}

// prepare returns the runs in the form that a comparison shows. If there are many lines, each run shows the median of
// its ranks, unless the reader has chosen ranks. All throughputs have the same unit.
export function prepare(runs: Compared[], ranks: number[] | null): Compared[] {
  const lines = runs.reduce((n, r) => n + Math.max(1, r.view.ranks.length), 0)
  const mixed = new Set(runs.map(r => unitOf(r.view).name)).size > 1
  return runs.map(r => ({
    ...r, figures: ranks === null && lines > mostLines ? condense(r.figures) : r.figures,
    view: mixed ? { ...r.view, starts: null } : r.view,
  }))
}

const dashes = [undefined, [8, 4], [2, 3], [12, 3, 2, 3]]

// Overlay is one chart of a comparison.
export type Overlay = { id: string; title: string; content: Content }

// overlay returns the charts of a panel: usually one chart with all lines, or one chart per line if the panel is split.
// A run has the same colour in all charts.
export function overlay(p: Panel, runs: Compared[], ranks: number[] | null, time: boolean): Overlay[] {
  const lines = runs.map(r => p.series(r.figures, r.view).slice(0, p.overall && ranks === null ? 1 : undefined))
  const names = [...new Set(lines.flatMap(list => list.map(s => s.label)))]
  const groups = p.split ? names.map(n => [n]) : [names]
  const seconds = (f: Figures): Maybe[] => {
    const t = find(f, 'training_time', -1)
    return t?.max ?? t?.mean ?? []
  }
  const at = runs.map(r => (time ? seconds(r.figures) : r.figures.steps))
  return groups.map((group, g) => {
    const chosen = lines.flatMap((list, run) => list.filter(s => group.includes(s.label) &&
      s.values.some(known)).map(s => ({ s, run })))
    const place = (values: (s: Series) => Maybe[] | undefined) =>
      join(chosen.map(({ s, run }) => ({ at: at[run] ?? [], values: values(s) ?? [] })))
    const means = place(s => s.values), low = place(s => s.low), high = place(s => s.high)
    const series = chosen.map(({ s, run }, i): Series => ({
      ...s, note: undefined, label: group.length > 1 ? `${runs[run]?.label}, ${s.label}` : runs[run]?.label ?? '',
      color: seriesColor(runs[run]?.index ?? 0), values: means.values[i] ?? [],
      dash: group.length > 1 ? dashes[names.indexOf(s.label) % dashes.length] : seriesDash(runs[run]?.index ?? 0),
      low: s.low && runs.length <= mostBands ? low.values[i] : undefined, high: s.high &&
        runs.length <= mostBands ? high.values[i] : undefined,
    }))
    const first = runs[0]
    return {
      id: p.split ? `${p.id}-${g}` : p.id, title: p.split ? `${p.title}: ${group[0]}` : p.title,
      content: {
        steps: means.at, times: [], width: Math.max(1, ...runs.map(r => r.figures.width)), series: series.map(s => ({ ...s, rate: p.rate })), unit: p.rate &&
          first ? unitOf(first.view).name + '/s' : undefined,
        axis: time ? { label: 'training time (s)', format: v => figure(v, 4) } : undefined,
      },
    }
  })
}
