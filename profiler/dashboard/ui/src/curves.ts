// Step-time curves. They explain the balancer: for each rank, the fitted curve, the measured times, and the current share.

import uPlot from 'uplot'
import type { Curve, View } from './api'
import { axisFont, axisSize, legend } from './chart'
import { h, save } from './dom'
import { count, figure, tick } from './format'
import type { Maybe } from './format'
import { color, seriesColor } from './theme'

const mostRanks = 8

// align joins the points of several curves on one axis of samples.
export function align(curves: Curve[], shares: number[]): { x: number[]; fitted: Maybe[][]; measured: Maybe[][]; chosen: Maybe[][] } {
  const xs = new Set<number>()
  for (const c of curves) {
    for (const p of c.fitted ?? []) xs.add(p.samples)
    for (const s of c.shares) xs.add(s.samples)
    const share = shares[c.rank]
    if (share) xs.add(share)
  }
  const x = [...xs].sort((a, b) => a - b)
  const place = (entries: [number, number][]): Maybe[] => {
    const known = new Map(entries)
    return x.map(v => known.get(v) ?? null)
  }
  return {
    x,
    fitted: curves.map(c => place((c.fitted ?? []).map(p => [p.samples, 1000 * p.seconds]))),
    measured: curves.map(c => place(c.shares.map(s => [s.samples, 1000 * s.mean]))),
    chosen: curves.map(c => {
      const share = shares[c.rank]
      if (!share) return x.map(() => null)
      const at = timeAt(c, share)
      return place(at === null ? [] : [[share, 1000 * at]])
    }),
  }
}

// timeAt returns the time of a share in s: from the fitted curve, or from the measured means if there is no curve.
export function timeAt(c: Curve, samples: number): number | null {
  const points = c.fitted ?? []
  const next = points.findIndex(p => p.samples >= samples)
  const b = points[next], a = points[next - 1]
  if (b && (b.samples === samples || !a)) return b.seconds
  if (a && b) return a.seconds + ((b.seconds - a.seconds) * (samples - a.samples)) / (b.samples - a.samples)
  return c.shares.find(s => s.samples === samples)?.mean ?? points.at(-1)?.seconds ?? null
}

// spread returns at most mostRanks curves, in the order of ranks. If there are more, it selects curves evenly from the
// fastest to the slowest rank.
export function spread(curves: Curve[]): Curve[] {
  if (curves.length <= mostRanks) return curves
  const measured = curves.flatMap(c => c.shares.map(s => s.samples)).sort((a, b) => a - b)
  const share = measured[measured.length >> 1] ?? 1 // the median of the measured shares
  const sorted = [...curves].sort((a, b) => (timeAt(a, share) ?? 0) - (timeAt(b, share) ?? 0))
  const chosen = Array.from({ length: mostRanks }, (_, i) =>
    sorted[Math.round((i * (sorted.length - 1)) / (mostRanks - 1))])
  return curves.filter(c => chosen.includes(c))
}

export class Curves {
  readonly element: HTMLElement
  private readonly place = h('div', { class: 'plot' })
  private plot: uPlot | null = null
  private shown = ''

  constructor() {
    this.element = h('section', { class: 'panel row', id: 'curves', 'aria-labelledby': 'curves-title' },
      h('header', {}, h('h2', { id: 'curves-title' }, h('a', { href: '#curves' }, 'Step-time curves'), h('span', { class: 'unit' }, ' ms by samples')),
        h('div', { class: 'tools' }, h('button', { type: 'button', 'aria-label': 'PNG of step-time curves', click: () => this.save() }, 'PNG'))),
      h('p', { class: 'explain' },
        'Compute time of each rank as a function of its share. Line: curve that the balancer fitted. Small points: means of measured steps. Large points: current shares. The shares are balanced when all large points are at the same height. Of many ranks, eight are shown, from the fastest to the slowest.'),
      this.place)
    new ResizeObserver(() => this.plot && this.plot.setSize({ width: this.width(), height: 300 })).observe(this.place)
  }

  private width(): number {
    return Math.max(240, this.place.clientWidth || 600)
  }

  private save(): void {
    this.plot?.ctx.canvas.toBlob(blob => blob && save('curves.png', blob))
  }

  set(v: View): void {
    const curves = spread(v.curves.filter(c => (c.fitted?.length ?? 0) > 0 || c.shares.length > 0))
    const shares = v.ranks.map(r => r.record?.batch_size ?? 0)
    const shown = JSON.stringify([curves, shares, document.documentElement.dataset.theme, color('text')])
    this.element.hidden = curves.length === 0
    if (shown === this.shown || curves.length === 0) return
    this.shown = shown
    this.plot?.destroy()
    const { x, fitted, measured, chosen } = align(curves, shares)
    const series: uPlot.Series[] = [{ label: 'samples', value: (_, v) => (v === null || v === undefined ? '–' : String(v)) }]
    const data: Maybe[][] = [x]
    const value = (_: uPlot, t: number | null) => (t === null || t === undefined ? '–' : figure(t, 4) + ' ms')
    curves.forEach((c, i) => {
      const stroke = seriesColor(c.rank)
      series.push({ label: `rank ${c.rank} curve`, stroke, width: 1.5, spanGaps: true, points: { show: false }, value })
      series.push({ label: `rank ${c.rank} measured`, stroke, width: 0, paths: () => null, class: 'dot', points: { show: true, size: 5, fill: stroke }, value })
      series.push({ label: `rank ${c.rank} current share`, stroke, width: 0, paths: () => null, class: 'ring', points: { show: true, size: 11 + 5 * (i % 3), width: 2, fill: 'transparent' }, value }) // different sizes, so that rings at the same place stay visible
      data.push(fitted[i] ?? [], measured[i] ?? [], chosen[i] ?? [])
    })
    const axis = (more: uPlot.Axis): uPlot.Axis => ({ stroke: color('text'), font: axisFont, grid: { stroke: color('grid'), width: 1 }, ticks: { stroke: color('grid'), width: 1 }, ...more })
    this.plot = new uPlot({
      width: this.width(), height: 300, series, scales: { x: { time: false, range: (_, a, b) => [0, Math.max(b, a + 1) * 1.04] }, y: { range: (_, __, b) => [0, b * 1.1 || 1] } },
      axes: [axis({ label: 'samples', values: (_, values) => values.map(count), size: 30, labelFont: axisFont,
        labelSize: 16, labelGap: 0 }), axis({ size: axisSize, values: (_, values) =>
        values.map(t => (t === null ? '' : tick(t))) })], cursor: { drag: { x: false, y: false } }, legend,
    }, data as uPlot.AlignedData, this.place)
  }
}
