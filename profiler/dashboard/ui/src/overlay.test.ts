import { describe, expect, test, vi } from 'vitest'
import type { Figures, View } from './api'
import { condense, overlay, prepare } from './overlay'
import type { Compared } from './overlay'
import { panels } from './panels'

vi.mock('./theme', () => ({ color: (n: string) => n, seriesColor: (i: number) => 'series-' + i, seriesDash: () =>
  undefined, partColor: (n: string) => n }))

const line = (column: string, rank: number, mean: (number | null)[], max?: number[]) =>
  ({ column, rank, unit: 's', mean, max })
const figures = (...lines: ReturnType<typeof line>[]): Figures =>
  ({ version: 1, from: 1, to: 2, width: 1, steps: [1, 2], times: [10, 20], lines })
const view = (ranks: number, unit = '', perSample = 1): View => ({
  ranks: Array(ranks).fill({}), evals: null, starts: [{ start: { unit, units_per_sample: perSample } }],
}) as unknown as View
const panel = (id: string) => panels.find(p => p.id === id) ?? panels[0]!

const run = (label: string, index: number, f: Figures, v = view(2)): Compared => ({ label, index, view: v, figures: f })

describe('the charts of a comparison', () => {
  const own = (n: number) => figures(line('own', 0, [n, n]), line('own', 1, [2 * n, 2 * n]))
  test('a run has one colour, and a line for each of a few ranks', () => {
    const [chart] = overlay(panel('own'), prepare([run('policy=none', 0, own(1)), run('policy=hybrid', 3, own(2))],
      null), null, false)
    expect(chart?.content.series.map(s => [s.label, s.color, s.dash, s.values])).toEqual([
      ['policy=none, rank 0', 'series-0', undefined, [1000, 1000]],
        ['policy=none, rank 1', 'series-0', [8, 4], [2000, 2000]],
      ['policy=hybrid, rank 0', 'series-3', undefined, [2000, 2000]],
        ['policy=hybrid, rank 1', 'series-3', [8, 4], [4000, 4000]],
    ])
  })
  test('of many ranks, the median and the extremes are shown, unless the reader has chosen ranks', () => {
    const runs = [run('a', 0, own(1), view(8)), run('b', 1, own(3), view(8))]
    const [median] = overlay(panel('own'), prepare(runs, null), null, false)
    expect(median?.content.series.map(s => [s.label, s.values, s.low, s.high])).toEqual(
      [['a', [1500, 1500], [1000, 1000], [2000, 2000]], ['b', [4500, 4500], [3000, 3000], [6000, 6000]]])
    expect(overlay(panel('own'), prepare(runs, [0, 1]), [0, 1], false)[0]?.content.series.length).toBe(4)
  })
  test('a rank without value does not count in the median', () => {
    expect(condense(figures(line('own', 0, [1, null]), line('own', 1, [3, null]), line('own', 2, [8, 5]))).lines[
      0]?.mean).toEqual([3, 5])
  })
  test('a line without values is left out', () => {
    const [chart] = overlay(panel('own'), [run('a', 0, figures(line('own', 0, [1, 1]), line('own', 1, [null, null])))],
      null, false)
    expect(chart?.content.series.length).toBe(1)
  })
  test('each cause of lost time has a chart', () => {
    const f = figures(line('lost_imbalance', -1, [0.1, 0.1]), line('lost_noise', -1, [0.2, 0.2]))
    expect(overlay(panel('lost'), [run('a', 0, f), run('b', 1, f)], null, false).map(o =>
      [o.title, o.content.series.map(s => s.label)]))
      .toEqual([['Lost time by cause: imbalance', ['a', 'b']], ['Lost time by cause: noise', ['a', 'b']]])
  })
  test('over time, a value is at the training time of its step', () => {
    const slow = figures(line('loss', -1, [5, 4]), line('training_time', -1, [1, 9], [2, 10])), fast =
      figures(line('loss', -1, [5, 3]), line('training_time', -1, [1, 2]))
    const [chart] = overlay(panel('loss'), [run('a', 0, slow), run('b', 1, fast)], null, true)
    expect(chart?.content).toMatchObject({ steps: [1, 2, 10], axis: { label: 'training time (s)' } })
    expect(chart?.content.series.map(s => s.values)).toEqual([[null, 5, 4], [5, 3, null]])
  })
  test('over time, a point whose time is unknown is left out', () => {
    const f = figures(line('loss', -1, [5, 4]), line('training_time', -1, [null, 9]))
    const [chart] = overlay(panel('loss'), [run('a', 0, f)], null, true)
    expect([chart?.content.steps, chart?.content.series.map(s => s.values)]).toEqual([[9], [[4]]])
  })
  test('a throughput has the unit of the runs, or samples if the units differ', () => {
    const f = figures(line('total_throughput', -1, [10, 10])), text = run('a', 0, f, view(1, 'tok', 32)), images =
      run('b', 1, f, view(1, 'img'))
    const chart = (runs: Compared[]) => overlay(panel('throughput'), prepare(runs, null), null, false)[0]?.content
    expect([chart([text, text])?.unit, chart([text, text])?.series[0]?.values]).toEqual(['tok/s', [320, 320]])
    expect([chart([text, images])?.unit, chart([text, images])?.series[0]?.values]).toEqual(['samples/s', [10, 10]])
  })
})
