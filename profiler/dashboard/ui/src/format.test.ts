import { describe, expect, test } from 'vitest'
import { count, duration, figure, group, milliseconds, percent, scaled, tick } from './format'

describe('numbers for people', () => {
  test.each([
    [0, '0'], [1234.5, '1235'], [12345.6, '12\u202f346'], [0.012345, '0.0123'], [0.000001234, '1.23e-6'], [-5.678, '-5.68'], [null, '–'], [NaN, '–'], [99.96, '100'], [9999.7, '10000'],
  ])('figure(%s) is %s', (v, text) => expect(figure(v)).toBe(text))
  test.each([[20, '20'], [0.00075, '0.00075'], [1.5, '1.5'], [100, '100'], [0, '0'], [2000, '2000']])('tick(%s) is %s', (v, text) => expect(tick(v)).toBe(text))
  test.each([[5649, '5649'], [56490, '56\u202f490'], [null, '–']])('count(%s) is %s', (v, text) => expect(count(v)).toBe(text))
  test('units', () => {
    expect(percent(0.9876)).toBe('98.8\u00a0%')
    expect(milliseconds(0.0123)).toBe('12.3\u00a0ms')
    expect(scaled(1158080, 'B')).toBe('1.16\u00a0MB')
    expect(group('1234567.25')).toBe('1\u202f234\u202f567.25')
  })
  test.each([[3, '3\u00a0s'], [89, '89\u00a0s'], [600, '10\u00a0min'], [9000, '2.5\u00a0h'], [3 * 86400, '3\u00a0d'], [null, '–']])('duration(%s) is %s', (v, text) => expect(duration(v)).toBe(text))
})
