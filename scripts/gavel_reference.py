#!/usr/bin/env python3
"""Run Gavel's simulator on one of its traces, and write the completion time of each job.

Usage:  python scripts/gavel_reference.py CHECKOUT TRACE OUT.json [--policy fifo] [--gpus 36:36:36] [--round 360] [--jobs 400] [--gangs]

CHECKOUT is a clone of https://github.com/stanford-futuredata/gavel. Python needs numpy, cvxpy and ecos. The script replaces Gavel's
network code, which simulations do not use. TRACE has 7 fields per line. Only the first --jobs jobs of one GPU take part;
with --gangs, the first --jobs jobs for which Gavel's table has a speed on all types of GPUs.

go test ./balancer/scheduler/simulate -run Gavel -v compares the result with our simulator; see docs/benchmarks/scheduling.md.
"""

import argparse
import json
import logging
import os
import sys
import types


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout")
    parser.add_argument("trace")
    parser.add_argument("out")
    parser.add_argument("--policy", default="fifo", help="a policy of Gavel, such as fifo or max_min_fairness_perf")
    parser.add_argument("--gpus", default="36:36:36", help="number of v100:p100:k80")
    parser.add_argument("--round", type=int, default=360, help="seconds")
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--gangs", action="store_true")
    args = parser.parse_args()
    trace, out = os.path.abspath(args.trace), os.path.abspath(args.out)

    os.chdir(os.path.join(args.checkout, "scheduler"))
    sys.path[:0] = [os.getcwd(), os.path.join(os.getcwd(), "policies")]
    rpc = types.ModuleType("runtime.rpc")
    rpc.scheduler_server, rpc.scheduler_client = types.ModuleType("server"), types.ModuleType("client")
    sys.modules.update({"runtime": types.ModuleType("runtime"), "runtime.rpc": rpc, "numa": types.ModuleType("numa"),
                        "matrix_completion": types.ModuleType("matrix_completion")})
    import scheduler
    import utils
    from job import Job

    logging.disable(logging.CRITICAL)
    with open("simulation_throughputs.json") as f:
        speeds = json.load(f)
    kinds = ("v100", "p100", "k80")

    def measured(kind, gpus):
        return all(speeds[t].get(f"('{kind}', {gpus})", {}).get("null", 0) > 0 for t in kinds)

    jobs, arrivals, lines = [], [], []
    with open(trace) as f:
        for number, line in enumerate(f, 1):
            kind, command, flag, _, steps, arrival, gpus = line.rstrip("\n").split("\t")
            if len(jobs) == args.jobs or not (measured(kind, gpus) if args.gangs else gpus == "1"):
                continue
            jobs.append(Job(job_id=None, job_type=kind, command=command, working_directory="", num_steps_arg=flag,
                            needs_data_dir=False, total_steps=int(steps), duration=None, scale_factor=int(gpus)))
            arrivals.append(float(arrival))
            lines.append(number)
    gpus = dict(zip(kinds, map(int, args.gpus.split(":"))))
    run = scheduler.Scheduler(utils.get_policy(args.policy, solver="ECOS", seed=0), simulate=True, seed=0,
                              throughputs_file="simulation_throughputs.json", time_per_iteration=args.round)
    run._print_schedule_summary = lambda *_: None
    run.simulate(gpus, arrivals, jobs)
    times = [run._job_completion_times[job] for job in sorted(run._job_completion_times)]
    with open(out, "w") as f:
        json.dump({"trace": os.path.basename(trace), "policy": args.policy, "gpus": [gpus[t] for t in kinds],
                   "round": args.round,
                   "lines": lines, "seconds": times}, f)


if __name__ == "__main__":
    main()
