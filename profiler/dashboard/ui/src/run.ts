// The page of one run.

import * as api from './api'
import type { Figures, View } from './api'
import { Chart } from './chart'
import { Controls, read, write } from './choice'
import { communication } from './communication'
import { Curves } from './curves'
import { fill, h } from './dom'
import * as first from './first'
import { clock, count, duration, figure, percent } from './format'
import type { Maybe } from './format'
import { Freshness } from './freshness'
import { stateBadge } from './list'
import { columnsOf, contentOf, panels, unitOf } from './panels'
import { stack, waits } from './stack'
import * as tables from './tables'

const points = 600 // of each line; about one per pixel of a chart of usual width

export class RunPage {
  readonly element = h('main', { class: 'run' })
  private readonly head = h('div', { class: 'head' })
  private readonly facts = h('dl', { class: 'facts' })
  private readonly lead = h('p', { class: 'lead', hidden: true }) // until the run has an account
  private readonly speed: Chart
  private readonly first: HTMLElement
  private readonly problems = h('div', { role: 'status' })
  private readonly body = h('div', { hidden: true }) // until the run is loaded
  private readonly steps = h('div', {}) // the charts over steps; hidden while the run has none
  private readonly charts = new Map<string, Chart>()
  private readonly curves = new Curves()
  private readonly controls: Controls
  private readonly sections = new Map<string, HTMLElement>()
  private view: View | null = null
  private figures: Figures | null = null
  private stop: () => void = () => {}
  private running: AbortController | null = null
  private readonly freshness = new Freshness()
  private closed = false
  private shownProblems = ''

  constructor(private readonly name: string, private readonly minimum: () => number) {
    this.controls = new Controls(read(new URLSearchParams(location.search)), 'time of day', () => this.view?.last ?? 1,
      () => this.reload(), () => { this.remember(); this.redraw() })
    this.speed = new Chart({
      id: 'speed', title: 'Throughput of all ranks', unit: 'samples/s', zero: true, explain: 'Measured, and with the best shares and with equal shares on the same measured step-time curves. All of them contain communication, noise and pauses.',
      zoom: (from, to) => this.controls.zoom({ from, to }), reset: () => this.controls.zoom({ from: 1, to: 0 }),
    })
    this.first = h('div', { class: 'first' },
      this.section('account', 'Where the time of a step goes', ''), this.speed.element,
      this.section('who', 'Who waits for whom', ''), this.section('decision', 'Newest decision', ''), this.section('next', 'What to do next', ''))
    this.build()
    if (!api.validName(name)) {
      document.title = 'no such run'
      fill(this.problems, h('p', { class: 'problem' }, `“${name.slice(0, 100)}” is not a name of a run: names have at most 64 characters from A-Z a-z 0-9 . _ -, and start with a letter, a digit or _. `, h('a', { href: './' }, 'All runs')))
      return
    }
    fill(this.problems, h('p', { class: 'explain' }, 'Loading the run…'))
    document.addEventListener('visibilitychange', this.shown)
    this.stop = api.follow(name, version => this.changed(version), connected => this.connection(connected), (why, missing) => this.fail(why, missing))
    this.update() // does not wait for the stream
  }

  private readonly shown = (): void => this.update()

  close(): void {
    this.closed = true
    document.removeEventListener('visibilitychange', this.shown)
    this.stop()
    this.running?.abort()
    for (const c of [this.speed, ...this.charts.values()]) c.drop()
  }

  // redraw shows the same values in the colours of the current theme.
  redraw(): void {
    if (this.view && this.figures) this.show(this.view, this.figures)
  }

  private section(id: string, title: string, explain: string): HTMLElement {
    const body = h('div', {})
    const section = h('section', { class: 'panel wide', id, 'aria-labelledby': id + '-title' },
      h('header', {}, h('h2', { id: id + '-title' }, h('a', { href: '#' + id }, title))), explain && h('p', { class: 'explain' }, explain), body)
    this.sections.set(id, body)
    return section
  }

