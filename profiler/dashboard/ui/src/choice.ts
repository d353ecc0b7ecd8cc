// The choices of the reader for all charts of a page. They are in the address, so that a link shows the same charts to
// other people.

import type { Range } from './api'
import { display } from './chart'
import { h } from './dom'

export type Choice = { range: Range; ranks: number[] | null; smooth: number; time: boolean; log: boolean }

const means = [1, 10, 50, 200] // points

// parseRanks reads a list of ranks such as "0,3"; null stands for all.
export function parseRanks(text: string): number[] | null {
  const ranks = text.split(',').map(t => t.trim()).filter(t => /^\d{1,5}$/.test(t)).map(Number)
  return ranks.length ? [...new Set(ranks)].slice(0, 64) : null
}

const step = (text: string | null): number => Math.max(0, Math.round(Number(text) || 0))

// read returns the choice in an address. An unknown value is replaced by the default.
export function read(query: URLSearchParams): Choice {
  return {
    range: { from: Math.max(1, step(query.get('from'))), to: step(query.get('to')) },
    ranks: parseRanks(query.get('ranks') ?? ''),
    smooth: means.find(n => String(n) === query.get('smooth')) ?? 1,
    time: query.get('axis') === 'time',
    log: query.get('scale') === 'log',
  }
}

// write adds the choice to an address. It omits default values.
export function write(c: Choice, query: URLSearchParams): void {
  if (c.range.from > 1) query.set('from', String(c.range.from))
  if (c.range.to > 0) query.set('to', String(c.range.to))
  if (c.ranks) query.set('ranks', c.ranks.join(','))
  if (c.smooth > 1) query.set('smooth', String(c.smooth))
  if (c.time) query.set('axis', 'time')
  if (c.log) query.set('scale', 'log')
}

// Controls are the fields of the choice.
export class Controls {
  readonly element: HTMLElement
  private readonly from = h('input', { type: 'number', min: 1, id: 'from', change: () => this.typed() })
  private readonly to = h('input', { type: 'number', min: 1, id: 'to', placeholder: 'newest', change: () =>
    this.typed() })
  private readonly ranks = h('input', { type: 'text', id: 'ranks', placeholder: 'all', change: () => this.typed() })

  // last returns the newest step. load loads and shows other values. redraw shows the same values in another way.
  constructor(readonly choice: Choice, time: string, private readonly last: () => number,
    private readonly load: () => void, private readonly redraw: () => void) {
    this.ranks.value = (choice.ranks ?? []).join(',')
    this.apply()
    this.show()
    this.element = h('form', { class: 'controls', 'aria-label': 'Range of steps', submit: e => e.preventDefault() },
      h('label', { for: 'from' }, 'Steps'), this.from, h('label', { for: 'to' }, 'to'), this.to,
      h('button', { type: 'button', click: () => this.zoom({ from: 1, to: 0 }) }, 'All'),
      h('button', { type: 'button', click: () => this.zoom({ from: Math.max(1, this.last() - 499), to: 0 }) },
        'Last 500'),
      h('label', { for: 'ranks' }, 'Ranks'), this.ranks,
      this.select('smooth', 'Mean of', String(choice.smooth),
        means.map(n => [String(n), n === 1 ? 'each point' : `${n} points`]),
        value => { choice.smooth = Number(value) }),
      this.select('axis', 'Axis', choice.time ? 'time' : 'step', [['step', 'steps'], ['time', time]],
        value => { choice.time = value === 'time' }),
      this.select('scale', 'Scale', choice.log ? 'log' : 'linear', [['linear', 'linear'], ['log', 'logarithmic']],
        value => { choice.log = value === 'log' }),
      h('span', { class: 'hint' }, 'Drag across a chart to zoom all charts. Double-click to show all steps.'))
  }

  // select returns a field that changes how all charts are drawn.
  private select(id: string, label: string, chosen: string, values: string[][], set: (value: string) =>
    void): HTMLElement {
    const change = (e: Event): void => {
      set((e.target as HTMLSelectElement).value)
      this.apply()
      this.redraw()
    }
    return h('span', { class: 'field' }, h('label', { for: id }, label), h('select', { id, change },
      ...values.map(([value, text]) => h('option', { value, ...(value === chosen ? { selected: true } : {}) }, text))))
  }

  private apply(): void {
    display.smooth = this.choice.smooth
    display.time = this.choice.time
    display.log = this.choice.log
  }

  // show writes the range into its fields, unless the reader is typing.
  show(): void {
    const { from, to } = this.choice.range
    if (document.activeElement !== this.from) this.from.value = String(from)
    if (document.activeElement !== this.to) this.to.value = to ? String(to) : ''
  }

  zoom(range: Range): void {
    this.choice.range = range
    this.load()
  }

  private typed(): void {
    this.choice.range = { from: Math.max(1, step(this.from.value)), to: step(this.to.value) }
    this.choice.ranks = parseRanks(this.ranks.value)
    this.load()
  }
}
