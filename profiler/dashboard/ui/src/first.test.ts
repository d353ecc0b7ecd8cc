import { describe, expect, test } from 'vitest'
import type { Decision, Figures, View } from './api'
import { account, advice, differs, empty, failure, gain, largest, means, outcome, sentence, slowest, unaccounted } from './first'
import { drawn, smooth } from './chart'

const line = (column: string, ...mean: number[]) => ({ column, unit: 's', rank: -1, mean })
const figures = (...lines: Figures['lines']): Figures => ({ version: 1, from: 1, to: 40, width: 1, steps: [10, 20], times: [], lines })
const decision = (over: Partial<Decision>): Decision => ({
  step: 20, policy: 'none', shares: [8, 8], next: [8, 8], changed: false, reason: 'equal shares', step_seconds: 0.112, useful_seconds: 0.07, fitted_step_seconds: null, oracle_step_seconds: null,
  share_of_oracle: 0.6, share_of_oracle_low: null, share_of_oracle_high: null, imbalance: 0.5, noisy_rank: null, equal_step_seconds: null, equal_step_seconds_low: null, equal_step_seconds_high: null, predicted_step_seconds: null, outcome: null, lost_seconds: { imbalance: 0.04, communication: 0.002 }, ...over,
})
const waiting = [{ caused_seconds: 0 }, { caused_seconds: 0.08 }] as Decision['ranks']
const run = (kind: View['state']['kind'], policy: string, over: Partial<View>) => ({
  state: { kind, why: '' }, settings: { balance: { policy } }, ranks: [{}, {}], decision: null, verdicts: null, changes: null,
  account: null, segment_from: 1, first: 1, last: 40, ...over,
}) as View

