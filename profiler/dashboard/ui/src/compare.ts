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
const followed = 8 // runs that the server keeps open; it reads the records of others again at each load
const manyPause = 60000 // ms between two loads of more runs than followed
const atOnce = 4 // runs that are loaded at a time: fewer than the server keeps open

// address returns the address of a comparison. The names are in the fragment, which a browser does not send: with the names of some
// hundred runs, a request would be longer than servers accept.
export function address(names: string[]): string {
  return './#compare=' + names.map(encodeURIComponent).join(',')
}

// compared returns the names in an address: none if the address is not that of a comparison. Older bookmarks have the names in the query.
export function compared(at: { hash: string; search: string }): string[] {
  const names = /^#compare=(.*)/.exec(at.hash) ?? /[?&]compare=([^&]*)/.exec(at.search)
  return (names?.[1] ?? '').split(',').filter(Boolean).map(decode)
}

// decode returns a name of an address. A user may have typed it, with % as itself.
function decode(name: string): string {
  try {
    return decodeURIComponent(name)
  } catch {
    return name
  }
}

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

// own are settings that differ between runs without an effect on the results. A name that ends in a dot stands for a table.
const own = ['experiment.name', 'experiment.output_dir', 'experiment.log_dir', 'parallel.master_addr', 'parallel.master_port', 'parallel.token_file',
  'train.resume', 'profile.gpu_profiles', 'notify.', 'tracking.', 'dashboard.', 'metrics.']

// settings parses the settings of a run as the program writes them: each key has a line.
export function settings(toml: string): Map<string, string> {
  const found = new Map<string, string>()
  let table = ''
  for (const line of toml.split('\n')) {
    const head = /^\[([^[\]]+)\]$/.exec(line), pair = /^([A-Za-z0-9_]+) = (.*)$/.exec(line)
    if (head?.[1]) table = head[1] + '.'
    else if (pair?.[1]) found.set(table + pair[1], (pair[2] ?? '').replace(/^"(.*)"$/, '$1'))
  }
  return found
}

// labels returns the names of runs with their values of up to three settings that differ. A run without known settings has its name alone.
export function labels(names: string[], known: (Map<string, string> | null)[]): string[] {
  const sets = known.filter(m => m !== null)
  const keys = [...new Set(sets.flatMap(m => [...m.keys()]))].sort()
    .filter(k => !own.some(o => k === o || (o.endsWith('.') && k.startsWith(o))) && new Set(sets.map(m => m.get(k))).size > 1)
  const leaf = (key: string) => {
    const name = key.slice(key.lastIndexOf('.') + 1)
    return keys.some(k => k !== key && k.endsWith('.' + name)) ? key : name
  }
  return names.map((n, i) => {
    const values = keys.flatMap(k => { const v = known[i]?.get(k); return v === undefined ? [] : [`${leaf(k)}=${v || '""'}`] })
    if (values.length > 3) values.splice(3, values.length, '…')
    return values.length ? `${n} (${values.join(', ')})` : n
  })
}

// some calls load for each name, a few at a time.
export async function some<T>(names: string[], load: (name: string) => Promise<T>): Promise<PromiseSettledResult<T>[]> {
  const out: PromiseSettledResult<T>[] = []
  let next = 0
  await Promise.all(Array.from({ length: Math.min(atOnce, names.length) }, async () => {
    for (let i = next++; i < names.length; i = next++) [out[i]] = await Promise.allSettled([load(names[i] ?? '')]) as [PromiseSettledResult<T>]
  }))
  return out
}

export class ComparePage {
  readonly element = h('main', { class: 'run' })
  private readonly list = h('ul', {})
  private readonly problems = h('div', { role: 'status' })
  private readonly charts: Chart[]
  private readonly grid: HTMLElement
  private range: Range = { from: 1, to: 0 }
  private timer = 0
  private running: AbortController | null = null
  private labels: string[]

  constructor(private readonly names: string[]) {
    this.charts = charts.map(c => new Chart({ ...c, format: v => figure(v, 4), zoom: (from, to) => this.zoom({ from, to }), reset: () => this.zoom({ from: 1, to: 0 }) }))
    this.grid = h('div', { class: 'grid' }, ...this.charts.map(c => c.element))
    this.element.append(h('p', { class: 'back' }, h('a', { href: './' }, '← Runs')), h('h1', {}, 'Comparison'),
      this.list, this.problems, this.grid)
    this.labels = names
    this.showList()
    void this.load().then(() => this.nameSettings())
    this.timer = window.setInterval(() => { if (!this.running) void this.load() }, names.length > followed ? manyPause : loadPause)
    addEventListener('pagehide', this.abort)
  }

  private showList(): void {
    fill(this.list, ...this.names.map((n, i) => h('li', {}, h('a', { href: link(n) }, this.labels[i] ?? n))))
  }

  // nameSettings adds the settings that differ to the legends. They do not change while a run trains.
  private async nameSettings(): Promise<void> {
    const settled = await some(this.names, n => api.config(n))
    this.labels = labels(this.names, settled.map(s => (s.status === 'fulfilled' ? settings(s.value) : null)))
    this.showList()
    void this.load()
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
    const settled = await some(this.names, n => api.figures(n, charts.map(c => c.column), this.range, 600, null, control.signal))
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
      const series: Series[] = this.names.map((n, i) => ({ label: this.labels[i] ?? n, color: seriesColor(i), dash: seriesDash(i), values: values[i] ?? [] }))
      this.charts[k]?.set({ steps, times: [], width: 1, series })
    })
  }
}
