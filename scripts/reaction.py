#!/usr/bin/env python3
"""Measures how fast the shares of a run followed a rank that was slower for a while (lab.weather).

    scripts/reaction.py RUN --rank 2 --from 80 --to 160

The script reads RUN/logs/rank_*_metrics.json. It fits a line to each rank's own time (data, forward, backward and optimizer)
as a function of its share. Between the two steps, the line of the slowed rank has an additional factor.
From these lines the script computes the time of the shares of every step, and of the best shares. The noise of single steps
therefore does not count.

Output: the factor; for each of the two changes, the number of steps until the shares are within 3 % of the best ones; and the
time lost compared with shares that change at the very step.
"""

import argparse
import glob
import json
import statistics


def fit(points):
    """Least-squares line through (share, seconds). With only one share, the line goes through the origin."""
    mx, my = statistics.fmean(p[0] for p in points), statistics.fmean(p[1] for p in points)
    sxx = sum((p[0] - mx) ** 2 for p in points)
    slope = sum((p[0] - mx) * (p[1] - my) for p in points) / sxx if sxx > 0 else my / mx
    return my - slope * mx, slope


def best_time(lines, total, unit):
    """Smallest time of the slowest rank, with shares in whole units, by bisection over times."""
    low, high = 0.0, max(a + b * total for a, b in lines)
    for _ in range(60):
        mid = (low + high) / 2
        held = sum(max(int((mid - a) / b) // unit * unit, unit) for a, b in lines)
        low, high = (low, mid) if held >= total else (mid, high)
    return high


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("run")
    p.add_argument("--rank", type=int, required=True, help="rank that became slower")
    p.add_argument("--from", dest="begin", type=int, required=True, help="first slow step")
    p.add_argument("--to", dest="end", type=int, required=True, help="last slow step")
    p.add_argument("--unit", type=int, default=1, help="samples of a batch normalisation group")
    o = p.parse_args()
    ranks = [json.load(open(f)) for f in sorted(glob.glob(o.run + "/logs/rank_*_metrics.json"))]
    if not ranks or not 0 <= o.rank < len(ranks):
        p.error(f"{o.run}: got the metrics of {len(ranks)} ranks, want those of rank {o.rank} too")
    slow = lambda step: o.begin <= step <= o.end
    own = lambda m: m["data_loading_time"] + m["forward_time"] + m["backward_time"] - m["exchange_time"] + m[
        "optimizer_time"]

    def line(rank, when):
        points = [(m["batch_size"], own(m)) for m in ranks[rank] if m["iteration"] > 3 and when(m["iteration"])]
        median = statistics.median(t / n for n, t in points)
        return fit([q for q in points if 0.5 < q[1] / q[0] / median < 2])  # without disturbed single steps

    usual = [line(r, lambda s: True if r != o.rank else not slow(s)) for r in range(len(ranks))]
    slowed = line(o.rank, slow)
    total = sum(r[0]["batch_size"] for r in ranks)
    lines = {False: usual, True: [slowed if r == o.rank else l for r, l in enumerate(usual)]}
    best = {s: best_time(lines[s], total, o.unit) for s in lines}
    share, lost = {}, 0.0
    for i in range(len(ranks[0])):
        step = ranks[0][i]["iteration"]
        now = lines[slow(step)]
        seconds = max(a + b * ranks[r][i]["batch_size"] for r, (a, b) in enumerate(now))
        share[step] = best[slow(step)] / seconds
        if step >= o.begin:
            lost += seconds - best[slow(step)]
    typical = total / len(ranks)
    print(f"rank {o.rank} took {(slowed[0] + slowed[1] * typical) / (usual[o.rank][0] + usual[o.rank][1] * typical):.2f} times as long; "
          f"best step {1e3 * best[False]:.1f} ms, with the slow rank {1e3 * best[True]:.1f} ms")
    for name, at, until in (("slower", o.begin, o.end), ("recovered", o.end + 1, max(share))):
        steps = next((s - at for s in range(at, until + 1)
                      if all(share[t] >= 0.97 for t in range(s, min(s + 5, until) + 1))), None)
        print(f"{name} at step {at}: within 3 % of the best shares after {steps} steps; fraction of the oracle before {share[at]:.3f}, at the end {share[until]:.3f}")
    print(f"time lost from step {o.begin} to {max(share)}: {lost:.2f} s of {sum(m['iteration_time'] for m in ranks[0] if m['iteration'] >= o.begin):.1f} s")


if __name__ == "__main__":
    main()
