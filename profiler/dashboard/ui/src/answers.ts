// The answers of the server. Written by: go test ./profiler/dashboard -run Types -args -update

import type { Maybe } from './format'

export type State = {
  kind: string
  why: string
  saved: boolean
}

export type Summary = {
  name: string
  state: State
  model: string
  dataset: string
  policy: string
  ranks: number
  lacking?: string
  cut?: string
  damaged?: string
  steps: number
  samples_per_second: Maybe
  share_of_oracle: Maybe
  loss: Maybe
  best_eval: Maybe
  best_eval_metric?: string
  updated: number
}

export type Listing = {
  runs: Summary[]
  nested: string[] | null
  others: number
  left: number
  folder: string
  program: string
  refresh_seconds: number
}

export type Settings = {
  model: { name: string }
  data: { dataset: string; batch_size: number }
  balance: { policy: string; interval: number }
  profile: { enabled: boolean | null; interval: number }
  train: { precision: string; grad_accumulation: number }
}

export type ResultEvaluation = {
  step: number
  samples: number
  loss: Maybe
  metrics: Record<string, Maybe> | null
}

export type Script = {
  program: string
  saved_step: Maybe
  closed: boolean
}

export type Result = {
  steps: number
  epochs: number
  final_train_loss: Maybe
  best_eval: Maybe
  best_eval_metric: string
  best_eval_step: number
  last_eval?: ResultEvaluation
  samples_per_second: Maybe
  state: string
  exit: number
  error?: string
  out_of_time?: boolean
  gave_up?: string
  early_stop?: string
  start?: string
  program: string
  model: string
  dataset: string
  device: string
  precision: string
  batch_size: number
  ranks: number
  samples_seen: number
  skipped_steps: number
  unreadable_samples: number
  seconds: Maybe
  started: string
  ended: string
  checkpoint: string
  notes: string[] | null
  script?: Script
  extra?: Record<string, unknown>
}

export type Profile = {
  rank: number
  host: string
  device: { name: string; kind: string; model: string; isa: string; threads: number; cpus: number }
  memory_bytes: number
  compute_score: number
  relative_score: number
  measured: unknown
  gpu?: unknown
}

export type RankRecord = {
  epoch: number
  iteration: number
  loss: Maybe
  throughput: Maybe
  iteration_time: Maybe
  data_loading_time: number
  forward_time: number
  backward_time: number
  communication_time: number
  optimizer_time: number
  communication_hidden_time: number
  exchange_time: number
  communication_bytes: number
  communication_buckets: number
  batch_size: number
  timestamp: Maybe
  rank: number
  accuracy: Maybe
  learning_rate: Maybe
  grad_norm: Maybe
  loss_scale: Maybe
  skipped: boolean
  step_time?: number
  training_time?: number
  gpu_memory_percent: Maybe
  gpu_utilization: Maybe
  temperature: Maybe
  power: Maybe
  nvlink_sent?: Maybe
  nvlink_received?: Maybe
  pcie_sent?: Maybe
  pcie_received?: Maybe
  network_sent?: Maybe
  network_received?: Maybe
  rdma_sent?: Maybe
  rdma_received?: Maybe
  image_decoder_bytes?: Maybe
}

export type Part = {
  name: string
  bytes: number
}

export type MemoryView = {
  samples: number
  unified: boolean
  device: Part[] | null
  host: Part[] | null
  optional: Part[] | null
  device_bytes: number
  host_bytes: number
  device_limit: number
  limit: number
  limit_source: string
  used: number
  used_at_least: boolean
  image_decoders: number
}

export type RankView = {
  rank: number
  record: RankRecord | null
  health: string
  cause: string
  share: Maybe
  busy_seconds: Maybe
  waited_seconds: Maybe
  samples_per_second: Maybe
  memory: MemoryView | null
  missing?: boolean
}

export type Totals = {
  training_seconds: Maybe
  step_seconds: Maybe
  samples_per_second: Maybe
  ended: boolean
}

export type Speed = {
  decision: number
  samples: Maybe
  step_seconds: Maybe
  samples_per_second: Maybe
}

export type Outcome = {
  step: number
  predicted: Maybe
  achieved: Maybe
  achieved_low: Maybe
  achieved_high: Maybe
  worse?: boolean
}

export type DecisionRank = {
  seconds: Maybe
  fitted_seconds: Maybe
  fitted_error_seconds: Maybe
  waited_seconds: Maybe
  caused_seconds: Maybe
  health: string
  cause?: string
  evidence?: string
}

