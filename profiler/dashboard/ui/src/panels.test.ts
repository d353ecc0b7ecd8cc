import { describe, expect, test } from 'vitest'
import type { Figures, View } from './api'
import { axisSize, quote } from './chart'
import { parseRanks, read, write } from './choice'
import { address, chosen, compared, some } from './compare'
import { align, spread, timeAt } from './curves'
import { byDelay } from './first'
import { missing } from './list'
import { join } from './overlay'
import { atSteps, describe as tell } from './panels'
import { speed } from './run'
import { bars, mean } from './stack'
import { select } from './tables'

const figures = (over: Partial<Figures>): Figures => ({ version: 1, from: 1, to: 4, width: 1, steps: [1, 2, 3, 4], times: [], lines: [], ...over })

describe('values over steps', () => {
  test('an evaluation is at the first point that covers its step', () => {
    const f = figures({ steps: [10, 20, 30], width: 10, to: 30 })
    expect(atSteps(f, [{ step: 10, value: 1 }, { step: 15, value: 2 }, { step: 30, value: 3 }, { step: 31, value: 4 }])).toEqual([1, 2, 3])
  })
  test('an evaluation before the range is left out', () => {
    expect(atSteps(figures({ from: 3, steps: [3, 4] }), [{ step: 1, value: 9 }, { step: 4, value: 5 }])).toEqual([null, 5])
  })
  test('the address of a comparison keeps any names', () => {
    const names = ['lr 0.1', 'a,b', 'x/y#z', 'ü%']
    expect(compared(new URL(address(names), 'http://localhost/'))).toEqual(names)
    expect(compared(new URL('http://localhost/#steps'))).toEqual([])
    expect(new URL(address(names), 'http://localhost/').search).toBe('')
  })
  test('a comparison also opens from an old bookmark, and from a name that the user typed', () => {
    expect(compared(new URL('http://localhost/?compare=a,lr%200.1'))).toEqual(['a', 'lr 0.1'])
    expect(compared(new URL('http://localhost/?compare=old#compare=a'))).toEqual(['a'])
    expect(compared(new URL('http://localhost/#compare=50%,b%20c'))).toEqual(['50%', 'b c'])
  })
  test('the address of a comparison keeps what the reader has chosen', () => {
    const choice = { range: { from: 5, to: 80 }, ranks: [0, 3], smooth: 50, time: true, log: true }
    const at = new URL(address(['a', 'b,c'], choice), 'http://localhost/')
    expect(compared(at)).toEqual(['a', 'b,c'])
    expect(chosen(at.hash)).toEqual(choice)
    expect(chosen('#compare=a')).toEqual({ range: { from: 1, to: 0 }, ranks: null, smooth: 1, time: false, log: false })
  })
  test('an address without choice is short, and unknown values are ignored', () => {
    const query = new URLSearchParams()
    write(read(new URLSearchParams('from=-3&to=x&ranks=,&smooth=7&axis=cubic&scale=')), query)
    expect(String(query)).toBe('')
  })
  test('runs of other steps share one axis', () => {
    expect(join([{ at: [1, 3], values: [10, 30] }, { at: [2, 3], values: [200, null] }])).toEqual({ at: [1, 2, 3],
      values: [[10, null, 30], [null, 200, null]] })
  })
  test('a long axis has fewer places, and no value is at an earlier one', () => {
    const { at, values } = join([{ at: [1, 2, 3, 4, 5], values: [10, 20, 30, 40, 50] },
      { at: [2, 6], values: [7, 8] }], 3)
    expect(at).toEqual([2, 4, 6])
    expect(values).toEqual([[20, 40, 50], [7, null, 8]])
  })
  test('a decision is one line, also of many ranks', () => {
    expect(tell({ step: 10, shares: [32, 32], next: [40, 24], reason: 'rank 1 is slower' })).toBe('step 10: 32/32 → 40/24: rank 1 is slower')
    expect(tell({ step: 1, shares: Array(20).fill(1), next: null, reason: '' })).toBe('step 1: 1/1/1/1/1/1/1/1/… → : ')
  })
})

describe('a comparison of many runs', () => {
  test('a few are loaded at a time, and a failure is one run', async () => {
    let busy = 0, most = 0
    const names = Array.from({ length: 20 }, (_, i) => String(i))
    const settled = await some(names, async n => {
      most = Math.max(most, ++busy)
      await Promise.resolve()
      busy--
      if (n === '7') throw new Error('gone')
      return n
    })
    expect(most).toBeLessThanOrEqual(4)
    expect(settled.map(s => (s.status === 'fulfilled' ? s.value : '!'))).toEqual(names.map(n => (n === '7' ? '!' : n)))
  })
})

describe('many ranks', () => {
  test('the curves are those of the fastest to the slowest rank', () => {
    const curve = (rank: number, seconds: number) => ({ rank,
      fitted: [{ samples: 1, seconds }, { samples: 9, seconds: 9 * seconds }], shares: [] })
    const curves = Array.from({ length: 64 }, (_, rank) => curve(rank, rank < 60 ? 1 : 10 + rank))
    expect(spread(curves).map(c => c.rank)).toContain(63)
    expect(spread(curves)).toHaveLength(8)
    expect(spread(curves.slice(0, 8))).toEqual(curves.slice(0, 8))
  })
  test('the table begins with the ranks for which others wait', () => {
    const ranks = Array.from({ length: 9 }, (_, rank) => ({ rank, busy_seconds: 1 })) as View['ranks']
    const decision = { ranks: ranks.map(r => ({ caused_seconds: r.rank === 7 ? 2 : 0 })) } as unknown as View[
      'decision']
    expect(byDelay({ decision }, ranks).map(r => r.rank)).toEqual([7, 0, 1, 2, 3, 4, 5, 6, 8])
    expect(byDelay({ decision }, ranks.slice(0, 8)).map(r => r.rank)[0]).toBe(0)
  })
})