  private build(): void {
    const charts = panels.map(p => {
      const chart = new Chart({ ...p, zoom: (from, to) => this.controls.zoom({ from, to }), reset: () =>
        this.controls.zoom({ from: 1, to: 0 }) })
      this.charts.set(p.id, chart)
      if (p.optional) chart.element.hidden = true
      return chart.element
    })
    fill(this.head, h('h1', {}, this.name))
    this.element.append(h('p', { class: 'back' }, h('a', { href: './' }, '← Runs')), this.head, this.lead,
      this.problems, this.body)
    this.steps.append(this.controls.element, h('div', { class: 'grid' }, ...charts, this.curves.element))
    this.body.append(this.first,
      h('details', { class: 'settings' }, h('summary', {}, 'Settings and totals'), this.facts),
      this.section('now', 'Now', ''),
      this.section('memory', 'Memory of the ranks', 'Planned memory for the largest share of a rank, by purpose, as plan prints it; its limit; and the measured resident memory of the process, which contains all program files: the plan of a rank has a part of those that ranks share. Optional parts are used only if memory remains.'),
      this.steps,
      this.section('stack', 'Step time by rank', 'Mean time of each part of a step, over the selected steps. A rank that waits long for gradients computes faster than another rank, or communication is slow.'),
      this.section('links', 'Communication and compute', 'Exposed and hidden communication time, by rank and by gradient bucket. Traffic and limit of each link.'),
      this.section('verdicts', 'What limits the speed', 'A verdict for each window of 50 steps, with advice. Consecutive equal verdicts are one row.'),
      this.section('alerts', 'Alerts', 'Slow ranks, bottlenecks and skipped steps, newest first.'),
      this.section('changes', 'Decisions', 'Every decision that changed the shares, newest first.'),
      this.section('evaluations', 'Evaluations', ''),
      this.section('hardware', 'Hardware by rank', 'Measured before training, by hetero-train profile or at the start of the run.'))
  }

  private connection(connected: boolean): void {
    document.body.classList.toggle('disconnected', !connected)
    if (!connected) this.freshness.lose()
  }

  private changed(version: number): void {
    this.freshness.announce(version)
    this.update()
  }

  // update reloads the run if the server has a newer version. All changes during a load lead to one further load.
  private update(): void {
    if (!this.freshness.stale || this.running || this.closed || document.hidden) return // a hidden page sends no requests
    void this.load()
  }

  private async load(): Promise<void> {
    const control = new AbortController()
    this.running = control
    const begin = performance.now(), loaded = this.freshness.begin()
    try {
      const [view, figures] = await Promise.all([
        api.view(this.name, control.signal), api.figures(this.name, columnsOf(), this.controls.choice.range, points,
          this.controls.choice.ranks, control.signal)])
      if (!control.signal.aborted && !this.closed) {
        this.show(view, figures)
        loaded(Math.min(view.version, figures.version))
      }
    } catch (error) {
      if (control.signal.aborted || this.closed) return
      loaded(null)
      this.fail(error instanceof Error ? error.message : String(error), error instanceof api.Refusal && error.status === 404)
    }
    if (this.running !== control) return
    // The pause is at least as long as the load, so the page loads for at most half of the time.
    const pause = Math.max(this.minimum(), performance.now() - begin)
    setTimeout(() => {
      if (this.running !== control) return
      this.running = null
      this.update()
    }, pause)
  }

  // fail shows why the page has no values, or only old ones. missing: there is no such run.
  private fail(why: string, missing: boolean): void {
    const problem = (...text: (Node | string)[]) => h('p', { class: 'problem' }, ...text)
    if (!missing) fill(this.problems, problem(`The run cannot be shown: ${why}`))
    else if (this.view) fill(this.problems, problem('The folder of the run no longer exists. The page shows the last values. A new run of this name replaces them. ', h('a', { href: './' }, 'All runs')))
    else {
      document.title = `${this.name}: no such run`
      fill(this.problems, problem(`There is no run “${this.name}”. The page shows the run as soon as its folder exists. `, h('a', { href: './' }, 'All runs')))
    }
  }

  // reload shows other values.
  private reload(): void {
    this.remember()
    this.running?.abort()
    this.running = null
    if (!this.closed) void this.load()
  }

  // remember puts the choice into the address.
  private remember(): void {
    const query = new URLSearchParams({ run: this.name })
    write(this.controls.choice, query)
    history.replaceState(null, '', '?' + query + location.hash)
  }

