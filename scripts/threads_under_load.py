#!/usr/bin/env python3
"""Measures the step time of a training with several numbers of threads, next to other processes that keep CPUs busy.

Each busy process is in its own session, like a program of another user. A round measures every combination once.

    scripts/threads_under_load.py --rounds 5                              # simple_cnn, images of 128x128, batch 8, f32
    scripts/threads_under_load.py --program ./hetero-train,OTHER          # two builds, interleaved
"""
import argparse
import collections
import json
import os
import signal
import statistics
import subprocess
import sys


def numbers(text):
    return [int(n) for n in text.split(",")]


def busy(count):
    """Starts processes that each use one CPU."""
    loop = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n for _ in range(1000000): pass"
    return [subprocess.Popen([sys.executable, "-c", loop], start_new_session=True) for _ in range(count)]


def step_seconds(program, threads, options):
    command = [program, "bench", "train", "--model", options.model, "--image-size", str(options.image_size),
               "--classes", "10",
               "--batch-size", str(options.batch_size), "--precision", options.precision, "--steps", str(options.steps),
               "--warmup", str(options.warmup), "--device", "cpu", "--threads", str(threads), "--json"]
    r = subprocess.run(command, capture_output=True, text=True)
    if r.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {r.returncode}\n{r.stderr}")
    return json.loads(r.stdout.splitlines()[-1])["step_seconds_median"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", default="./hetero-train",
                   help="path of the program; several, separated by commas, are compared")
    p.add_argument("--threads", type=numbers, default=[1, 2], help="numbers of threads (default 1,2)")
    p.add_argument("--load", type=numbers, default=[0, 1, 2], help="numbers of busy processes (default 0,1,2)")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--model", default="simple_cnn")
    p.add_argument("--image-size", type=int, default=128)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--precision", default="f32")
    p.add_argument("--steps", type=int, default=30)
    p.add_argument("--warmup", type=int, default=10)
    options = p.parse_args()
    programs = options.program.split(",")
    took = collections.defaultdict(list)
    for _ in range(options.rounds):
        for load in options.load:
            processes = busy(load)
            try:
                for threads in options.threads:
                    for program in programs:
                        took[load, threads, program].append(step_seconds(program, threads, options))
            finally:
                for process in processes:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
    print(f"{options.model}, {options.image_size}x{options.image_size}, batch {options.batch_size}, {options.precision}; median step of "
          f"{options.steps}, then median, least and most of {options.rounds} rounds, ms; load average {os.getloadavg()[0]:.1f}")
    print("| Busy processes | Threads |" + "".join(f" {program} |" for program in programs))
    print("|---|---|" + "---|" * len(programs))
    for load in options.load:
        for threads in options.threads:
            cells = [took[load, threads, program] for program in programs]
            print(f"| {load} | {threads} |" + "".join(
                f" {1e3 * statistics.median(c):.1f} ({1e3 * min(c):.1f} to {1e3 * max(c):.1f}) |" for c in cells))


if __name__ == "__main__":
    main()
