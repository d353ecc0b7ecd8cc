// Light and dark colours. Charts draw on a canvas, so they read the colours from the style sheet.

export type Theme = 'auto' | 'light' | 'dark'

const key = 'hetero-train theme'

export function theme(): Theme {
  const stored = localStorage.getItem(key)
  return stored === 'light' || stored === 'dark' ? stored : 'auto'
}

export function setTheme(t: Theme): void {
  localStorage.setItem(key, t)
  applyTheme()
}

export function applyTheme(): void {
  document.documentElement.dataset.theme = theme()
}

// color returns a colour of the style sheet in the current theme, as #rrggbb.
export function color(name: string): string {
  const dark = document.documentElement.dataset.theme + String(matchMedia('(prefers-color-scheme: dark)').matches)
  if (dark !== resolved.theme) [resolved.theme, resolved.colors] = [dark, new Map()]
  const known = resolved.colors.get(name)
  if (known !== undefined) return known
  const probe = document.body.appendChild(document.createElement('span'))
  probe.style.color = `var(--${name})`
  const rgb = getComputedStyle(probe).color.match(/\d+/g) ?? []
  probe.remove()
  const hex = '#' + rgb.slice(0, 3).map(c => Number(c).toString(16).padStart(2, '0')).join('')
  resolved.colors.set(name, hex)
  return hex
}

// resolved contains the colours that the browser has looked up for a theme.
const resolved = { theme: '', colors: new Map<string, string>() }

// People with any kind of colour vision can tell these colours apart (theme.test.ts). From the ninth line on, lines
// differ by their dashes.
const palette = ['series-0', 'series-1', 'series-2', 'series-3', 'series-4', 'series-5', 'series-6', 'series-7']

export function seriesColor(i: number): string {
  return color(palette[i % palette.length] ?? 'series-0')
}

export function seriesDash(i: number): number[] | undefined {
  return [undefined, [8, 4], [2, 3], [12, 3, 2, 3]][Math.floor(i / palette.length) % 4]
}

// The colours of the parts of a step are the same in all charts.
export const partColor = (part: string) => color('part-' + part)
