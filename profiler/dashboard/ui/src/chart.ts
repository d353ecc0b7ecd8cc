// A line chart over steps. All charts of a page share the range of steps and the cursor.

import uPlot from 'uplot'
import { h, save } from './dom'
import { count, figure, tick } from './format'
import type { Maybe } from './format'
import { color } from './theme'

export type Series = {
  label: string
  color: string
  dash?: number[]
  values: Maybe[]
  low?: Maybe[] // a band below and above the line
  high?: Maybe[]
  points?: boolean // draw points as well as the line
  steps?: 'after' | 'before' // the value is valid until the next point, or since the previous point
  format?: (v: number) => string
  note?: (i: number) => string // a text about point i
  hidden?: boolean // not in the legend
  rate?: boolean // amount / time, so the mean over equal amounts is the sum of the amounts / the sum of the times
}

export type Mark = { step: number; text: string } // a vertical line, with a text while the cursor is near

// axis: the x values are not steps, but values with this label.
export type Axis = { label: string; format: (v: number) => string }

export type Content = { steps: number[]; times: number[]; width: number; series: Series[]; marks?: Mark[
  ]; unit?: string; axis?: Axis }

export type Options = {
  id: string
  title: string
  explain: string // what the chart shows
  unit: string
  zero?: boolean // the axis includes 0
  log?: boolean
  top?: number // the axis includes this value
  format?: (v: number) => string
  plain?: boolean // the title is not a link, because the page uses the fragment of the address for another purpose
  zoom: (from: number, to: number) => void
  reset: () => void
}

const sync = uPlot.sync('steps')

// display contains the choices of the reader for all charts of the page.
export const display = { smooth: 1, time: false, log: false }

// smooth returns the mean of each value and up to points - 1 values before it. Unknown values stay unknown. For rates,
// the mean is the harmonic mean.
export function smooth(values: Maybe[], points: number, rate = false): Maybe[] {
  const inverse = (v: Maybe): Maybe => (v !== null && v !== undefined && v > 0 ? 1 / v : null)
  if (rate) return smooth(values.map(inverse), points).map(inverse)
  let sum = 0, n = 0
  const known = (v: Maybe): v is number => v !== null && v !== undefined
  return values.map((v, i) => {
    const old = values[i - points]
    if (known(old)) [sum, n] = [sum - old, n - 1]
    if (!known(v)) return null
    ;[sum, n] = [sum + v, n + 1]
    return sum / n
  })
}

// drawn returns the lines of a chart for the display choices. With smoothing, each line is drawn behind its mean.
export function drawn(series: Series[], smoothing: number): Series[] {
  if (smoothing <= 1) return series
  return series.flatMap(s => {
    if (s.points || s.steps) return [s]
    const raw = { ...s, label: s.label + ' raw', color: s.color + '50', hidden: true, low: undefined, high: undefined }
    return [raw, { ...s, values: smooth(s.values, smoothing, s.rate), low: undefined, high: undefined }]
  })
}
export const axisFont = '12px system-ui, sans-serif'
const stepped = { after: uPlot.paths.stepped?.({ align: 1 }), before: uPlot.paths.stepped?.({ align: -1 }) }

// legend shows the line of each series as the chart draws it.
export const legend: uPlot.Legend = {
  live: true, markers: { width: 2, dash: (plot, i) => { const dash = plot.series[i]?.dash; return !dash ? 'solid' : (dash[0] ?? 0) < 4 ? 'dotted' : 'dashed' } },
}

export class Chart {
  readonly element: HTMLElement
  private readonly place: HTMLElement
  private readonly empty: HTMLElement
  private readonly note: HTMLElement
  private readonly unit = h('span', { class: 'unit' })
  private plot: uPlot | null = null
  private shape = ''
  private content: Content = { steps: [], times: [], width: 1, series: [] }
  private height = 200
  private series: Series[] = [] // drawn

