// Formats numbers for people. null and NaN are unknown.

export type Maybe = number | null | undefined

export const unknown = '–'

const gap = '\u00a0' // between a number and its unit: no line break

function isKnown(v: Maybe): v is number {
  return v !== null && v !== undefined && Number.isFinite(v)
}

// figure shows digits significant digits, and all digits before the point.
export function figure(v: Maybe, digits = 3): string {
  if (!isKnown(v)) return unknown
  if (v === 0) return '0'
  const size = Math.floor(Math.log10(Math.abs(Number(v.toPrecision(digits))))) // of the rounded number: 99.96 is 100
  if (size < -4) return v.toExponential(digits - 1)
  const text = v.toFixed(Math.min(12, Math.max(0, digits - 1 - size)))
  return separated(text, v)
}

// separated groups the digits of numbers from 10,000 on.
const separated = (text: string, v: number): string => (Math.abs(v) >= 10_000 ? group(text) : text)

// tick shows a number at an axis, without zeros at its end.
export function tick(v: number): string {
  const text = figure(v, 4)
  return text.includes('.') && !text.includes('e') ? text.replace(/\.?0+$/, '') : text
}

// group separates thousands by narrow spaces.
export function group(text: string): string {
  const [whole = '', fraction] = text.split('.')
  const spaced = whole.replace(/\B(?=(\d{3})+(?!\d))/g, '\u202f')
  return fraction === undefined ? spaced : spaced + '.' + fraction
}

export function percent(fraction: Maybe, digits = 3): string {
  return isKnown(fraction) ? figure(100 * fraction, digits) + gap + '%' : unknown
}

export function milliseconds(seconds: Maybe): string {
  return isKnown(seconds) ? inMilliseconds(seconds) + gap + 'ms' : unknown
}

// inMilliseconds shows the number for a column whose title has the unit.
export function inMilliseconds(seconds: Maybe): string {
  return figure(isKnown(seconds) ? (Math.abs(seconds) < 5e-8 ? 0 : 1000 * seconds) : null) // below any clock: a rounding error
}

const prefixes: [number, string][] = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']]

// scaled shows a number with a prefix of the unit: 1.16 MB.
export function scaled(v: Maybe, unit: string): string {
  if (!isKnown(v)) return unknown
  for (const [size, prefix] of prefixes) if (Math.abs(v) >= size) return figure(v / size) + gap + prefix + unit
  return figure(v) + gap + unit
}

// bytes shows an amount of memory as plan does: 812.4 MiB, 1.25 GiB.
export function bytes(v: Maybe): string {
  if (!isKnown(v)) return unknown
  return v >= 2 ** 30 ? `${(v / 2 ** 30).toFixed(2)} GiB` : `${(v / 2 ** 20).toFixed(1)} MiB`
}

// duration shows a time span: 3 s, 5 min, 2.5 h, 3 d.
export function duration(seconds: Maybe): string {
  if (!isKnown(seconds)) return unknown
  if (seconds < 90) return Math.max(0, Math.round(seconds)) + gap + 's'
  if (seconds < 90 * 60) return Math.round(seconds / 60) + gap + 'min'
  if (seconds < 48 * 3600) return figure(seconds / 3600, 2) + gap + 'h'
  return Math.round(seconds / 86400) + gap + 'd'
}

export function count(v: Maybe): string {
  return isKnown(v) ? separated(String(Math.round(v)), v) : unknown
}

// clock shows the time of day of a time in s since 1970 UTC.
export function clock(seconds: Maybe): string {
  return isKnown(seconds) && seconds > 0 ? new Date(1000 * seconds).toLocaleTimeString() : unknown
}