export type Decision = {
  step: number
  policy: string
  shares: number[]
  next: number[]
  changed: boolean
  reason: string
  step_seconds: Maybe
  fitted_step_seconds: Maybe
  oracle_step_seconds: Maybe
  share_of_oracle: Maybe
  share_of_oracle_low: Maybe
  share_of_oracle_high: Maybe
  share_of_oracle_unknown?: string
  share_of_oracle_disagreement?: string
  imbalance: Maybe
  useful_seconds: Maybe
  noisy_rank: Maybe
  noise_cause?: string
  noise_evidence?: string
  lost_seconds: Record<string, Maybe> | null
  equal_step_seconds: Maybe
  equal_step_seconds_low: Maybe
  equal_step_seconds_high: Maybe
  equal_step_unknown?: string
  predicted_step_seconds: Maybe
  outcome: Outcome | null
  ranks?: DecisionRank[]
}

export type Metric = {
  key: string
  title: string
  percent: boolean
}

export type StartEvent = {
  program: string
  model: string
  dataset: string
  policy: string
  ranks: number
  batch_size: number
  precision: string
  unit: string
  units_per_sample: number
  metrics: Metric[] | null
  best_metric: string
  notes?: string[]
}

export type LengthEvent = {
  steps: number
  epoch_steps: number
}

export type EvaluationEvent = {
  samples: number
  loss: Maybe
  metrics: Record<string, Maybe> | null
  best: boolean
  seconds: number
}

export type BottleneckEvent = {
  bound: string
  rank: number
  text: string
  advice: string
  step_seconds: number
  parts_seconds: Record<string, number> | null
}

export type CheckpointEvent = {
  seconds: number
}

export type RunEvent = {
  step: number
  time: string
  start?: StartEvent
  length?: LengthEvent
  evaluation?: EvaluationEvent
  bottleneck?: BottleneckEvent
  checkpoint?: CheckpointEvent
}

export type Verdict = {
  from: number
  to: number
  newest_from: number
  bound: string
  rank: number
  text: string
  advice: string
  step_seconds: number
  parts_seconds: Record<string, number> | null
}

export type Alert = {
  step: number
  kind: string
  rank: number
  text: string
  evidence: string
}

export type CurvePoint = {
  samples: number
  seconds: number
}

export type ShareTimes = {
  samples: number
  steps: number
  mean: number
  min: number
  max: number
}

export type Curve = {
  rank: number
  fitted: CurvePoint[] | null
  shares: ShareTimes[]
}

export type RankCommunicationView = {
  rank: number
  compute_seconds: number
  exposed_seconds: number
  hidden_seconds: number
  bytes: number
}

export type Bucket = {
  name: string
  bytes: number
  exposed_seconds?: Maybe
  hidden_seconds?: Maybe
  bus_bandwidth?: Maybe
}

export type Link = {
  rank: number
  kind: string
  name: string
  limit?: number
  basis: string
  sent?: Maybe
  received?: Maybe
}

export type Communication = {
  step: number
  steps: number
  time: number
  step_seconds: number
  ranks: RankCommunicationView[]
  buckets: Bucket[] | null
  links: Link[]
  left: number
}

export type Account = {
  from: number
  to: number
  step_seconds: number
  parts_seconds: Record<string, number> | null
  bound: string
  verdict: string
  rank: Maybe
}

export type View = {
  name: string
  version: number
  state: State
  progress: { read: number; bytes: number }
  first: number
  last: number
  settings: Settings
  precision: string
  notes: string[] | null
  result: Result | null
  profiles: Profile[] | null
  ranks: RankView[]
  totals: Totals
  common: number
  speed: Speed
  decision: Decision | null
  changes: Decision[] | null
  starts: RunEvent[] | null
  length: number
  evals: RunEvent[] | null
  saves: RunEvent[] | null
  verdicts: Verdict[] | null
  alerts: Alert[] | null
  damaged: Record<string, string> | null
  lacking: string
  curves: Curve[]
  communication: Communication | null
  segment_from: number
  account: Account | null
}

export type Line = {
  column: string
  unit: string
  rank: number
  mean: Maybe[]
  min?: Maybe[]
  max?: Maybe[]
  worst?: number[]
}

export type Figures = {
  version: number
  from: number
  to: number
  width: number
  steps: number[]
  times: number[]
  lines: Line[]
}

export type Comparison = {
  runs: string[]
  labels: string[]
  results: string[][]
  settings: string[][]
  notes: string[]
  compared: string[]
  failed: Record<string, string>
  why: string
}

// Charts of one metric, from telemetry.Metrics.
export const charts = [
  {"id":"rate","title":"Learning rate","label":"learning rate","explain":"Learning rate of each step.","digits":3,"zero":true,"optional":false,"column":"learning_rate","unit":""},
  {"id":"norm","title":"Gradient norm","label":"gradient norm","explain":"Norm of all gradients before clipping. Peaks often precede a diverging loss.","digits":0,"zero":true,"optional":true,"column":"grad_norm","unit":""},
]

// Policies that equalize the measured times of the ranks, from policies.Makers.
export const learning = ['hybrid']