  private show(v: View, f: Figures): void {
    this.body.hidden = false
    this.steps.hidden = v.last === 0
    if (!this.view) requestAnimationFrame(() => performance.mark('charts')) // for measurements: the next frame shows the run
    this.view = v
    this.figures = f
    document.title = `${v.name}: ${v.state.kind}`
    fill(this.head, h('h1', {}, v.name), stateBadge(v.state.kind), this.progress(v))
    this.showProblems(v)
    fill(this.facts, ...this.factsOf(v, f).flatMap(([name, value]) => [h('div', {}, h('dt', {}, name), h('dd', {}, value))]))
    this.controls.show()
    const put = (id: string, content: HTMLElement | null) => {
      const body = this.sections.get(id)
      if (!body) return
      const section = body.closest('section')
      if (section) section.hidden = content === null
      if (content) fill(body, content)
    }
    const now = this.sections.get('now')?.closest('section')?.querySelector('h2 a')
    if (now) now.textContent = v.state.kind === 'running' ? 'Now' : 'At the end'
    put('now', v.ranks.some(r => r.record) ? tables.now(v) : null)
    put('memory', tables.memory(v))
    this.showFirst(v, f, put)
    for (const p of panels) {
      const chart = this.charts.get(p.id)
      if (!chart) continue
      const content = contentOf(p, f, v)
      if (p.optional) chart.element.hidden = !content.series.some(s => s.values.some(x => x !== null && x !== undefined))
      if (!chart.element.hidden) chart.set(content)
    }
    this.curves.set(v)
    this.showStack(f)
    put('links', communication(v.communication ?? null))
    put('verdicts', v.verdicts?.length ? tables.verdicts(v.verdicts) : null)
    put('alerts', v.alerts?.length ? tables.alerts(v.alerts) : null)
    put('changes', v.changes?.length ? tables.changes(v.changes) : null)
    const titles = new Map((v.starts ?? []).flatMap(s => s.start?.metrics ?? []).map(m => [m.key, m]))
    put('evaluations', v.evals?.length ? tables.evaluations(v.evals, titles) : null)
    put('hardware', v.profiles?.length ? tables.hardware(v.profiles) : null)
    if (this.element.dataset.version === undefined) document.getElementById(location.hash.slice(1))?.scrollIntoView() // a link to a view
    this.element.dataset.version = String(v.version)
    this.element.dataset.step = String(v.last)
  }

  // showFirst shows the first screen. A run without steps has none.
  private showFirst(v: View, f: Figures, put: (id: string, content: HTMLElement | null) => void): void {
    const a = first.account(v, f)
    this.first.hidden = v.last === 0
    const text = a ? first.sentence(v, a, first.gain(f), f) : v.state.kind === 'running' ? '' : [first.failure(v), first.empty(f)].join(' ').trim()
    this.lead.hidden = text === ''
    fill(this.lead, text)
    put('account', a && first.bar(a, v.state.kind === 'running'))
    this.speed.set(first.curve(f, v))
    const shown = first.byDelay(v, tables.select(v.ranks))
    put('who', v.ranks.length > 1 && v.ranks.some(r => r.record) ? h('div', {},
      h('p', { class: 'explain' }, `Means ${v.decision ? `over the window of the decision at step ${count(v.decision.step)}` : 'of the newest steps'}. waits: for slower ranks. delays: the waits of all other ranks for this one, as a sum.` +
        (shown.length > first.fewRanks ? ` ${count(shown.length)} ranks, first those that delay others most.` : '')),
      first.ranks(v, shown, r => tables.badgeOf(r.health))) : null)
    put('decision', first.decided(v))
    put('next', h('p', {}, first.advice(v, a)))
  }

  private showStack(f: Figures): void {
    const body = this.sections.get('stack')
    const section = body?.closest('section')
    if (!body || !section) return
    section.hidden = f.steps.length === 0
    if (f.steps.length) fill(body, h('p', { class: 'finding' }, waits(f)), stack(f))
  }

  private progress(v: View): HTMLElement {
    const of = v.length > 0 ? ` of ${count(v.length)}` : ''
    const text = h('span', { class: 'progress' }, v.last > 0 ? `step ${count(v.last)}${of}` : v.state.kind === 'running' ? 'no steps yet' : 'no records of steps')
    if (v.length > 0 && v.last > 0) text.append(' ', h('progress', { max: v.length, value: v.last, 'aria-label': 'Progress of the run' }))
    return text
  }

