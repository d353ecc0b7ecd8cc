import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { Paced } from './paced'

beforeEach(() => { vi.useFakeTimers() })
afterEach(() => { vi.useRealTimers() })

const second = 1000

// start returns a Paced whose loads take the given time. It also returns the times at which loads began and were
// aborted.
function start(takes: number) {
  const begun: number[] = [], aborted: number[] = [], from = Date.now()
  const paced = new Paced(signal => {
    begun.push((Date.now() - from) / second)
    signal.addEventListener('abort', () => aborted.push((Date.now() - from) / second))
    return new Promise(done => { setTimeout(done, takes) })
  }, 60 * second)
  return { paced, begun, aborted }
}

describe('a load that costs much', () => {
  test('of a run that trains does not begin before the last one has ended, and after a pause', async () => {
    const { paced, begun } = start(30 * second)
    for (let i = 0; i < 200; i++) { // a page asks every 5 s
      paced.want()
      await vi.advanceTimersByTimeAsync(5 * second)
    }
    expect(begun).toEqual([0, 330, 660, 990])
  })
  test('that is short has the shortest pause', async () => {
    const { paced, begun } = start(second)
    for (let i = 0; i < 25; i++) {
      paced.want()
      await vi.advanceTimersByTimeAsync(5 * second)
    }
    expect(begun).toEqual([0, 65])
  })
  test('comes once more after the last new data', async () => {
    const { paced, begun } = start(second)
    paced.want()
    paced.want()
    for (let i = 0; i < 100; i++) {
      await vi.advanceTimersByTimeAsync(5 * second)
      paced.tick()
    }
    expect(begun).toEqual([0, 65])
  })
  test('is repeated if it was aborted', async () => {
    const { paced, begun, aborted } = start(30 * second)
    paced.want()
    await vi.advanceTimersByTimeAsync(5 * second)
    paced.abort()
    await vi.advanceTimersByTimeAsync(100 * second)
    expect([begun, aborted]).toEqual([[0], [5]])
    paced.tick()
    expect(begun).toEqual([0, 105])
  })
})
