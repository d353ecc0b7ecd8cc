// The interface of the server: package profiler/dashboard.

import type { Comparison, Figures, Listing, View } from './answers'
import { Hub, signPause } from './hub'
import type { FromHub, FromPage } from './hub'

export type * from './answers'

export const allRanks = -1
export const band = -2

// Refusal is an answer of the server that is not the data.
export class Refusal extends Error {
  constructor(readonly status: number, message: string) { super(message) }
}

async function get<T>(path: string, signal?: AbortSignal, body?: string): Promise<T> {
  const response = await fetch(path, { signal, body, method: body === undefined ? 'GET' : 'POST',
    credentials: 'same-origin', headers: { Accept: 'application/json' } })
  if (response.status === 401) location.assign('login.html')
  if (!response.ok) throw new Refusal(response.status, (await response.text()).trim() || response.statusText)
  return (await response.json()) as T
}

// validName reports whether a run can have this name: experiment.ValidName.
export const validName = (name: string): boolean => /^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$/.test(name)

export const list = (signal?: AbortSignal) => get<Listing>('api/runs', signal)
// If once is true, the page does not follow the run, so the server need not add it to the runs that it follows.
export const view = (run: string, signal?: AbortSignal, once = false) =>
  get<View>(`api/runs/${encodeURIComponent(run)}${once ? '?once' : ''}`, signal)

// compare returns the tables of a comparison: those of analyze --compare.
export const compare = (runs: string[], signal?: AbortSignal) =>
  get<Comparison>('api/compare', signal, JSON.stringify(runs))

export type Range = { from: number; to: number } // steps; to = 0 is the newest step

export function figures(run: string, columns: string[], range: Range, points: number, ranks: number[] | null, signal?: AbortSignal): Promise<Figures> {
  const query = new URLSearchParams({ columns: columns.join(','), from: String(range.from), to: String(range.to), points: String(points) })
  if (ranks) query.set('ranks', ranks.join(','))
  return get<Figures>(`api/runs/${encodeURIComponent(run)}/figures?${query}`, signal)
}

type Post = (message: FromPage) => void

// connect returns the function that sends messages to the hub of all pages, which runs in a shared worker. If the
// browser has no shared workers, or does not start this worker, connect creates a hub for this page alone.
function connect(receive: (message: FromHub) => void): Post {
  const own = (): Post => {
    const hub = new Hub(() => performance.now()), port = { postMessage: receive }
    return message => hub.receive(port, message)
  }
  if (typeof SharedWorker === 'undefined') return own()
  const worker = new SharedWorker(new URL('./stream.ts', import.meta.url), { type: 'module' })
  let post: Post = message => worker.port.postMessage(message)
  let last: FromPage = { run: null }
  worker.addEventListener('error', () => {
    post = own()
    post(last)
  })
  worker.port.onmessage = (e: MessageEvent<FromHub>) => receive(e.data)
  return message => {
    last = message
    post(message)
  }
}

// follow calls changed with the version of a run, first with the current version and then after each change. It calls
// state when the connection is lost or restored. Versions grow while there is a connection. If the server does not
// follow the run, follow calls refused with the reason; missing states that there is no such run. The returned function
// ends the subscription.
export function follow(run: string, changed: (version: number) => void, state: (connected: boolean) => void, refused: (why: string, missing: boolean) => void): () => void {
  const post = connect(message => {
    if ('version' in message) changed(message.version)
    else if ('refused' in message) refused(message.refused, message.missing)
    else state(message.connected)
  })
  const here = (): void => post({ run })
  const gone = (): void => post({ run: null })
  const timer = setInterval(here, signPause)
  addEventListener('pagehide', gone)
  addEventListener('pageshow', here) // connect again when the user returns to the page
  here()
  return () => {
    clearInterval(timer)
    removeEventListener('pagehide', gone)
    removeEventListener('pageshow', here)
    gone()
  }
}