  private showProblems(v: View): void {
    const lines: string[] = []
    if (v.state.why) lines.push(v.state.why)
    if (v.lacking) lines.push(v.lacking)
    if (v.progress.read < v.progress.bytes * 0.99 && v.progress.bytes > 1e6) lines.push(`Reading the records: ${percent(v.progress.read / v.progress.bytes, 2)} done. The charts do not show all steps yet.`)
    for (const [file, why] of Object.entries(v.damaged ?? {})) lines.push(`${file}: ${why}`)
    const starts = v.starts?.length ?? 0
    if (starts > 1) lines.push(`The run was resumed ${starts - 1 === 1 ? 'once' : starts - 1 + ' times'}, last at step ${count(v.starts?.at(-1)?.step)}.`)
    if ((v.segment_from ?? 1) > 1) lines.push(`The number of ranks has changed: tables, verdicts and curves show the steps from ${count(v.segment_from)} on.`)
    for (const note of v.notes ?? []) lines.push(note)
    const shown = lines.join('\n') + this.name
    if (shown === this.shownProblems && this.problems.querySelector(
      'details')) return // what the reader has opened stays open
    this.shownProblems = shown
    fill(this.problems, ...lines.map(problem))
  }

  private factsOf(v: View, f: Figures): [string, string][] {
    const { rate, step, of } = speed(v, f)
    const start = v.starts?.at(-1)?.start
    const record = v.ranks[0]?.record
    const left = v.state.kind === 'running' && v.length > v.last && step ? (v.length - v.last) * step : null
    const { name, perSample } = unitOf(v), unit = `${figure(rate === null ? null : rate * perSample)} ${name}/s`
    const facts: [string, string][] = [
      ['Throughput' + of, rate === null ? '–' : unit], ['Step' + of, step === null ? '–' : `${figure(1000 * step)} ms`],
      ['Training time', duration(v.totals.training_seconds)], ['Loss', figure(record ? record.loss : v.result?.final_train_loss, 4)],
      ['Last fraction of the oracle', v.decision && v.decision.share_of_oracle === null ? 'unknown' : percent(v.decision?.share_of_oracle)],
      ['Model', v.settings.model.name || start?.model || '–'], ['Data', start?.dataset || v.settings.data.dataset || '–'],
      ['Policy', v.settings.balance.policy || start?.policy || '–'], ['Ranks', count(v.ranks.length || start?.ranks || v.result?.ranks)], ['Global batch', count(v.settings.data.batch_size || null)],
      ['Precision', v.precision || '–'],
    ]
    if (left !== null) facts.push(['Time left', duration(left)])
    if (record?.timestamp) facts.push(['Newest record', clock(record.timestamp)])
    return facts
  }
}

const briefProblem = 160 // characters that are shown at once: a long text would push the figures down

// problem shows the begin and the end of a long text, which opens. The end of an error is its cause.
function problem(text: string): HTMLElement {
  if (text.length <= briefProblem + 40) return h('p', { class: 'problem' }, text)
  const half = briefProblem / 2, cut = text.lastIndexOf(' ', half), end = cut > half / 2 ? cut : half
  return h('details', { class: 'problem' }, h('summary', {}, text.slice(0, end) + ' … ' + text.slice(-half).trimStart()), text)
}

const newest = 20 // points

// speed returns the throughput in samples/s and the step time in s of all ranks, and what they are means of: the whole run after its end, and
// the last points of the charts before. A mean throughput is samples / time.
export function speed(v: Pick<View, 'totals'>, f: Pick<Figures, 'lines'>): { rate: number | null; step: number | null; of: string } {
  const { ended, samples_per_second: whole, step_seconds: mean } = v.totals
  if (ended) return { rate: whole ?? null, step: mean ?? null, of: '' }
  const last = (column: string): Maybe[] => (f.lines.find(l => l.column === column)?.mean ?? []).slice(-newest)
  const rates = last('total_throughput'), steps = last('step')
  let samples = 0, timed = 0, time = 0, n = 0
  steps.forEach((t, i) => {
    if (t === null || t === undefined) return
    time += t
    n++
    const rate = rates[i]
    if (rate === null || rate === undefined) return
    samples += rate * t
    timed += t
  })
  return { rate: timed > 0 ? samples / timed : null, step: n > 0 ? time / n : null, of: `, last ${newest} points` }
}