  constructor(private readonly options: Options) {
    this.place = h('div', { class: 'plot' })
    this.empty = h('p', { class: 'empty' }, 'No values in this range.')
    this.note = h('p', { class: 'marks', 'aria-live': 'off' })
    this.element = h('section', { class: 'panel', id: options.id, 'aria-labelledby': options.id + '-title' },
      h('header', {},
        h('h2', { id: options.id + '-title' }, options.plain ? options.title : h('a', { href: '#' + options.id },
          options.title), this.unit),
        h('div', { class: 'tools' },
          h('button', { type: 'button', title: 'Save the values of this chart', 'aria-label': `CSV of ${options.title}`, click: () => this.saveCSV() }, 'CSV'),
          h('button', { type: 'button', title: 'Save this chart as an image', 'aria-label': `PNG of ${options.title}`, click: () => this.savePNG() }, 'PNG'))),
      h('p', { class: 'explain' }, options.explain),
      this.empty, this.place, this.note)
    new ResizeObserver(() => this.resize()).observe(this.place)
  }

  // set shows new values. It rebuilds the plot only if the lines or the colours changed.
  set(content: Content): void {
    this.content = content
    const hasValues = content.steps.length > 0 && content.series.some(s => s.values.some(v => v !== null && v !== undefined))
    const unit = content.unit ?? this.options.unit
    this.unit.textContent = unit && ' ' + unit
    this.empty.hidden = hasValues
    this.note.hidden = !hasValues || !content.marks?.length
    this.place.hidden = !hasValues
    if (!hasValues) {
      this.drop()
      return
    }
    this.series = drawn(content.series, display.smooth)
    const shape = JSON.stringify([display, this.timed(), content.axis?.label, document.documentElement.dataset.theme,
      color('text'), content.width > 1, this.series.map(s =>
      [s.label, s.color, s.dash, s.low !== undefined, s.points, s.steps])])
    if (this.plot && shape === this.shape) {
      const { left, top } = this.plot.cursor
      this.plot.setData(this.data(), true)
      if (left !== undefined && top !== undefined && left >= 0) this.plot.setCursor({ left, top }, false) // the values at the pointer stay
      this.tellMark(this.plot)
      return
    }
    this.shape = shape
    this.drop()
    this.plot = new uPlot(this.plotOptions(), this.data(), this.place)
    this.tellMark(this.plot)
  }

  drop(): void {
    this.plot?.destroy()
    this.plot = null
    this.place.replaceChildren()
    this.shape = ''
  }

  private data(): uPlot.AlignedData {
    const columns: (Maybe[])[] = []
    const positive = (values: Maybe[]): Maybe[] => (this.log() ? values.map(v => (v !== null && v !== undefined && v > 0 ? v : null)) : values)
    for (const s of this.series) {
      columns.push(positive(s.values))
      if (s.low && s.high) columns.push(positive(s.low), positive(s.high))
    }
    return [this.timed() ? this.content.times : this.content.steps, ...columns] as uPlot.AlignedData
  }

  private log(): boolean {
    return this.options.log === true || display.log
  }

  // timed reports whether the axis shows the time of day. This requires increasing times: the clock of a machine may
  // have been set back.
  private timed(): boolean {
    return display.time && this.content.times.length === this.content.steps.length && this.content.times.every((t, i, all) => t > 0 && (i === 0 || t > (all[i - 1] ?? 0)))
  }

  // place of a step on the axis, and the step at a place.
  private at(step: number): number {
    const { steps, times } = this.content
    if (!this.timed()) return step
    const i = steps.findIndex(s => s >= step)
    return times[i < 0 ? times.length - 1 : i] ?? 0
  }

  private stepAt(x: number): number {
    const { steps, times } = this.content
    if (!this.timed()) return Math.round(x)
    const i = times.findIndex(t => t >= x)
    return steps[i < 0 ? steps.length - 1 : i] ?? 1
  }

