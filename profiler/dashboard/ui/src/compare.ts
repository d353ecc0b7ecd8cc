// Several runs on one page: their settings and results in the tables of `analyze --compare`, and each chart of a run.

import * as api from './api'
import type { Comparison, Figures, View } from './api'
import { Chart } from './chart'
import { Controls, read, write } from './choice'
import type { Choice } from './choice'
import { fill, h, table } from './dom'
import { account, accounts, unaccounted } from './first'
import { link, stateBadge } from './list'
import { overlay, prepare } from './overlay'
import type { Compared } from './overlay'
import { Paced } from './paced'
import { columnsOf, panels } from './panels'
import { seriesColor, seriesDash } from './theme'

const loadPause = 5000 // ms between two loads, which include new steps
const followed = 8 // runs that the server keeps open; it reads the records of other runs again at each load
const manyPause = 60000 // ms between two loads of more runs than followed, and the shortest time between two loads of the tables
const atOnce = 4 // runs that are loaded at a time: fewer than the server keeps open
const mostPoints = 20000 // of a line of all runs together
const mostColumns = 8 // runs in a table with one column per run; with more runs, a table has one row per run

// address returns the address of a comparison. The names are in the fragment, which a browser does not send to the
// server. With hundreds of names, a request would be longer than servers accept.
export function address(names: string[], choice?: Choice): string {
  const query = new URLSearchParams()
  if (choice) write(choice, query)
  return './#compare=' + names.map(encodeURIComponent).join(',') + (query.size ? '&' + query : '')
}

// compared returns the names in an address: none if the address is not that of a comparison. Older bookmarks have the
// names in the query.
export function compared(at: { hash: string; search: string }): string[] {
  const names = /^#compare=([^&]*)/.exec(at.hash) ?? /[?&]compare=([^&]*)/.exec(at.search)
  return (names?.[1] ?? '').split(',').filter(Boolean).map(decode)
}

