// The interface of the server: package profiler/dashboard.

import type { Communication } from './communication'
import type { Maybe } from './format'
import { Hub, signPause } from './hub'
import type { FromHub, FromPage } from './hub'

export type State = { kind: 'running' | 'finished' | 'stopped' | 'failed' | 'crashed' | 'unknown'; why: string }

export type Summary = {
  name: string; state: State; model: string; dataset: string; policy: string; ranks: number; lacking?: string; cut?: string
  steps: number; samples_per_second: Maybe; share_of_oracle: Maybe; loss: Maybe; updated: number
}

export type Listing = { runs: Summary[]; nested: string[] | null; others: number; left: number; folder: string; program: string; refresh_seconds: number }

export type RankRecord = {
  epoch: number; iteration: number; loss: Maybe; throughput: Maybe; iteration_time: number; data_loading_time: number; forward_time: number; backward_time: number
  communication_time: number; optimizer_time: number; communication_hidden_time: number; exchange_time: number
  gpu_utilization: Maybe; gpu_memory_percent: Maybe; batch_size: number; timestamp: Maybe; temperature: Maybe; power: Maybe
}

export type DecisionRank = {
  seconds: Maybe; fitted_seconds: Maybe; fitted_error_seconds: Maybe; waited_seconds: Maybe; caused_seconds: Maybe; health: string; cause?: string; evidence?: string
}

export type Decision = {
  step: number; policy: string; shares: number[]; next: number[]; changed: boolean; reason: string
  step_seconds: Maybe; fitted_step_seconds: Maybe; oracle_step_seconds: Maybe; share_of_oracle: Maybe; share_of_oracle_low: Maybe; share_of_oracle_high: Maybe
  share_of_oracle_unknown?: string; imbalance: Maybe; useful_seconds?: Maybe; lost_seconds: Record<string, Maybe> | null; noisy_rank?: Maybe; ranks?: DecisionRank[]
  equal_step_seconds?: Maybe; predicted_step_seconds?: Maybe; outcome?: { step: number; predicted: Maybe; achieved: Maybe } | null
}

export type Profile = {
  rank: number; host: string; memory_bytes: number; compute_score: number; relative_score: number
  device: { name: string; kind: string; model: string; isa: string; threads: number; cpus: number }
  measured: { dtype?: string; tflops?: Maybe; memory?: Record<string, unknown> } | null
}

export type Metric = { key: string; title: string; percent: boolean }

export type RunEvent = {
  step: number; time: string
  start?: { program: string; model: string; dataset: string; policy: string; ranks: number; batch_size: number; unit: string; units_per_sample: number; metrics: Metric[] | null }
  evaluation?: { samples: number; loss: Maybe; metrics: Record<string, Maybe>; best: boolean; seconds: number }
  checkpoint?: { seconds: number }
}

export type Verdict = { from: number; to: number; bound: string; rank: number; text: string; advice: string; step_seconds: number; parts_seconds?: Record<string, number> }
export type Alert = { step: number; kind: string; rank: number; text: string; evidence: string }
export type CurvePoint = { samples: number; seconds: number }
export type ShareTimes = { samples: number; steps: number; mean: number; min: number; max: number }
export type Curve = { rank: number; fitted: CurvePoint[] | null; shares: ShareTimes[] }

// Totals has the figures of the whole run. samples_per_second is null before its end.
export type Totals = { training_seconds: Maybe; step_seconds: Maybe; samples_per_second: Maybe; ended: boolean }

// common is the step of the records in ranks: the newest one that all ranks have. Times of ranks and speed are means over the window of the decision
// at step speed.decision, as in status; 0: they are those of the step common.
export type View = {
  name: string; version: number; state: State; totals: Totals; common: number; segment_from?: number; progress: { read: number; bytes: number }; first: number; last: number
  settings: { model: { name: string }; data: { dataset: string; batch_size: number }; balance: { policy: string; interval: number }; train: { precision: string; grad_accumulation: number } }
  precision: string; notes: string[] | null; lacking: string
  result: { error?: string; ranks?: number; final_train_loss?: Maybe; best_eval?: Maybe; best_eval_metric?: string; best_eval_step?: number; notes?: string[] | null } | null
  profiles: Profile[] | null
  ranks: { rank: number; record: RankRecord | null; health: string; cause: string; missing?: boolean; share: Maybe; busy_seconds: Maybe; waited_seconds: Maybe; samples_per_second: Maybe }[]
  speed: { decision: number; step_seconds: Maybe; samples_per_second: Maybe }
  decision: Decision | null; changes: Decision[] | null; starts: RunEvent[] | null; length: number; evals: RunEvent[] | null; saves: RunEvent[] | null
  verdicts: Verdict[] | null; alerts: Alert[] | null; damaged: Record<string, string> | null; curves: Curve[]; communication?: Communication | null
}

export const allRanks = -1
export const band = -2

export type Line = { column: string; unit: string; rank: number; mean: Maybe[]; min?: Maybe[]; max?: Maybe[]; worst?: number[] }
export type Figures = { version: number; from: number; to: number; width: number; steps: number[]; times: number[]; lines: Line[] }

// Refusal is an answer of the server that is not the data.
export class Refusal extends Error {
  constructor(readonly status: number, message: string) { super(message) }
}

async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await fetch(path, { signal, credentials: 'same-origin', headers: { Accept: 'application/json' } })
  if (response.status === 401) location.assign('login.html')
  if (!response.ok) throw new Refusal(response.status, (await response.text()).trim() || response.statusText)
  return (await response.json()) as T
}

// validName reports whether a run can have this name: experiment.ValidName.
export const validName = (name: string): boolean => /^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$/.test(name)

export const list = (signal?: AbortSignal) => get<Listing>('api/runs', signal)
export const view = (run: string, signal?: AbortSignal) => get<View>(`api/runs/${encodeURIComponent(run)}`, signal)

// config returns the settings of a run, as TOML.
export async function config(run: string, signal?: AbortSignal): Promise<string> {
  const response = await fetch(`api/runs/${encodeURIComponent(run)}/config`, { signal, credentials: 'same-origin' })
  if (!response.ok) throw new Refusal(response.status, (await response.text()).trim() || response.statusText)
  return response.text()
}

export type Range = { from: number; to: number } // steps; to = 0 is the newest step

export function figures(run: string, columns: string[], range: Range, points: number, ranks: number[] | null, signal?: AbortSignal): Promise<Figures> {
  const query = new URLSearchParams({ columns: columns.join(','), from: String(range.from), to: String(range.to), points: String(points) })
  if (ranks) query.set('ranks', ranks.join(','))
  return get<Figures>(`api/runs/${encodeURIComponent(run)}/figures?${query}`, signal)
}

type Post = (message: FromPage) => void

// connect returns the function that sends messages to the hub of all pages, which runs in a shared worker. A browser without shared workers,
// or one that does not start this worker, gets a hub for this page alone.
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

// follow calls changed with the version of a run, first of its state then and later after each change, and state when the connection is lost or
// restored. Versions grow while there is a connection. It calls refused with the reason if the server does not follow the run; missing: because
// there is no such run. The returned function ends it.
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
  addEventListener('pageshow', here) // again after the user has come back to the page
  here()
  return () => {
    clearInterval(timer)
    removeEventListener('pagehide', gone)
    removeEventListener('pageshow', here)
    gone()
  }
}
