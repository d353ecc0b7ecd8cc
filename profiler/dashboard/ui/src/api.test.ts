import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { Busy, busyPause, follow, view } from './api'

// Source is an EventSource whose events the test sends.
class Source {
  static readonly CLOSED = 2
  static all: Source[] = []
  readyState = 1
  private readonly listeners = new Map<string, () => void>()
  constructor(readonly url: string) { Source.all.push(this) }
  addEventListener(name: string, listener: () => void): void { this.listeners.set(name, listener) }
  send(name: string): void { this.listeners.get(name)?.() }
  close(): void { this.readyState = Source.CLOSED }
}

beforeEach(() => {
  vi.useFakeTimers()
  Source.all = []
  vi.stubGlobal('EventSource', Source)
})
afterEach(() => {
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

describe('follow', () => {
  const refuse = (s: Source | undefined): void => {
    s?.close()
    s?.send('error')
  }
  test('opens the stream again after the server has refused it', () => {
    const states: boolean[] = []
    let changes = 0
    follow('a', () => changes++, c => states.push(c))
    refuse(Source.all[0])
    expect(Source.all.length).toBe(1)
    vi.advanceTimersByTime(busyPause)
    expect(Source.all.map(s => s.url)).toEqual(['/api/stream?run=a', '/api/stream?run=a'])
    Source.all[1]?.send('open')
    Source.all[1]?.send('version')
    expect([states, changes]).toEqual([[false, true], 1])
  })
  test('leaves a lost connection to the browser', () => {
    follow('a', () => {}, () => {})
    Source.all[0]?.send('error')
    vi.advanceTimersByTime(10 * busyPause)
    expect(Source.all.length).toBe(1)
  })
  test('does not open a stream after its end', () => {
    const stop = follow('a', () => {}, () => {})
    refuse(Source.all[0])
    stop()
    vi.advanceTimersByTime(10 * busyPause)
    expect(Source.all.length).toBe(1)
  })
})

test.each([[503, true], [500, false]])('status %d: the server is busy: %s', async (status, busy) => {
  vi.stubGlobal('fetch', async () => new Response('8 runs are being watched', { status }))
  const error = await view('a').catch((e: unknown) => e)
  expect(error).toBeInstanceOf(Error)
  expect(error instanceof Busy).toBe(busy)
  expect((error as Error).message).toBe('8 runs are being watched')
})
