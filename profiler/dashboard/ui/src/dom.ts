// Builds elements. Text is never parsed as HTML, because names and messages come from files.

type Child = Node | string | number | null | undefined | false
type Attributes = Record<string, string | number | boolean | ((event: Event) => void) | undefined>

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(name, value)
    else if (value === true) element.setAttribute(name, '')
    else if (value !== undefined && value !== false) element.setAttribute(name, String(value))
  }
  append(element, children)
  return element
}

function append(element: Element, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue
    element.append(typeof child === 'number' ? String(child) : child)
  }
}

// fill replaces the content of an element, unless the user has selected text in it.
export function fill(element: Element, ...children: Child[]): void {
  const selection = document.getSelection()
  if (selection && !selection.isCollapsed && selection.anchorNode && element.contains(selection.anchorNode)) return
  element.replaceChildren()
  append(element, children)
}

// A phone does not show minor columns.
export type Column<T> = { title: string; unit?: string; numeric?: boolean; wide?: boolean; minor?: boolean; of: (row: T) => Child; hint?: string }

// table returns a table with one row for each element.
export function table<T>(caption: string, columns: Column<T>[], rows: T[]): HTMLElement {
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption + ' (table)' },
    h('table', {},
      h('thead', {}, h('tr', {}, ...columns.map(c =>
        h('th', { scope: 'col', class: [c.numeric ? 'number' : '', c.minor ? 'minor' : ''].join(' ').trim(), title: c.hint }, c.title, c.unit ? h('span', { class: 'unit' }, ` (${c.unit})`) : '')))),
      h('tbody', {}, ...rows.map(row => h('tr', {}, ...columns.map((c, i) =>
        i === 0 ? h('th', { scope: 'row', class: c.numeric ? 'number' : '' }, c.of(row)) : h('td', { class: [c.numeric ? 'number' : c.wide ? 'wide-cell' : '', c.minor ? 'minor' : ''].join(' ').trim() }, c.of(row)))))),
    ))
}

// save downloads content as a file with this name.
export function save(name: string, content: Blob): void {
  const url = URL.createObjectURL(content)
  h('a', { href: url, download: name }).click()
  setTimeout(() => URL.revokeObjectURL(url), 10_000)
}
