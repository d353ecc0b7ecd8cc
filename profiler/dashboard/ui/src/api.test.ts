import { expect, test, vi } from 'vitest'
import { figures, validName, view } from './api'

test.each([503, 500, 404])('status %i: the error has the text of the server', async status => {
  vi.stubGlobal('fetch', async () => new Response('8 runs are being watched\n', { status }))
  await expect(view('a')).rejects.toThrow(/^8 runs are being watched$/)
  await expect(view('a')).rejects.toMatchObject({ status })
})

test('a name is one part of the address, whatever its characters are', async () => {
  const asked: string[] = []
  vi.stubGlobal('fetch', async (path: string) => {
    asked.push(path)
    return new Response('{}')
  })
  await view('../runs/full?x')
  await figures('a#1', ['loss'], { from: 1, to: 0 }, 10, null)
  expect(asked).toEqual(['api/runs/..%2Fruns%2Ffull%3Fx', 'api/runs/a%231/figures?columns=loss&from=1&to=0&points=10'])
})

test.each([['a', true], ['r-1_B.2', true], ['_', true], ['a'.repeat(64), true], ['a'.repeat(65), false], ['', false], ['..', false], ['.a', false], ['-a', false], ['full/', false], ['\0', false], ['b#1', false], ['ä', false], ['a\n', false]])(
  'the name %j is valid: %s', (name, valid) => expect(validName(name)).toBe(valid))
