// Shares one stream of the server among all pages of a browser: with HTTP/1.1, a browser opens at most six connections to a server.

import { busyPause } from './pauses'

// A page sends its run when it opens and every signPause ms, and null when it closes.
export type FromPage = { run: string | null }
export type FromHub = { version: number } | { connected: boolean } | { refused: string; missing: boolean }

export type Port = { postMessage: (message: FromHub) => void }

export const signPause = 30_000 // ms
const silence = 200_000 // ms without a sign after which a page counts as closed; browsers run the timers of hidden pages only once a minute
const joinTime = 20 // ms; pages that open or close together cause one request

type Page = { run: string; heard: number }

export class Hub {
  private readonly pages = new Map<Port, Page>()
  private readonly versions = new Map<string, number>()
  private source: EventSource | null = null
  private runs = '' // of the source, as a query
  private connected = true
  private timer: ReturnType<typeof setTimeout> | undefined

  constructor(private readonly now: () => number) {}

  receive(port: Port, message: FromPage): void {
    const before = this.pages.get(port)
    if (message.run === null) this.pages.delete(port)
    else this.pages.set(port, { run: message.run, heard: this.now() })
    for (const [p, page] of this.pages) if (this.now() - page.heard > silence) this.pages.delete(p)
    if (message.run !== null && before?.run !== message.run) {
      port.postMessage({ connected: this.connected })
      const version = this.versions.get(message.run)
      if (version !== undefined) port.postMessage({ version })
    }
    if (this.query() !== this.runs) this.reopen(joinTime)
  }

  private query(): string {
    return [...new Set([...this.pages.values()].map(p => p.run))].sort().map(r => 'run=' + encodeURIComponent(r)).join('&')
  }

  private reopen(pause: number): void {
    clearTimeout(this.timer)
    this.timer = setTimeout(() => this.open(), pause)
  }

  private open(): void {
    this.source?.close()
    this.source = null
    this.runs = this.query()
    const followed = new Set([...this.pages.values()].map(p => p.run))
    for (const run of this.versions.keys()) if (!followed.has(run)) this.versions.delete(run)
    if (this.runs === '') {
      this.connected = true // no stream has failed
      return
    }
    const source = new EventSource('api/stream?' + this.runs)
    this.source = source
    source.addEventListener('version', e => this.changed(JSON.parse(e.data as string) as { run: string; version: number }))
    // The page of a run that the server does not follow gets a version when the server follows the run.
    source.addEventListener('refused', e => {
      const { run, why, missing } = JSON.parse(e.data as string) as { run: string; why: string; missing?: boolean }
      this.versions.delete(run)
      this.send(run, { refused: why, missing: missing === true })
    })
    source.addEventListener('open', () => this.tell(true))
    source.addEventListener('error', () => {
      this.versions.clear() // changes can be missed until the connection is restored, and a restarted server counts from the beginning
      this.tell(false)
      // A browser reconnects after a lost connection, but not after an error status such as 503.
      if (source.readyState === EventSource.CLOSED) this.reopen(busyPause)
    })
  }

  private changed({ run, version }: { run: string; version: number }): void {
    if (this.versions.get(run) === version) return // the stream was opened again for another page
    this.versions.set(run, version)
    this.send(run, { version })
  }

  private send(run: string, message: FromHub): void {
    for (const [port, page] of this.pages) if (page.run === run) port.postMessage(message)
  }

  private tell(connected: boolean): void {
    this.connected = connected
    for (const port of this.pages.keys()) port.postMessage({ connected })
  }
}