  private plotOptions(): uPlot.Options {
    const text = color('text'), grid = color('grid'), other = this.content.axis
    const series: uPlot.Series[] = [{ label: other?.label ?? 'step', value: (_, v) =>
      (v === null ? '–' : other?.format(v) ?? count(this.stepAt(v))) }]
    const bands: uPlot.Band[] = []
    const format = this.options.format ?? ((v: number) => figure(v, 4))
    for (const s of this.series) {
      const number = s.format ?? format
      // The legend shows the value at the cursor, and the least and largest value of the steps that the point covers.
      const show = (_: uPlot, v: number | null, __: number, i: number | null) => {
        if (v === null || v === undefined) return '–'
        const low = i === null ? null : s.low?.[i], high = i === null ? null : s.high?.[i], note = i === null ? '' : s.note?.(i)
        const extremes = low !== null && low !== undefined && high !== null && high !== undefined && low !== high ? ` (${number(low)} to ${number(high)})` : ''
        return number(v) + extremes + (note ? `, ${note}` : '')
      }
      series.push({
        label: s.label, class: s.hidden ? 'extreme' : undefined, stroke: s.color, width: 1.5, dash: s.dash, value: show, spanGaps: true, paths: s.steps && stepped[s.steps],
        points: s.points ? { show: true, size: 6, fill: s.color } : { show: this.content.steps.length < 40, size: 4, fill: s.color },
      })
      if (s.low && s.high) {
        const at = series.length
        for (const extreme of [' min', ' max']) series.push({ label: s.label + extreme, class: 'extreme', stroke: s.color + '66', width: 1, spanGaps: true, paths: s.steps && stepped[s.steps], points: { show: false } })
        bands.push({ series: [at + 1, at], fill: s.color + '40' })
      }
    }
    const axis = (more: uPlot.Axis): uPlot.Axis => ({ stroke: text, font: axisFont, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, ...more })
    const options = this.options, log = this.log()
    return {
      width: this.width(), height: this.height, series, bands,
      scales: {
        x: { time: this.timed() },
        y: {
          distr: log ? 3 : 1,
          range: (_, least, most) => {
            if (log) return [least > 0 ? least / 1.2 : 1e-9, most > 0 ? most * 1.2 : 1]
            const low = options.zero ? Math.min(0, least) : least
            const high = Math.max(most, options.top ?? most)
            const margin = (high - low || Math.abs(high) || 1) * 0.06
            return [options.zero && low >= 0 ? 0 : low - margin, high + margin]
          },
        },
      },
      axes: [
        axis({ ...(this.timed() ? {} : other ? { values: (_: unknown, values: number[]) =>
          values.map(tick) } : { values: (_: unknown, values: number[]) =>
          values.map(v => (Number.isInteger(v) ? count(v) : '')) }),
          label: this.timed() ? 'time of day' : other?.label ?? 'step', size: 30, labelFont: axisFont, labelSize: 16,
          labelGap: 0 }),
        axis({ size: axisSize, values: (_, values) => values.map(v => (v === null ? '' : tick(v))) }),
      ],
      cursor: { sync: { key: other ? other.label : sync.key, scales: ['x', null] },
        drag: { x: !other, y: false, setScale: false }, points: { size: 7 } },
      legend,
      hooks: {
        setSelect: [plot => {
          if (plot.select.width < 4) return
          const from = this.stepAt(plot.posToVal(plot.select.left, 'x')), to = this.stepAt(plot.posToVal(plot.select.left + plot.select.width, 'x'))
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false)
          if (to > from) options.zoom(Math.max(1, from), to)
        }],
        drawAxes: [plot => this.drawMarks(plot)], // over the grid
        setCursor: [plot => this.tellMark(plot)],
        ready: [plot => plot.over.addEventListener('dblclick', () => options.reset())],
      },
    }
  }

  private drawMarks(plot: uPlot): void {
    const { ctx, bbox } = plot
    ctx.save()
    ctx.strokeStyle = color('mark')
    ctx.lineWidth = devicePixelRatio
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio])
    for (const m of this.content.marks ?? []) {
      const x = plot.valToPos(this.at(m.step), 'x', true)
      if (x < bbox.left || x > bbox.left + bbox.width) continue
      ctx.beginPath()
      ctx.moveTo(x, bbox.top)
      ctx.lineTo(x, bbox.top + bbox.height)
      ctx.stroke()
    }
    ctx.restore()
  }

  // tellMark shows the text of the mark nearest to the cursor.
  private tellMark(plot: uPlot): void {
    const marks = this.content.marks
    if (!marks?.length) return
    const left = plot.cursor.left ?? -1
    let nearest = 12 // CSS pixels
    let text = `Each dashed vertical line is a decision that changed the shares (${marks.length}). Point at one for its reason.`
    if (left >= 0) for (const m of marks) {
      const distance = Math.abs(plot.valToPos(this.at(m.step), 'x') - left)
      if (distance < nearest) [nearest, text] = [distance, m.text]
    }
    this.note.textContent = text
  }

  private width(): number {
    return Math.max(240, this.place.clientWidth || this.element.clientWidth - 32)
  }

  private resize(): void {
    if (this.plot && this.place.clientWidth > 0 && Math.abs(this.plot.width - this.width()) > 1) this.plot.setSize({ width: this.width(), height: this.height })
  }

  private saveCSV(): void {
    const head = [this.content.axis?.label ?? 'step', 'time']
    for (const s of this.content.series) head.push(s.label, ...(s.low ? [s.label + ' min', s.label + ' max'] : []))
    const rows = this.content.steps.map((step, i) => {
      const row: (Maybe)[] = [step, this.content.times[i]]
      for (const s of this.content.series) row.push(s.values[i], ...(s.low && s.high ? [s.low[i], s.high[i]] : []))
      return row.map(v => v ?? '').join(',')
    })
    save(this.options.id + '.csv', new Blob([head.map(quote).join(',') + '\n' + rows.join('\n') + '\n'], { type: 'text/csv' }))
  }

  private savePNG(): void {
    const from = this.plot?.ctx.canvas
    if (!from) return
    const scale = devicePixelRatio, title = 28 * scale, legend = 24 * scale
    const canvas = h('canvas', { width: from.width, height: from.height + title + legend })
    const ctx = canvas.getContext('2d')
    if (!ctx) return
    ctx.fillStyle = color('panel')
    ctx.fillRect(0, 0, canvas.width, canvas.height)
    ctx.fillStyle = color('text')
    ctx.font = `600 ${14 * scale}px system-ui, sans-serif`
    ctx.fillText(this.options.title + (this.unit.textContent ? ` (${this.unit.textContent.trim()})` : ''), 12 * scale, 19 * scale)
    ctx.drawImage(from, 0, title)
    ctx.font = `${12 * scale}px system-ui, sans-serif`
    let x = 12 * scale
    for (const s of this.content.series) {
      ctx.strokeStyle = s.color
      ctx.lineWidth = 2 * scale
      ctx.setLineDash((s.dash ?? []).map(d => d * scale))
      ctx.beginPath()
      ctx.moveTo(x, canvas.height - 13 * scale)
      ctx.lineTo(x + 16 * scale, canvas.height - 13 * scale)
      ctx.stroke()
      ctx.fillStyle = color('text')
      ctx.fillText(s.label, x + 20 * scale, canvas.height - 9 * scale)
      x += ctx.measureText(s.label).width + 36 * scale
    }
    canvas.toBlob(blob => blob && save(this.options.id + '.png', blob))
  }
}

// axisSize returns the width of the axis of values in CSS pixels. The longest number fits.
export function axisSize(_: unknown, values: string[] | null): number {
  return Math.max(44, 20 + 7 * Math.max(0, ...(values ?? []).map(v => v.length)))
}

// quote returns text as one field of a CSV file. A spreadsheet does not read the field as a formula.
export function quote(text: string): string {
  if (/^[=+\-@]/.test(text)) text = "'" + text
  return /[",\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text
}
