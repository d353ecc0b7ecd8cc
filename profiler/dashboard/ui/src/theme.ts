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

export function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim()
}

// People with any kind of colour vision can tell these colours apart (theme.test.ts). From the ninth line on, lines differ by their dashes.
const palette = ['series-0', 'series-1', 'series-2', 'series-3', 'series-4', 'series-5', 'series-6', 'series-7']

export function seriesColor(i: number): string {
  return color(palette[i % palette.length] ?? 'series-0')
}

export function seriesDash(i: number): number[] | undefined {
  return [undefined, [8, 4], [2, 3], [12, 3, 2, 3]][Math.floor(i / palette.length) % 4]
}

// The colours of the parts of a step are the same in all charts.
export const partColor = (part: string) => color('part-' + part)
