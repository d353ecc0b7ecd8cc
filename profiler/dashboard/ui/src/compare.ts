// Several runs on one page: each chart shows one figure of all runs.

import * as api from './api'
import type { Figures, Range } from './api'
import { Chart } from './chart'
import type { Series } from './chart'
import { fill, h } from './dom'
import { figure } from './format'
import type { Maybe } from './format'
import { link } from './list'
import { find } from './panels'
import { seriesColor, seriesDash } from './theme'

const charts: { id: string; title: string; unit: string; explain: string; column: string; factor: number; zero?: boolean; top?: number }[] = [
  { id: 'loss', title: 'Loss', unit: '', explain: 'Training loss of each run.', column: 'loss', factor: 1 },
  { id: 'throughput', title: 'Throughput', unit: 'samples/s', explain: 'Samples per second of all ranks together.', column: 'total_throughput', factor: 1, zero: true },
  { id: 'oracle', title: 'Fraction of the oracle', unit: '%', explain: 'Step time with the best shares divided by the step time with the actual shares.', column: 'share_of_oracle', factor: 100, top: 100 },
]

const loadPause = 5000 // ms between two loads, which include new steps

// join aligns the lines of several runs on one axis of steps.
export function join(runs: { steps: number[]; values: Maybe[] }[]): { steps: number[]; values: Maybe[][] } {
  const steps = [...new Set(runs.flatMap(r => r.steps))].sort((a, b) => a - b)
  return {
    steps, values: runs.map(r => {
      const known = new Map(r.steps.map((s, i) => [s, r.values[i]]))
      return steps.map(s => known.get(s) ?? null)
    }),
  }
}

// problems returns a sentence for each run that could not be loaded.
export function problems(names: string[], settled: PromiseSettledResult<unknown>[]): string[] {
  return settled.flatMap((s, i) => (s.status === 'rejected' ? [`${names[i]}: ${s.reason instanceof Error ? s.reason.message : String(s.reason)}`] : []))
}

export class ComparePage {
  readonly element = h('main', { class: 'run' })
  private readonly problems = h('div', { role: 'status' })
  private readonly charts: Chart[]
  private readonly grid: HTMLElement
  private range: Range = { from: 1, to: 0 }
  private timer = 0
  private running: AbortController | null = null

  constructor(private readonly names: string[]) {
    this.charts = charts.map(c => new Chart({ ...c, format: v => figure(v, 4), zoom: (from, to) => this.zoom({ from, to }), reset: () => this.zoom({ from: 1, to: 0 }) }))
    this.grid = h('div', { class: 'grid' }, ...this.charts.map(c => c.element))
    this.element.append(h('p', { class: 'back' }, h('a', { href: '/' }, '← Runs')), h('h1', {}, 'Comparison'),
      h('ul', {}, ...names.map(n => h('li', {}, h('a', { href: link(n) }, n)))), this.problems, this.grid)
    void this.load()
    this.timer = window.setInterval(() => { if (!this.running) void this.load() }, loadPause)
    addEventListener('pagehide', this.abort)
  }

  // abort ends the load in progress, also when the user leaves the page.
  private readonly abort = (): void => {
    this.running?.abort()
    this.running = null
  }

  close(): void {
    clearInterval(this.timer)
    removeEventListener('pagehide', this.abort)
    this.abort()
    for (const c of this.charts) c.drop()
  }

  redraw(): void {
    void this.load()
  }

  private zoom(range: Range): void {
    this.range = range
    void this.load()
  }

  private async load(): Promise<void> {
    this.abort() // an older response must not replace a newer one
    const control = new AbortController()
    this.running = control
    const settled = await Promise.allSettled(this.names.map(n => api.figures(n, charts.map(c => c.column), this.range, 600, null, control.signal)))
    if (control.signal.aborted) return
    this.running = null
    fill(this.problems, ...problems(this.names, settled).map(text => h('p', { class: 'problem' }, text)))
    this.grid.hidden = settled.every(s => s.status === 'rejected')
    const loaded = settled.map(s => (s.status === 'fulfilled' ? s.value : null))
    charts.forEach((c, k) => {
      const known = loaded.map((f: Figures | null) => {
        const l = f ? find(f, c.column, api.allRanks) : undefined
        return { steps: f?.steps ?? [], values: (l?.mean ?? []).map(x => (x === null || x === undefined ? null : x * c.factor)) }
      })
      const { steps, values } = join(known)
      const series: Series[] = this.names.map((n, i) => ({ label: n, color: seriesColor(i), dash: seriesDash(i), values: values[i] ?? [] }))
      this.charts[k]?.set({ steps, times: [], width: 1, series })
    })
  }
}
