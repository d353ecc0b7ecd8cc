import { afterEach, expect, test, vi } from 'vitest'
import { Busy, view } from './api'

afterEach(() => vi.unstubAllGlobals())

test.each([[503, true], [500, false]])('status %d: the server is busy: %s', async (status, busy) => {
  vi.stubGlobal('fetch', async () => new Response('8 runs are being watched', { status }))
  const error = await view('a').catch((e: unknown) => e)
  expect(error).toBeInstanceOf(Error)
  expect(error instanceof Busy).toBe(busy)
  expect((error as Error).message).toBe('8 runs are being watched')
})
