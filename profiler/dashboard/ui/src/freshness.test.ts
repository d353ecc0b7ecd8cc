import { describe, expect, test } from 'vitest'
import { Freshness } from './freshness'

describe('freshness', () => {
  test('the first version of a run that the page is loading leads to no further load', () => {
    const f = new Freshness()
    expect(f.stale).toBe(true)
    const done = f.begin()
    f.announce(7)
    done(7)
    expect(f.stale).toBe(false)
    f.announce(8)
    expect(f.stale).toBe(true)
  })
  test('changes during a load lead to a further load', () => {
    const f = new Freshness(), done = f.begin()
    f.announce(8)
    done(7)
    expect(f.stale).toBe(true)
  })
  test('the first version of a server that was started again is a new one', () => {
    const f = new Freshness()
    f.begin()(7)
    f.lose()
    expect(f.stale).toBe(false)
    f.announce(2)
    expect(f.stale).toBe(true)
  })
  test('a load that began before the connection was lost does not hide the next version', () => {
    const f = new Freshness(), done = f.begin()
    f.lose()
    done(7)
    f.announce(2)
    expect(f.stale).toBe(true)
  })
  test('a load that failed is repeated after the next change', () => {
    const f = new Freshness()
    f.announce(3)
    f.begin()(null)
    expect(f.stale).toBe(false)
    f.announce(4)
    expect(f.stale).toBe(true)
  })
})
