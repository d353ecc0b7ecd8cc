import 'uplot/dist/uPlot.min.css'
import './style.css'
import * as api from './api'
import { ComparePage, address, compared } from './compare'
import { h } from './dom'
import { List } from './list'
import { RunPage } from './run'
import { applyTheme, setTheme, theme } from './theme'
import type { Theme } from './theme'

applyTheme()

const root = document.getElementById('app')
if (!root) throw new Error('the page has no element with id "app"')

let page: { close: () => void; redraw: () => void } | null = null
let refresh = 1 // shortest time between two loads, s

const choose = h('select', { id: 'theme', change: e => { setTheme((e.target as HTMLSelectElement).value as Theme); page?.redraw() } },
  ...(['auto', 'light', 'dark'] as const).map(t => h('option', { value: t, ...(theme() === t ? { selected: true } : {}) }, t)))

const program = h('span', { class: 'program' })
const place = h('div', {})
root.append(h('header', { class: 'top' }, h('a', { href: './', class: 'home' }, 'hetero-train'), program,
  h('span', { class: 'lost', role: 'status' }, 'Connection lost. Reconnecting…'), h('label', { for: 'theme' }, 'Colours'), choose), place)

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => page?.redraw())

const query = new URLSearchParams(location.search)
const name = query.get('run'), names = compared(location)
addEventListener('hashchange', () => { if (names.length || compared(location).length) location.reload() })

async function showList(): Promise<void> {
  const list = new List(runs => location.assign(address(runs)))
  place.replaceChildren(list.element)
  for (;;) {
    try {
      const listing = await api.list()
      program.textContent = listing.program
      list.set(listing, Date.now())
      document.body.classList.remove('disconnected')
    } catch {
      document.body.classList.add('disconnected')
    }
    await new Promise(done => setTimeout(done, 2000))
  }
}

if (names.length) {
  const compare = new ComparePage(names)
  page = compare
  place.replaceChildren(compare.element)
} else if (name) {
  const run = new RunPage(name, () => 1000 * refresh)
  page = run
  place.replaceChildren(run.element)
} else void showList()

if (name || names.length) void api.list().then(l => {
  program.textContent = l.program
  refresh = Math.max(1, l.refresh_seconds)
}).catch(() => {})