describe('a step by rank', () => {
  const line = (column: string, rank: number, mean: (number | null)[]) => ({ column, rank, unit: 's', mean })
  test('bars are means of known values, in the order of the parts', () => {
    const f = figures({ lines: [line('forward', 0, [1, 3, null]), line('backward', 0, [2, 2]), line('forward', 1, [5]), line('communication', 0, [4])] })
    expect(bars(f)).toEqual([{ label: 'rank 0', seconds: [0, 2, 2, 4, 0] }, { label: 'rank 1', seconds: [0, 5, 0, 0, 0] }])
  })
  test('a rank without records has no bar', () => {
    expect(bars(figures({ lines: [line('forward', 0, [1]), line('forward', 1, [null, null])] })).map(b => b.label)).toEqual(['rank 0'])
  })
  test('no value is no time', () => expect(mean([null, undefined])).toBe(0))
})

describe('the speed of a run', () => {
  const totals = { training_seconds: 9, step_seconds: 0.3, samples_per_second: 349, ended: false }
  const lines = (rates: (number | null)[], steps: (number | null)[]) => ({ lines: [{ column: 'total_throughput', unit: '', rank: -1, mean: rates }, { column: 'step', unit: 's', rank: -1, mean: steps }] })
  test('of a running run is samples / time of the last points', () => {
    expect(speed({ totals }, lines([100, 25], [1, 4]))).toEqual({ rate: 40, step: 2.5, of: ', last 20 points' })
    expect(speed({ totals }, lines([...Array(5).fill(9999), ...Array(20).fill(10)], Array(25).fill(1)))).toMatchObject({ rate: 10, step: 1 })
  })
  test('of a run that has ended is that of the whole run', () => {
    expect(speed({ totals: { ...totals, ended: true } }, lines([405], [0.367]))).toEqual({ rate: 349, step: 0.3, of: '' })
  })
  test('without known values is unknown', () => {
    expect(speed({ totals }, lines([null, null], [null, null]))).toMatchObject({ rate: null, step: null })
    expect(speed({ totals }, lines([null, 7], [2, 4]))).toMatchObject({ rate: 7, step: 3 })
    expect(speed({ totals }, { lines: [] })).toMatchObject({ rate: null, step: null })
  })
})

describe('the table of ranks', () => {
  const rank = (i: number, health: string, seconds: number | null) => ({ rank: i, health, cause: '', missing: seconds === null, busy_seconds: seconds }) as Parameters<typeof select>[0][number]
  test('shows all of a few ranks in their order', () => {
    const few = [rank(0, 'sick', 1), rank(1, '', 9)]
    expect(select(few)).toEqual(few)
  })
  test('shows the ranks of many that need attention, then the slowest', () => {
    const many = Array.from({ length: 1000 }, (_, i) => rank(i, i === 777 ? 'sick' : 'healthy', i === 888 ? null : i === 500 ? 3 : 1))
    expect(select(many).map(r => r.rank).slice(0, 5)).toEqual([777, 888, 500, 0, 1])
    expect(select(many)).toHaveLength(64)
  })
})

describe('step-time curves', () => {
  const curve = { rank: 0, fitted: [{ samples: 10, seconds: 1 }, { samples: 20, seconds: 3 }], shares: [{ samples: 12, steps: 5, mean: 1.5, min: 1, max: 2 }] }
  test('the time of a share is on the curve', () => {
    expect(timeAt(curve, 15)).toBe(2)
    expect(timeAt(curve, 20)).toBe(3)
    expect(timeAt({ ...curve, fitted: null }, 12)).toBe(1.5)
  })
  test('points of all curves share one axis', () => {
    const a = align([curve], [15])
    expect(a.x).toEqual([10, 12, 15, 20])
    expect(a.chosen[0]).toEqual([null, null, 2000, null])
    expect(a.measured[0]).toEqual([null, 1500, null, null])
  })
})

test('the longest number fits the axis', () => expect([axisSize(null, ['0', '2\u202f000\u202f000']), axisSize(null, null)]).toEqual([83, 44]))

test('a field of a CSV file is quoted, and is no formula', () => {
  expect([quote('a,b'), quote('say "x"'), quote('=1+1')]).toEqual(['"a,b"', '"say ""x"""', "'=1+1"])
})

test('ranks from a text', () => {
  expect([parseRanks('0, 3,3'), parseRanks(''), parseRanks('x,-1'), parseRanks('7')]).toEqual([[0, 3], null, null, [7]])
})

test('the list of runs names what a copy lacks', () => {
  expect([missing({}), missing({ lacking: 'no records of rank 1' }), missing({ cut: 'rank_1_metrics.json: the file lacks its end' })])
    .toEqual(['', 'no records of rank 1', 'rank_1_metrics.json: the file lacks its end'])
})
