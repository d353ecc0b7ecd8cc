// The list of runs.

import type { Listing, Summary } from './api'
import { fill, h, table } from './dom'
import { count, duration, figure, percent } from './format'

export function stateBadge(kind: string): HTMLElement {
  return h('span', { class: 'badge ' + kind }, kind)
}

// missing describes the files that are missing in the folder of a run, or returns "" if the folder is complete.
export const missing = (r: Pick<Summary, 'lacking' | 'cut'>): string => r.lacking || r.cut || ''

// link returns the address of a run, or of a comparison.
export const link = (run: string) => './?run=' + encodeURIComponent(run)

export class List {
  readonly element = h('main', { class: 'list' })
  private readonly body = h('div', {})
  private readonly chosen = new Set<string>()

  constructor(private readonly compare: (runs: string[]) => void) {
    this.element.append(h('h1', {}, 'Runs'), this.body)
  }

  set(list: Listing, now: number): void {
    if (list.runs.length === 0) {
      fill(this.body, h('p', {}, `No runs in ${list.folder}.`), this.others(list),
        h('p', {}, 'A run appears here when training creates the folder of the run. If the runs are in another folder, restart the dashboard with --input-dir and the value of experiment.output_dir.'))
      return
    }
    const button = h('button', { type: 'button', click: () => this.compare([...this.chosen]) }, 'Compare')
    const enable = () => { button.disabled = this.chosen.size < 2 }
    enable()
    const rows = table('Runs', [
      { title: 'run', of: (r: Summary) => h('a', { href: link(r.name) }, r.name) },
      { title: 'state', of: r => h('span', { title: missing(r) || r.state.why }, stateBadge(r.state.kind), missing(r) ? ' ' : '', missing(r) ? h('span', { class: 'badge unknown' }, 'incomplete') : '') },
      { title: 'model', minor: true, of: r => r.model || '–' },
      { title: 'data', minor: true, of: r => r.dataset || '–' },
      { title: 'policy', minor: true, of: r => r.policy || '–' },
      { title: 'ranks', numeric: true, of: r => count(r.ranks || null) },
      { title: 'steps', numeric: true, of: r => count(r.steps) },
      { title: 'samples/s', numeric: true, of: r => figure(r.samples_per_second) },
      { title: 'last fraction of oracle', numeric: true, hint: 'At the last decision of the balancer: step time with the best shares divided by the step time with the actual shares', of: r => percent(r.share_of_oracle) },
      { title: 'loss', numeric: true, of: r => figure(r.loss, 4) },
      { title: 'age', numeric: true, hint: 'Time since the newest record; for a run that ended, time since the end', of: r => duration((now - r.updated) / 1000) },
      { title: 'compare', of: r => h('input', {
        type: 'checkbox', 'aria-label': `Compare ${r.name}`, ...(this.chosen.has(r.name) ? { checked: true } : {}),
        change: e => {
          if ((e.target as HTMLInputElement).checked) this.chosen.add(r.name)
          else this.chosen.delete(r.name)
          enable()
        },
      }) },
    ], list.runs)
    if (this.body.contains(document.activeElement) && document.activeElement instanceof HTMLElement && document.activeElement.matches('input, button')) return // a redraw would take the focus from the element
    fill(this.body, rows, h('p', {}, button), this.others(list))
  }

  private others(list: Listing): HTMLElement {
    const texts: (Node | string)[] = list.runs.flatMap(r => (missing(r) ? [h('li', {}, `${r.name}: ${missing(r)}`)] : []))
    for (const name of list.nested ?? []) texts.push(h('li', {}, `The folder ${name} contains runs. To show them, start the dashboard with --input-dir ${list.folder}/${name}`))
    if (list.left > 0) texts.push(h('li', {}, `${list.left} more folders are not listed.`))
    return h('ul', { class: 'notes' }, ...texts)
  }
}
