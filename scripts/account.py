#!/usr/bin/env python3
"""Compares the account of lost time of runs with the clock: prints a table in Markdown.

    python3 scripts/account.py RUN...

The clock is the difference of the timestamps of successive records of rank 0. It leaves out the first two steps, the
steps that follow an evaluation or a checkpoint, and those before which the testbed changes its conditions
(docs/lab.md). "account" is the sum of the parts in logs/summary.json. "decisions" is the largest difference between the
parts of a decision of the balancer and its measured step, and "verdicts" is the same for verdicts.
Exit 1: a difference is larger than 1 %.
"""
import json
import os
import sys

MOST = 0.01
WARM_UP = 2


def lines(path):
    """Yields the objects of a file of JSON lines."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def changes(run, steps):
    """The steps before which the testbed changes the conditions of a rank."""
    with open(os.path.join(run, "configs", "resolved.toml"), encoding="utf-8") as file:
        settings = [line.split("=", 1) for line in file if line.startswith("weather = ")]
    path = settings[0][1].strip().strip("\"'") if settings else ""
    found = set()
    for line in open(path, encoding="utf-8").read().splitlines() if path else ():
        words = line.split("#")[0].split()
        number = {word: int(words[i + 1]) for i, word in enumerate(words[:-1]) if word in ("from", "to", "every", "for")}
        if "every" in number:
            for begin in range(0, steps + 1, number["every"]):
                found |= {begin, begin + number["for"]}
        found |= {number.get("from", 1), number.get("to", steps) + 1}
    return found


def clock(run, logs):
    """The mean time of a step by the clock, in s, and the mean of step_time of the same steps."""
    paused = {0}
    for event in lines(os.path.join(logs, "events.jsonl")):
        if "evaluation" in event or "checkpoint" in event:
            paused.add(event["step"])
    with open(os.path.join(logs, "rank_0_metrics.json"), encoding="utf-8") as file:
        records = json.load(file)
    paused |= {step - 1 for step in changes(run, len(records))}
    steps = [(b["timestamp"] - a["timestamp"], b["step_time"]) for a, b in zip(records, records[1:])
             if a["iteration"] >= WARM_UP and a["iteration"] not in paused and b["iteration"] == a["iteration"] + 1]
    return sum(s[0] for s in steps) / len(steps), sum(s[1] for s in steps) / len(steps), len(records)


def row(run):
    """The row of a run, and its largest difference."""
    logs = os.path.join(run, "logs")
    by_clock, by_step, steps = clock(run, logs)
    with open(os.path.join(logs, "summary.json"), encoding="utf-8") as file:
        bottleneck = json.load(file)["bottleneck"]
    parts, step = bottleneck["parts_seconds_per_step"], bottleneck["step_seconds"]
    total = sum(parts.values())
    decisions, verdicts = [0.0], [0.0]
    path = os.path.join(logs, "balance.jsonl")
    for d in lines(path) if os.path.exists(path) else ():
        if d["step_seconds"] and d["useful_seconds"] is not None:
            got = d["useful_seconds"] + sum(d["lost_seconds"].values())
            decisions.append(abs(got / d["step_seconds"] - 1))
    for event in lines(os.path.join(logs, "events.jsonl")):
        if v := event.get("bottleneck"):
            verdicts.append(abs(sum(v["parts_seconds"].values()) / v["step_seconds"] - 1))
    errors = [by_step / by_clock - 1, total / step - 1, max(decisions), max(verdicts)]
    losses = sorted(((seconds / total, name) for name, seconds in parts.items() if name != "useful"), reverse=True)
    text = ", ".join(f"{name} {100 * share:.0f} %" for share, name in losses if share >= 0.01)
    cells = [os.path.basename(os.path.normpath(run)), f"{steps}", f"{1e3 * by_clock:.1f}", f"{1e3 * by_step:.1f}", f"{1e3 * step:.1f}",
             f"{1e3 * total:.1f}", f"{100 * max(abs(e) for e in errors):.2f} %", f"{100 * parts['useful'] / total:.0f} %",
             text or "–"]
    return "| " + " | ".join(cells) + " |", max(abs(e) for e in errors)


def main():
    """Prints the table."""
    worst = 0.0
    print("| Run | Steps | Step by the clock, ms | The same steps, `step_time`, ms | All steps, ms | Sum of the parts, ms |"
          " Largest difference | Useful | Lost |")
    print("|---|---|---|---|---|---|---|---|---|")
    for run in sys.argv[1:]:
        text, error = row(run)
        print(text)
        worst = max(worst, error)
    if worst > MOST:
        sys.exit(f"a difference of {100 * worst:.2f} %, want at most {100 * MOST:.0f} %")


main()