// chosen returns the choice in the address of a comparison.
export const chosen = (hash: string): Choice => read(new URLSearchParams(/^#compare=[^&]*&(.*)/.exec(hash)?.[1] ?? ''))

// decode returns a name in an address. A user may have typed the name, with an unescaped %.
function decode(name: string): string {
  try {
    return decodeURIComponent(name)
  } catch {
    return name
  }
}

// problems returns a sentence for each run that could not be loaded.
export function problems(names: string[], settled: PromiseSettledResult<unknown>[]): string[] {
  return settled.flatMap((s, i) => (s.status === 'rejected' ? [
    `${names[i]}: ${s.reason instanceof Error ? s.reason.message : String(s.reason)}`] : []))
}

// some calls load for each name, for at most atOnce names at the same time.
export async function some<T>(names: string[], load: (name: string) => Promise<T>): Promise<PromiseSettledResult<T>[]> {
  const out: PromiseSettledResult<T>[] = []
  let next = 0
  await Promise.all(Array.from({ length: Math.min(atOnce, names.length) }, async () => {
    for (let i = next++; i < names.length; i = next++) [out[i]] =
      await Promise.allSettled([load(names[i] ?? '')]) as [PromiseSettledResult<T>]
  }))
  return out
}

// texts returns a table of the server with one column per run, or with one row per run if there are many runs.
export function texts(caption: string, rows: string[][], labels: string[]): HTMLElement {
  if (labels.length <= mostColumns) {
    return table(caption, [{ title: '', of: (r: string[]) => r[0] },
      ...labels.map((l, i) => ({ title: l, numeric: true, of: (r: string[]) => r[i + 1] }))], rows)
  }
  const differ = rows.filter(r => new Set(r.slice(1)).size > 1)
  return table(caption, [{ title: 'run', of: (i: number) => labels[i] },
    ...differ.map(r => ({ title: r[0] ?? '', numeric: true, of: (i: number) => r[i + 1] }))], labels.map((_, i) => i))
}

type Loaded = { view: View; figures: Figures }

export class ComparePage {
  readonly element = h('main', { class: 'run' })
  private readonly list = h('ul', { class: 'runs' })
  private readonly problems = h('div', { role: 'status' })
  private readonly tables = h('div', {}, h('p', { class: 'explain' }, 'Reading the records for the tables…'))
  private readonly bars = h('div', {})
  private readonly charts = new Map<string, Chart>()
  private readonly grid = h('div', { class: 'grid' })
  // shown if no chart has values
  private readonly none = h('p', { class: 'problem', hidden: true }, 'No values in this range of steps.')
  private readonly body = h('div', { hidden: true })
  private readonly controls: Controls
  private readonly loaded = new Map<string, Loaded>()
  private running: AbortController | null = null
  private timer = 0
  private comparison: Comparison | null = null
  private readonly tabling = new Paced(signal => this.loadTables(signal), manyPause)
  private closed = false

  constructor(private readonly names: string[]) {
    document.title = 'Comparison of runs'
    this.controls = new Controls(chosen(location.hash), 'training time', () =>
      Math.max(...[...this.loaded.values()].map(r => r.view.last), 1),
      () => this.reload(), () => { this.remember(); this.show() })
    this.body.append(h('section', { class: 'panel wide', id: 'accounts', 'aria-labelledby': 'accounts-title' },
      h('header', {}, h('h2', { id: 'accounts-title' }, 'Where the time of a step goes')), this.bars),
        this.controls.element, this.none, this.grid)
    this.element.append(h('p', { class: 'back' }, h('a', { href: './' }, '← Runs')), h('h1', {}, 'Comparison'),
      this.list, this.problems, this.tables, this.body)
    this.showList()
    void this.load()
    this.tabling.want()
    this.timer = window.setInterval(() => {
      if (!this.running && this.changing()) void this.load()
      this.tabling.tick()
    }, names.length > followed ? manyPause : loadPause)
    addEventListener('pagehide', this.leave)
  }

  // changing reports whether a run may have new records.
  private changing(): boolean {
    return this.names.some(n => { const kind = this.loaded.get(n)?.view.state.kind; return kind === undefined ||
      kind === 'running' || kind === 'unknown' })
  }

  private label(name: string): string {
    const i = this.comparison?.compared.indexOf(name) ?? -1
    return this.comparison?.labels[i] ?? name
  }

  private showList(): void {
    const items = this.names.map((n, i) => {
      const swatch = h('span', { class: 'line', 'aria-hidden': 'true' }), kind = this.loaded.get(n)?.view.state.kind
      swatch.style.borderTopColor = seriesColor(i)
      swatch.style.borderTopStyle = seriesDash(i) ? 'dashed' : 'solid'
      const label = this.label(n)
      return h('li', {}, swatch, label === n ? '' : label + ' ', h('a', { href: link(n) }, n), ' ', kind &&
        stateBadge(kind))
    })
    fill(this.list, ...items)
  }

  // loadTables loads the tables: the server reads all records, which takes long for a long run.
  private async loadTables(signal: AbortSignal): Promise<void> {
    try {
      const comparison = await api.compare(this.names, signal)
      if (signal.aborted) return
      this.comparison = comparison
      this.showTables(comparison)
    } catch (error) {
      if (signal.aborted) return
      fill(this.tables, h('p', { class: 'problem' },
        `The tables cannot be shown: ${error instanceof Error ? error.message : String(error)}`))
    }
  }

  private showTables(c: Comparison): void {
    const labels = c.compared.map(n => this.label(n))
    const notes = h('details', { class: 'notes-of', ...(c.notes.length <= 3 ? { open: true } : {}) },
      h('summary', {}, `Notes (${c.notes.length})`), ...c.notes.map(n => h('p', { class: 'explain' }, n)))
    const faults = [...Object.entries(c.failed).map(([n, why]) => `${n}: ${why}`), ...(c.why ? [c.why] : [])]
    const section = (id: string, title: string, content: HTMLElement) =>
      h('section', { class: 'panel wide', id, 'aria-labelledby': id + '-title' },
        h('header', {}, h('h2', { id: id + '-title' }, title)), content)
    fill(this.tables, ...faults.map(n => h('p', { class: 'problem' }, n)), c.notes.length > 0 && notes,
      h('div', { class: labels.length <= mostColumns ? 'pair whole' : '' }, c.results.length > 0 &&
        section('results', 'Results', texts('Results', c.results, labels)),
      c.why === '' && section('differences', 'Settings that differ',
        c.settings.length ? texts('Settings that differ', c.settings, labels) : h('p', {}, 'No setting differs.'))))
    this.showList()
    this.show()
  }

  // abort ends the load of charts in progress.
  private abort(): void {
    this.running?.abort()
    this.running = null
  }

  // leave ends all loads when the user leaves the page.
  private readonly leave = (): void => {
    this.abort()
    this.tabling.abort()
  }

  close(): void {
    this.closed = true
    clearInterval(this.timer)
    removeEventListener('pagehide', this.leave)
    this.leave()
    for (const c of this.charts.values()) c.drop()
  }

  redraw(): void {
    this.showList()
    this.show()
  }

  private remember(): void {
    history.replaceState(null, '', address(this.names, this.controls.choice))
  }

  private reload(): void {
    this.remember()
    this.loaded.clear()
    void this.load()
  }

  private async load(): Promise<void> {
    this.abort() // an older response must not replace a newer one
    const control = new AbortController(), { range, ranks } = this.controls.choice
    this.running = control
    const points = Math.max(50, Math.min(600, Math.floor(mostPoints / this.names.length)))
    const changing = this.names.filter(n => !this.loaded.has(n) || this.loaded.get(n)?.view.state.kind === 'running')
    const settled = await some(changing, async n => {
      const view = await api.view(n, control.signal, true)
      return { view, figures: await api.figures(n, [...columnsOf(), 'training_time'], range, points, ranks,
        control.signal) }
    })
    if (control.signal.aborted || this.closed) return
    this.running = null
    const first = this.loaded.size === 0 // the first load of the tables has already begun
    settled.forEach((s, i) => { if (s.status === 'fulfilled') this.loaded.set(changing[i] ?? '', s.value) })
    fill(this.problems, ...problems(changing, settled).map(text => h('p', { class: 'problem' }, text)))
    this.controls.show()
    this.showList()
    this.show()
    if (!first && settled.some(s => s.status === 'fulfilled')) this.tabling.want()
  }

  private show(): void {
    this.body.hidden = this.loaded.size === 0
    const { ranks, time } = this.controls.choice
    const runs = this.names.flatMap((n, index): Compared[] => {
      const r = this.loaded.get(n)
      return r ? [{ label: this.label(n), index, ...r }] : []
    })
    this.showAccounts(runs)
    const ready = prepare(runs, ranks)
    const shown = new Set<string>()
    for (const p of panels) {
      for (const o of overlay(p, ready, ranks, time)) {
        if (!o.content.series.some(s => s.values.some(v => v !== null && v !== undefined))) continue
        shown.add(o.id)
        let chart = this.charts.get(o.id)
        if (!chart) {
          chart = new Chart({ ...p, id: o.id, title: o.title, explain: p.split ?? p.explain, plain: true,
            zoom: (from, to) => this.controls.zoom({ from, to }), reset: () => this.controls.zoom({ from: 1, to: 0 }) })
          this.charts.set(o.id, chart)
          this.grid.append(chart.element)
        }
        chart.set(o.content)
      }
    }
    for (const [id, chart] of this.charts) chart.element.hidden = !shown.has(id)
    this.none.hidden = shown.size > 0
  }

  // showAccounts shows the parts of a step of each run, on one scale.
  private showAccounts(runs: Compared[]): void {
    const all = runs.flatMap(r => { const a = account(r.view, r.figures); return a ? [{ label: r.label, a }] : [] })
    this.bars.className = runs.length > mostColumns ? 'scroll' : ''
    fill(this.bars, all.length > 0 && accounts(all),
      ...unaccounted(runs).map(text => h('p', { class: 'explain' }, text)))
  }
}
