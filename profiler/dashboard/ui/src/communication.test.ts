import { describe, expect, test, vi } from 'vitest'
import type { Communication } from './api'
import { finding, trafficPanels, use } from './communication'

const c = (over: Partial<Communication>): Communication => ({ step: 10, steps: 5, time: 0, left: 0, step_seconds: 0, ranks: [], buckets: null, links: [], ...over })

vi.mock('./theme', () => ({ color: () => '#000', seriesColor: () => '#000', seriesDash: () => undefined,
  partColor: () => '#000' }))

describe('communication and compute', () => {
  test('the use of a link is its larger direction', () => {
    const link = { rank: 0, kind: 'network', name: 'eth0', basis: 'counter', limit: 100, sent: 20, received: 80 }
    expect(use(link)).toBe(0.8)
    expect(use({ ...link, received: undefined })).toBe(0.2)
    expect(use({ ...link, limit: undefined })).toBeNull()
    expect(use({ ...link, sent: undefined, received: undefined })).toBeNull()
  })
  test('the finding names the rank that waits longest and the busiest link', () => {
    const ranks = [{ rank: 0, compute_seconds: 0.09, exposed_seconds: 0.01, hidden_seconds: 0.03, bytes: 1 }, { rank: 1, compute_seconds: 0.08, exposed_seconds: 0.02, hidden_seconds: 0.06, bytes: 1 }]
    const links = [{ rank: 1, kind: 'network', name: 'eth0', basis: 'counter', limit: 100, sent: 90 }]
    expect(finding(c({ ranks, links }))).toBe('Rank 1 waits longest for gradients: 20.0\u00a0ms, 20\u00a0% of its time. The backward pass hides 75\u00a0% of its communication. The busiest link, eth0 of rank 1, carries 90\u00a0% of its limit.')
    expect(finding(c({}))).toBe('')
  })
  test('both directions of a kind of link are lines, without ranks that lack it', () => {
    const network = trafficPanels.find(p => p.id === 'traffic-network')
    const line = (column: string, rank: number) => ({ column, rank, unit: 'bytes/s', mean: [1e6, null] })
    const f = { version: 1, from: 1, to: 2, width: 1, steps: [1, 2], times: [0, 0], lines: [line('network_sent', 0), line('network_received', 0), line('pcie_sent', 1)] }
    expect(network?.series(f, {} as never).map(s => [s.label, s.values])).toEqual([['rank 0 sent', [1, null]], ['rank 0 received', [1, null]]])
  })
})
