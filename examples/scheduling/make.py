#!/usr/bin/env python3
"""Print the job list of a seed as CSV: jobs of a few seconds that arrive faster than the cluster computes them.

Usage: make.py [SEED] > jobs.csv
"""

import random
import sys

# For each kind: fraction of the jobs, numbers of GPUs with their weights, and median running time on its best type, in
# s.
KINDS = {
    "training": (0.4, {1: 3, 2: 3, 4: 3, 8: 1}, 8.0),
    "simulation": (0.3, {1: 3, 2: 3}, 8.0),
    "processing": (0.3, {1: 3, 2: 3}, 8.0),
}
JOBS, MEAN_GAP = 60, 0.5  # number of jobs; mean time between arrivals in s
SIGMA = 0.4  # standard deviation of the logarithm of the running times

rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
print("name,kind,arrival,work,gpus,cpus,memory,network,priority")
at = 0.0
for i in range(JOBS):
    kind = rng.choices(list(KINDS), [k[0] for k in KINDS.values()])[0]
    _, sizes, seconds = KINDS[kind]
    gpus = rng.choices(list(sizes), list(sizes.values()))[0]
    # Steps: one GPU of the best type computes 10 steps/s.
    work = 10 * gpus**0.95 * seconds * rng.lognormvariate(0, SIGMA)
    print(f"job-{i},{kind},{at:.2f},{work:.0f},{gpus},2,4 GiB,0,{rng.random():.2f}")
    at += rng.expovariate(1 / MEAN_GAP)