describe('the first screen', () => {
  const lost = figures(line('decided_step', 0.1, 0.124), line('useful', 0.06, 0.08), line('lost_imbalance', 0.04, 0.04), line('equal_step', 0.15, 0.2))
  const decided = { ...lost, to: 20 } // all steps have a decision

  test('a running run has the newest window, a finished one all its steps', () => {
    const d = decision({ ranks: waiting })
    expect(account(run('running', 'none', { decision: d }), lost)?.step).toBe(0.112)
    expect(account(run('finished', 'none', { decision: d }), lost)?.step).toBeCloseTo(0.112)
    expect(account(run('finished', 'none', { decision: d }), lost)?.lost.get('imbalance')).toBe(0.04)
    expect(account(run('running', 'none', {}), figures())).toBeNull()
  })
  test('the sentence has the use, the largest loss and what hybrid would bring', () => {
    const v = run('running', 'none', { decision: decision({ ranks: waiting }) }), a = account(v, figures())
    expect(a && sentence(v, a, null, figures()).replaceAll('\u00a0', ' ')).toBe(
      'The cluster does 63 % of what it could. Rank 1 is waited for: 40.0 of 112 ms a step. Policy hybrid would make it about 1.56 times faster.')
    expect(advice(v, a).replaceAll('\u00a0', ' ')).toBe('Set balance.policy = "hybrid" (now "none"): it saves about 40.0 ms a step. A run that is stopped resumes with it.')
  })
  test('policy hybrid states its gain, also a loss', () => {
    const d = decision({ policy: 'hybrid', useful_seconds: 0.11, lost_seconds: { communication: 0.002 } }), v = run('finished', 'hybrid', { decision: d })
    const a = { step: 0.112, useful: 0.11, lost: new Map([['communication', 0.002]]), of: '' }
    expect(gain(decided)).toMatchObject({ low: null, high: null })
    expect(gain(decided)?.value).toBeCloseTo(0.35 / 0.224)
    expect(sentence(v, a, gain(decided), lost).replaceAll('\u00a0', ' ')).toBe(
      'The cluster did 98 % of what it could. No loss exceeded 5.00 % of a step. It was about 1.56 times faster than with equal shares (estimate).')
    expect(sentence(v, a, { value: 0.5, low: 0.4, high: 0.8, part: 1 }, lost)).toContain(
      'Equal shares would be about 2.00 times faster (estimate, 90 % interval 1.25 to 2.50).')
  })
  test('a fraction of the oracle that differs from the times of the ranks says why', () => {
    const of = (why?: string) => differs(decision({ share_of_oracle: 1, share_of_oracle_disagreement: why })).replaceAll('\u00a0', ' ')
    expect(of('rank 0 is busy for 1.8 of 8.0 ms')).toBe('Fraction of the oracle: 100 %; rank 0 is busy for 1.8 of 8.0 ms.')
    expect(of()).toBe('')
  })
  test('after the end, the advice is that for the largest loss', () => {
    const verdict = (bound: string, advice: string) => ({ from: 1, to: 50, newest_from: 1, bound, rank: -1, text: '', advice,
      step_seconds: 1, parts_seconds: null })
    const verdicts = [verdict('communication-bound', 'larger batches'), verdict('noise-bound', 'check the machines')]
    const a = { step: 1, useful: 0.7, lost: new Map([['communication', 0.2], ['noise', 0.1]]), of: '' }
    const plain = (text: string) => text.replaceAll('\u00a0', ' ')
    expect(plain(advice(run('finished', 'hybrid', { verdicts }), a))).toBe(
      'To lose less to exposed communication (200 of 1000 ms a step): larger batches.')
    expect(plain(advice(run('running', 'hybrid', { verdicts }), a))).toBe(
      'To lose less to noise (100 of 1000 ms a step): check the machines.')
    expect(advice(run('running', 'hybrid', { verdicts }), null)).toBe('Check the machines.')
  })
  test('a run without verdicts or without advice says why it has no advice', () => {
    const foreign = { from: 1, to: 50, newest_from: 1, bound: 'noise-bound', rank: -1, text: '', advice: '', step_seconds: 1, parts_seconds: null }
    expect(advice(run('running', 'hybrid', {}), null)).toContain('follows')
    expect(advice(run('unknown', 'hybrid', {}), null)).toContain('follows')
    expect(advice(run('finished', 'hybrid', {}), null)).toContain('it needs 52 steps')
    expect(advice(run('finished', 'hybrid', { verdicts: [foreign] }), null)).toContain('another program')
  })
  test('noise has its rank and its cause', () => {
    const a = { step: 1, useful: 0.7, lost: new Map([['noise', 0.3]]), of: '' }
    const d = decision({ noisy_rank: 1, noise_cause: 'CPU quota', noise_evidence: 'a CPU quota stops rank 1 for 40 % of its CPU time' })
    expect(sentence(run('running', 'hybrid', { decision: d }), a, null, figures())).toContain(
      'from step to step, mostly of rank 1 (a CPU quota stops rank 1 for 40 % of its CPU time).')
    // The newest decision does not describe the noise of a whole run.
    expect(sentence(run('finished', 'hybrid', { decision: d }), a, null, figures())).toContain('from step to step.')
  })
  test('each change of the shares begins a new mean', () => {
    expect(means([1, 2, 3, 4, 5], [2, 6, 10, 30, 30], [{ step: 2 }, { step: 4 }])).toEqual([2, 3, 10, 15, 30])
    expect(means([10, 20], [1, 3], [{ step: 5 }, { step: 25 }])).toEqual([1, 1.5])
  })
  test('the sentence has the use after the first steps, too', () => {
    const f = { ...figures(line('lost_imbalance', 0.05, 0.001), line('decided_step', 0.1, 0.05), line('useful', 0.04, 0.04)), steps: [20, 100], to: 100 }
    const a = { step: 0.06, useful: 0.04, lost: new Map([['imbalance', 0.02]]), of: '' }
    const v = run('finished', 'hybrid', { changes: [decision({ step: 20, changed: true })], decision: decision({ lost_seconds: {} }) })
    expect(sentence(v, a, null, f).replaceAll('\u00a0', ' ')).toContain('did 67 % of what it could, and 80 % after step 20.')
  })
  test('a lost rank is named', () => {
    const a = { step: 1, useful: 0.7, lost: new Map<string, number>(), of: '' }
    const v = { ...run('failed', 'hybrid', { last: 180 }), state: { kind: 'failed', why: 'exit code 5: rank 0: aborted: rank 2: rank 2 is lost: reset', saved: true } }
    expect(sentence(v, a, null, figures())).toContain('The run failed after step 180: rank 2 is lost. Before,')
  })
  test('a run without an account names its failure, too', () => {
    expect(failure(run('crashed', 'hybrid', { last: 8 }))).toBe('The run crashed after step 8.')
    expect(failure(run('finished', 'hybrid', {}))).toBe('')
  })
  test('a failure comes first', () => {
    const a = { step: 1, useful: 0.7, lost: new Map<string, number>(), of: '' }
    expect(sentence(run('failed', 'hybrid', { last: 180 }), a, null, figures()).replaceAll('\u00a0', ' ')).toMatch(
      /^The run failed after step 180\. Before, the cluster did 70 % of what it could\./)
  })
  test('the gain has an interval if all decisions have one', () => {
    const all = { ...figures(line('decided_step', 1, 1), line('equal_step', 2, 3), line('equal_step_low', 1, 2),
      line('equal_step_high', 3, 4)), to: 20 }
    expect(gain(all)).toEqual({ value: 2.5, low: 1.5, high: 3.5, part: 1 })
    const v = run('running', 'hybrid', {}), a = { step: 1, useful: 1, lost: new Map<string, number>(), of: '' }
    expect(sentence(v, a, gain(all), all)).toContain(
      'It is about 2.50 times faster than with equal shares (estimate, 90 % interval 1.50 to 3.50).')
  })
  test.each(['crashed', 'failed'] as const)('a run that %s starts again without a checkpoint', kind => {
    const said = (saved: boolean) =>
      advice({ ...run(kind, 'hybrid', {}), state: { kind, why: 'out of memory', saved } }, null)
    expect(said(false)).toContain('The same command starts the run again.')
    expect(said(true)).toContain('The same command resumes the run.')
  })
  test('the gain of less than a half of the steps is none', () => {
    const of = (...equal: (number | null)[]) =>
      gain({ ...figures(line('decided_step', 1, 1, 1), { ...line('equal_step'), mean: equal }), steps: [20, 30, 40] })
    expect(of(2, null, null)).toEqual({ value: 2, low: null, high: null, part: 0.5 })
    expect(of(null, 2, null)).toBeNull()
    expect(of(null, 2, 4)).toMatchObject({ value: 3, part: 0.5 })
    expect(of(2, 2, null)).toMatchObject({ part: 0.75 })
  })
  test('a gain whose interval contains 1 is none', () => {
    const a = { step: 1, useful: 1, lost: new Map<string, number>(), of: '' }
    expect(sentence(run('finished', 'hybrid', {}), a, { value: 1.01, low: 0.97, high: 1.04, part: 0.6 }, figures()))
      .toContain('Equal shares were about as fast (estimate, 90 % interval 0.97 to 1.04, over 60 % of the steps).')
  })
  describe('an imbalance of the first steps is not one of the current shares', () => {
    const a = { step: 0.1, useful: 0.06, lost: new Map([['imbalance', 0.03]]), of: '' }
    const said = (changed: number[], steps: number[], ...lost: number[]) => sentence(run('finished', 'hybrid', {
      changes: changed.map(step => decision({ step, changed: true })),
      decision: decision({ lost_seconds: { imbalance: 0 } }),
    }), a, null, { ...figures(line('lost_imbalance', ...lost)), steps })
    const always = 'lost to imbalance, which the best shares would save.'
    test.each([
      ['ends with the last change', [20], [20, 100], [0.1, 0.001],
        'mostly up to step 20.'],
      ['ends between two points', [15], [20, 100], [0.1, 0.001],
        'mostly up to step 15.'],
      ['ends long before the last change', [20, 100, 5000], [100, 5000, 9000], [0.1, 0.0001, 0], 'mostly up to step 100.'],
      ['has another cause than the last change', [20], [20, 500, 700, 1000], [0.001, 0, 0.1, 0], 'mostly up to step 700.'],
      ['comes after the last change', [20], [20, 500, 900, 1000], [0.001, 0, 0.1, 0], always],
      ['is short in the first steps', [20], [10, 20, 1020], [0.1, 0.1, 0.05], always],
      ['is that of all steps', [20], [20, 40, 60, 80, 100], [0.03, 0.03, 0.03, 0.03, 0.03], always],
    ])('that %s', (_, changes, steps, lost, want) => expect(said(changes, steps, ...lost)).toContain(want))
  })
  test('a decision counts with its steps', () => {
    const f = { ...figures(line('decided_step', 1, 0.1), line('useful', 0.1, 0.1), line('lost_imbalance', 0.9, 0)), steps: [10, 100] }
    expect(account(run('finished', 'hybrid', {}), f)?.step).toBeCloseTo(0.19)
    expect(account(run('finished', 'hybrid', {}), f)?.lost.get('imbalance')).toBeCloseTo(0.09)
  })
  test('the account of all steps is that of the summary', () => {
    const parts = { useful: 0.14, imbalance: 0.003, noise: 0.028 }
    const v = run('finished', 'none', {
      account: { from: 3, to: 40, step_seconds: 0.171, parts_seconds: parts, bound: 'noise-bound', verdict: '', rank: null },
    })
    const of = (from: number, to: number) => account(v, { ...lost, from, to })
    expect(of(1, 40)).toEqual({ step: 0.171, useful: 0.14, lost: new Map([['imbalance', 0.003], ['noise', 0.028]]),
      of: 'steps 3 to 40, without the warm-up' })
    expect(account({ ...v, first: 7 }, { ...lost, from: 7, to: 40 })?.step).toBe(0.171) // one of 7 steps has a record
    expect(of(1, 30)?.step).toBeCloseTo(0.112)
    expect(of(1, 30)?.of).toBe('steps 1 to 20, which the decisions of the balancer cover')
  })
  test('the gain weighs a decision by its steps, and a range that no decision covers has none', () => {
    const f = { ...figures(line('decided_step', 1, 0.1), line('equal_step', 1, 0.2)), steps: [10, 100], to: 100 }
    expect(gain(f)?.value).toBeCloseTo((10 * 1 + 90 * 0.2) / (10 * 1 + 90 * 0.1))
    expect(gain({ ...f, to: 1000 })).toBeNull()
  })
  test('steps without decisions have no account, and the page says so', () => {
    const verdicts = [{ from: 3, to: 52, newest_from: 3, bound: 'compute-bound', rank: -1, text: '', advice: '', step_seconds: 0.172,
      parts_seconds: { useful: 0.1 } }]
    const none = { ...figures(), from: 50, to: 60, steps: [50, 60] }
    expect(account(run('finished', 'none', { verdicts }), none)).toBeNull()
    expect(empty(none)).toBe('No decision of the balancer is in steps 50 to 60, so the parts of a step are unknown.')
    const view = run('finished', 'none', { verdicts })
    const reversed = { ...none, from: 50, to: 20, steps: [] }
    expect(unaccounted([{ label: 'a', view, figures: reversed }, { label: 'b', view, figures: lost }])).toEqual(
      ['a: No values in this range of steps.'])
    const several = (n: number) => unaccounted(Array.from({ length: n }, (_, i) => ({ label: `r${i}`, view, figures: none })))
    expect(several(2)).toEqual([`r0, r1: ${empty(none)}`])
    expect(several(4)).toEqual([`4 runs: ${empty(none)}`])
  })
  test('a small loss is not the largest one, and several slow ranks are not one', () => {
    expect(largest({ step: 1, useful: 0.96, lost: new Map([['noise', 0.04]]), of: '' })).toBeNull()
    expect(slowest(run('running', 'none', { decision: decision({}) }), lost)).toBeNull()
  })
  test('after the end, the rank that was waited for is that of the verdict on all steps', () => {
    const straggler = { from: 3, to: 40, step_seconds: 0.1, parts_seconds: { useful: 0.06, imbalance: 0.04 }, bound: 'straggler', verdict: '', rank: 1 }
    const v = run('finished', 'none', { decision: decision({ ranks: waiting }), account: straggler })
    expect(slowest(v, { from: 1, to: 40 })).toBe(1)
    expect(slowest(v, { from: 1, to: 30 })).toBeNull() // the verdict is on all steps
    expect(slowest({ ...v, account: { ...straggler, bound: 'noise-bound' } }, { from: 1, to: 40 })).toBeNull()
  })
  test('a smoothed curve has the means of the newest points', () => {
    expect(smooth([2, 4, null, 6, 8], 2)).toEqual([2, 3, null, 6, 7])
    const line = { label: 'loss', color: '#000000', values: [2, 4], low: [1, 1], high: [9, 9] }
    expect(drawn([line], 1)).toEqual([line])
    expect(drawn([line, { ...line, points: true }], 2).map(s => [s.label, s.hidden === true, s.values])).toEqual([['loss raw', true, [2, 4]], ['loss', false, [2, 3]], ['loss', false, [2, 4]]])
  })
  test('a change that made it worse says so', () => {
    const of = (predicted: number, achieved: number, worse?: boolean) =>
      outcome({ outcome: { step: 1, predicted, achieved, achieved_low: achieved - 0.1, achieved_high: achieved + 0.1,
        worse } })
    expect(of(1.2, 1.18)).toBe('1.18 times faster (90 % interval 1.08 to 1.28, predicted 1.20)')
    expect(of(1.1, 0.8, true)).toBe('made it worse: 0.80 times the speed (90 % interval 0.70 to 0.90, predicted 1.10)')
    expect(of(1.1, 0.98)).toBe('0.98 times the speed (90 % interval 0.88 to 1.08, predicted 1.10)')
    expect(outcome({ outcome: null })).toBe('–')
  })
})
