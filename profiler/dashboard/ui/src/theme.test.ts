import { describe, expect, test } from 'vitest'
// @ts-expect-error the sources of the page have no types of Node
import { readFileSync } from 'node:fs'

// Colours as seen by people without one kind of cones: Machado, Oliveira and Fernandes, "A Physiologically-based Model
// for Simulation of Color Vision Deficiency", 2009, severity 1, in linear RGB.
const visions: Record<string, number[][]> = {
  normal: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}

type Triple = [number, number, number]

const linear = (hex: string): Triple => [1, 3, 5].map(i => {
  const c = parseInt(hex.slice(i, i + 2), 16) / 255
  return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4
}) as Triple

// lab converts linear RGB to CIE L*a*b*.
function lab([r, g, b]: Triple): Triple {
  const f = (t: number): number => (t > 0.008856 ? Math.cbrt(t) : 7.787 * t + 16 / 116)
  const x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047), y = f(0.2126 * r + 0.7152 * g + 0.0722 * b), z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883)
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)]
}

const seen = (hex: string, vision: number[][]): Triple => {
  const c = linear(hex)
  return lab(vision.map(row => Math.min(1, Math.max(0, row.reduce((sum, w, i) => sum + w * (c[i] ?? 0), 0)))) as Triple)
}

const luminance = (hex: string): number => linear(hex).reduce((sum, c, i) => sum + c * ([0.2126, 0.7152, 0.0722][i] ?? 0), 0)

const style = readFileSync(new URL('./style.css', import.meta.url), 'utf8') as string
// of returns the style sheet with the colours of one theme.
const of = (theme: string): string => style.replace(/light-dark\((#\w+), (#\w+)\)/g, theme)
const colours = (text: string, group: string): string[] => [...text.matchAll(new RegExp(`--${group}-\\w+: (#\\w{6})`, 'g'))].map(m => m[1] ?? '')
const panel = (text: string): string => /--panel: (#\w{6})/.exec(text)?.[1] ?? ''

describe.each([['light', of('$1')], ['dark', of('$2')]])('%s', (_, text) => {
  // Colours with a distance of at least 10 are clearly different.
  test.each([['series', 8], ['part', 6]])('the colours of %s differ for every kind of colour vision', (group, number) => {
    const list = colours(text, group)
    expect(list.length).toBe(number)
    for (const [name, vision] of Object.entries(visions)) {
      list.forEach((a, i) => list.slice(0, i).forEach(b => expect(Math.hypot(...seen(a, vision).map((v, k) => v - (seen(b, vision)[k] ?? 0))), `${a} and ${b}, ${name}`).toBeGreaterThan(12)))
    }
  })
  test('lines stand out from the panel', () => {
    for (const c of colours(text, 'series')) {
      const [a = 0, b = 0] = [luminance(c), luminance(panel(text))].sort((x, y) => y - x)
      expect((a + 0.05) / (b + 0.05), c).toBeGreaterThan(3)
    }
  })
})
