import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { follow } from './api'
import { Hub, signPause } from './hub'
import type { FromHub } from './hub'
import { busyPause } from './pauses'

// Source is an EventSource whose events the test sends.
class Source {
  static readonly CLOSED = 2
  static all: Source[] = []
  readyState = 1
  private readonly listeners = new Map<string, (e: { data: string }) => void>()
  constructor(readonly url: string) { Source.all.push(this) }
  addEventListener(name: string, listener: (e: { data: string }) => void): void { this.listeners.set(name, listener) }
  send(name: string, data: unknown = null): void { this.listeners.get(name)?.({ data: JSON.stringify(data) }) }
  close(): void { this.readyState = Source.CLOSED }
  static get open(): string[] { return Source.all.filter(s => s.readyState !== Source.CLOSED).map(s => s.url) }
  static get last(): Source { return Source.all.at(-1) as Source }
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

// pageOf returns a page that keeps its messages.
function pageOf(): { got: FromHub[]; postMessage: (m: FromHub) => void } {
  const got: FromHub[] = []
  return { got, postMessage: m => got.push(m) }
}

describe('hub', () => {
  test('seven pages share one stream, and each gets the versions of its run', () => {
    const hub = new Hub(() => 0), pages = Array.from({ length: 7 }, pageOf)
    pages.forEach((p, i) => hub.receive(p, { run: i < 6 ? 'a' : 'b' }))
    vi.advanceTimersByTime(100)
    expect(Source.all.map(s => s.url)).toEqual(['api/stream?run=a&run=b'])
    Source.last.send('version', { run: 'a', version: 3 })
    Source.last.send('version', { run: 'b', version: 4 })
    expect(pages.map(p => p.got.at(-1))).toEqual([...Array(6).fill({ version: 3 }), { version: 4 }])
  })
  test('a page that opens later gets the version, and no other page loads again', () => {
    const hub = new Hub(() => 0), first = pageOf(), second = pageOf()
    hub.receive(first, { run: 'a' })
    vi.advanceTimersByTime(100)
    Source.last.send('version', { run: 'a', version: 3 })
    hub.receive(second, { run: 'a' })
    expect(second.got).toContainEqual({ version: 3 })
    hub.receive(pageOf(), { run: 'b' })
    vi.advanceTimersByTime(100)
    expect(Source.open).toEqual(['api/stream?run=a&run=b'])
    Source.last.send('version', { run: 'a', version: 3 })
    expect(first.got.filter(m => 'version' in m)).toEqual([{ version: 3 }])
  })
  test('closes the stream after the last page', () => {
    const hub = new Hub(() => 0), page = pageOf()
    hub.receive(page, { run: 'a' })
    vi.advanceTimersByTime(100)
    expect(Source.open.length).toBe(1)
    hub.receive(page, { run: null })
    vi.advanceTimersByTime(100)
    expect(Source.open.length).toBe(0)
  })
  test('takes a page that is silent for minutes for closed', () => {
    let now = 0
    const hub = new Hub(() => now), crashed = pageOf(), other = pageOf()
    hub.receive(crashed, { run: 'a' })
    hub.receive(other, { run: 'b' })
    vi.advanceTimersByTime(100)
    for (now = signPause; now <= 8 * signPause; now += signPause) hub.receive(other, { run: 'b' })
    vi.advanceTimersByTime(100)
    expect(Source.open).toEqual(['api/stream?run=b'])
  })
  test('a page of a refused run gets the version when the server follows the run, by the same stream', () => {
    const hub = new Hub(() => 0), page = pageOf(), refused = pageOf()
    hub.receive(page, { run: 'a' })
    hub.receive(refused, { run: 'b' })
    vi.advanceTimersByTime(100)
    Source.last.send('version', { run: 'a', version: 1 })
    Source.last.send('refused', { run: 'b', why: 'busy' })
    vi.advanceTimersByTime(10 * busyPause)
    expect(Source.all.length).toBe(1)
    Source.last.send('version', { run: 'b', version: 9 })
    expect([page, refused].map(p => p.got.slice(1))).toEqual([[{ version: 1 }], [{ refused: 'busy', missing: false }, { version: 9 }]])
  })
  test('pages get the version again after a lost connection, also if it is the same', () => {
    const hub = new Hub(() => 0), page = pageOf()
    hub.receive(page, { run: 'a' })
    vi.advanceTimersByTime(100)
    Source.last.send('version', { run: 'a', version: 3 })
    Source.last.send('error')
    const late = pageOf()
    hub.receive(late, { run: 'a' })
    expect(late.got).toEqual([{ connected: false }])
    Source.last.send('open')
    Source.last.send('version', { run: 'a', version: 3 })
    expect(page.got.slice(1)).toEqual([{ version: 3 }, { connected: false }, { connected: true }, { version: 3 }])
    expect(late.got.slice(1)).toEqual([{ connected: true }, { version: 3 }])
  })
  test('a page that opens after the last one closed does not show a former loss of the connection', () => {
    const hub = new Hub(() => 0), page = pageOf(), next = pageOf()
    hub.receive(page, { run: 'a' })
    vi.advanceTimersByTime(100)
    Source.last.send('error')
    hub.receive(page, { run: null })
    vi.advanceTimersByTime(100)
    hub.receive(next, { run: 'a' })
    expect(next.got).toEqual([{ connected: true }])
  })
})

// Without shared workers, as in this test, a page has its own hub.
describe('follow', () => {
  const begin = (): { stop: () => void; states: boolean[]; changes: () => number } => {
    vi.stubGlobal('addEventListener', () => {})
    vi.stubGlobal('removeEventListener', () => {})
    const states: boolean[] = []
    let changes = 0
    const stop = follow('a', () => changes++, c => states.push(c), () => {})
    vi.advanceTimersByTime(100)
    return { stop, states, changes: () => changes }
  }
  const refuse = (): void => {
    Source.last.close()
    Source.last.send('error')
  }
  test('a page of a run that does not exist gets the reason, and no old version of the run is shown later', () => {
    const hub = new Hub(() => 0), page = pageOf(), later = pageOf()
    hub.receive(page, { run: 'a' })
    vi.advanceTimersByTime(100)
    Source.last.send('version', { run: 'a', version: 3 })
    Source.last.send('refused', { run: 'a', why: 'the folder of the run no longer exists', missing: true })
    hub.receive(later, { run: 'a' })
    expect(page.got.at(-1)).toEqual({ refused: 'the folder of the run no longer exists', missing: true })
    expect(later.got.filter(m => 'version' in m)).toEqual([])
  })
  test('opens the stream again after the server has refused it', () => {
    const page = begin()
    refuse()
    expect(Source.all.length).toBe(1)
    vi.advanceTimersByTime(busyPause)
    expect(Source.all.map(s => s.url)).toEqual(['api/stream?run=a', 'api/stream?run=a'])
    Source.last.send('open')
    Source.last.send('version', { run: 'a', version: 1 })
    expect([page.states, page.changes()]).toEqual([[true, false, true], 1])
  })
  test('leaves a lost connection to the browser', () => {
    begin()
    Source.last.send('error')
    vi.advanceTimersByTime(10 * busyPause)
    expect(Source.all.length).toBe(1)
  })
  test('does not open a stream after its end', () => {
    const page = begin()
    refuse()
    page.stop()
    vi.advanceTimersByTime(10 * busyPause)
    expect(Source.all.length).toBe(1)
  })
})
