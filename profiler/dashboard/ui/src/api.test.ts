import { expect, test, vi } from 'vitest'
import { view } from './api'

test.each([503, 500, 404])('status %i: the error has the text of the server', async status => {
  vi.stubGlobal('fetch', async () => new Response('8 runs are being watched\n', { status }))
  await expect(view('a')).rejects.toThrow(/^8 runs are being watched$/)
  await expect(view('a')).rejects.toMatchObject({ status })
})
