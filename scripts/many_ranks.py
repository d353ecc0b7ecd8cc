#!/usr/bin/env python3
"""many_ranks.py [--ranks N] [--steps N] [--noise N] [--seeds N] [ROW...]: decisions of policy hybrid with many ranks.

Each row simulates a cluster whose curves the row describes, with 32 samples a rank ("5 types": 16). The table has the median and the
longest CPU time of a decision, the peak memory of the process, the account of `balance simulate`, and the fraction of the oracle at
the end and on average. With several seeds, the columns of times and memory show the last seed. The fractions are means over the
seeds, with the smallest fraction at an end. The last column is the percentage of seeds in which the interval of the last decision
contains the true fraction, or misses it by at most 0.001.

The program is ./hetero-train or $HETERO_TRAIN. Exit codes: 0 done; 1 a command failed; 2 bad arguments.
"""
import argparse, json, os, subprocess, sys

PROGRAM = os.path.abspath(os.environ.get("HETERO_TRAIN", "hetero-train"))


def line(per, most=256):
    return [(1, 0.01 + per), (most, 0.01 + most * per)]


def tiles(per):  # multiples of 16 take 30 % less time
    curve = [(1, 0.01 + per)]
    for b in range(16, 81, 16):
        curve += [(at, (0.01 + at * per) * (0.7 if at == b else 1)) for at in (b - 1, b, b + 1)]
    return curve


def steps(per):  # the time of the next multiple of 8
    return [(at, 0.01 + b * per) for b in range(8, 81, 8) for at in (b - 7, b)]


def falls(per):  # longer with 24 samples than with 40
    return [(1, 0.01 + per), (24, 0.01 + 60 * per), (40, 0.01 + 40 * per), (256, 0.01 + 256 * per)]


def slower(curve, factor):
    return [(b, factor * seconds) for b, seconds in curve]


TWO, THREE = [0.001, 0.0023], [0.001, 0.0017, 0.003]
ROWS = {  # name: the curve of a rank, and further arguments
    "2 types": (lambda r: line(TWO[r % 2]), []),
    "2 types, a decision every 5 steps": (lambda r: line(TWO[r % 2]), ["--interval", "5"]),
    "8 types": (lambda r: line(0.001 * 1.25 ** (r % 8)), []),
    "5 types": (lambda r: [(b, 1e-3 * (1 + r % 5) * (0.5 + b / 8)) for b in (1, 8, 32, 64)], []),
    "3 types, every 20th rank slow": (lambda r: slower(line(THREE[r % 3]), 1.5 if r % 20 == 0 else 1), []),
    "tiles": (lambda r: tiles(TWO[r % 2]), []),
    "steps": (lambda r: steps(TWO[r % 2]), []),
    "curves that fall": (lambda r: falls(TWO[r % 2]), []),
    "little memory": (lambda r: line(TWO[r % 2], 36 if r % 2 == 0 else 256), []),
    "2 types, 20 % noise": (lambda r: line(TWO[r % 2]), ["--noise", "0.2"]),
    "a curve for each rank": (lambda r: slower(line(TWO[r % 2]), 0.8 + 0.4 * (r * 0.6180339887 % 1)), []),
}


def simulate(name, options, seed):
    """Returns the result of a simulation, and the peak memory of the process in MB."""
    curve, more = ROWS[name]
    if options.noise is not None:
        more = more + ["--noise", str(options.noise)]
    batch = options.ranks * (16 if name == "5 types" else 32)
    child = subprocess.Popen([PROGRAM, "balance", "simulate", "--curves", "-", "--global-batch", str(batch), "--json",
                              "--steps", str(options.steps), "--seed", str(seed), *more],
                             text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for r in range(options.ranks):
        child.stdin.write("".join(f"{r},{b},{seconds:.6f}\n" for b, seconds in curve(r)))
    child.stdin.close()
    out = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"many_ranks: {name}: exit code {os.waitstatus_to_exitcode(status)}")
    return json.loads(out), used.ru_maxrss * 1024 / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"default: all of {', '.join(ROWS)}".replace("%", "%%"))
    parser.add_argument("--ranks", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--noise", type=float, help="instead of the noise of the row")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    unknown = [row for row in options.rows if row not in ROWS]
    if unknown or options.seeds < 1:
        parser.error(f"got the rows {unknown} and {options.seeds} seeds, want rows of {list(ROWS)} and at least 1 seed")
    print("| Ranks | Median | Longest | Peak memory | Bytes a rank | End (least) | Mean | Covered |\n"
          "|---|---|---|---|---|---|---|---|")
    for name in options.rows or ROWS:
        ends, means, covered = [], [], 0
        for seed in range(1, options.seeds + 1):
            result, memory = simulate(name, options, seed)
            ends.append(100 * result["share_of_oracle"])
            means.append(100 * result["mean_share_of_oracle"])
            interval = result["estimate_share_of_oracle"]
            covered += interval["low"] - 1e-3 <= result["share_of_oracle"] <= interval["high"] + 1e-3
        times, held = result["decisions"], sum(part["bytes"] for part in result["memory"])
        print(f"| {name} | {times['median_cpu_seconds']:.2f} s | {times['longest_cpu_seconds']:.2f} s | {memory:.0f} MB "
              f"| {held / options.ranks:,.0f} | {sum(ends) / len(ends):.1f} ({min(ends):.1f}) % "
              f"| {sum(means) / len(means):.1f} % | {100 * covered / options.seeds:.0f} % |", flush=True)


main()
