// The shared worker of all pages of a browser.

import { Hub } from './hub'
import type { FromPage } from './hub'

const hub = new Hub(() => performance.now())

// The types of the page do not include the types of a worker.
;(self as unknown as { onconnect: (e: MessageEvent) => void }).onconnect = e => {
  const port = e.ports[0]
  if (!port) return
  port.onmessage = (m: MessageEvent<FromPage>) => hub.receive(port, m.data)
}
