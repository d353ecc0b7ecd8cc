#!/usr/bin/env python3
"""Checks a timeline of `bench train --trace FILE` or `profile.trace_step`, and recomputes the covered fraction of each step.

    scripts/check_trace.py step.json

The script checks the trace-event format:

- The file is JSON, and every event has a process and a thread with names.
- Two events of a thread do not overlap.
- Launches are within a part of a step, and the part is within the step.

Then it computes the fraction of each step that the events cover. If a GPU recorded its activity, only these records count.
Exit 0: the format is correct and the events cover at least 97 % of the steps' time. Records of a GPU may cover less,
because the GPU may be idle.
"""
import collections
import json
import sys
from decimal import Decimal

WANT = Decimal("0.97")


def fail(text):
    sys.exit(f"FAILED: {text}")


def end(e):
    return e["ts"] + e["dur"]


def inside(e, others):
    return any(o["ts"] <= e["ts"] and end(e) <= end(o) for o in others)


def union(spans, low, high):
    """Time within [low, high] that at least one span covers."""
    covered, at = Decimal(0), low
    for e in sorted(spans, key=lambda e: e["ts"]):
        begin, stop = max(e["ts"], at), min(end(e), high)
        if stop > begin:
            covered, at = covered + stop - begin, stop
    return covered


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1]) as file:
        trace = json.load(file, parse_float=Decimal, parse_int=Decimal)
    names, events = {}, collections.defaultdict(list)
    for e in trace["traceEvents"]:
        if e["ph"] == "M":
            if e["name"] == "thread_name":
                names[e["pid"], e["tid"]] = e["args"]["name"]
        elif e["ph"] == "X":
            events[e["pid"], e["tid"]].append(e)
        else:
            fail(f"event of phase {e['ph']!r}")
    ranks = collections.defaultdict(dict)
    for (rank, thread), spans in events.items():
        if (rank, thread) not in names:
            fail(f"thread {thread} of process {rank} has no name")
        spans.sort(key=lambda e: e["ts"])
        for a, b in zip(spans, spans[1:]):
            if b["ts"] < end(a):
                fail(f"rank {rank}, {names[rank, thread]}: {b['name']} begins at {b['ts']} us within {a['name']}")
        ranks[rank][names[rank, thread]] = spans
    measured = explained = Decimal(0)
    timed = named = Decimal(0)  # sums over ranks that time each launch separately
    kernels = collections.Counter()
    for rank, tracks in sorted(ranks.items()):
        for part in tracks["parts"]:
            if not inside(part, tracks["steps"]):
                fail(f"rank {rank}: part {part['name']} at {part['ts']} us is not within any step")
        noted = [e for name, spans in tracks.items() if name.startswith("gpu stream ") for e in spans]
        leaves = noted or tracks["stream"] + tracks.get("host", [])
        for leaf in noted:
            if inside(leaf, tracks["steps"]):
                kernels[leaf.get("args", {}).get("code", leaf["name"])] += leaf["dur"]
        for leaf in tracks.get("stream", []):
            args = leaf.get("args", {})
            if "kernel" in args and args["pass"] != "between steps" and not inside(leaf, tracks["parts"]):
                fail(f"rank {rank}: launch {leaf['name']} at {leaf['ts']} us is not within any part of a step")
            if args.get("pass") != "between steps":
                kernels[args.get("kernel", leaf["name"])] += leaf["dur"]
        for step in tracks["steps"]:
            covered = union(leaves, step["ts"], end(step))
            measured, explained = measured + step["dur"], explained + covered
            if not noted:
                timed, named = timed + step["dur"], named + covered
            print(f"rank {rank}, {step['name']}: {step['dur'] / 1000:.3f} ms, "
                  f"{100 * covered / step['dur']:.2f} % covered")
    for name, took in kernels.most_common(8):
        print(f"  {name}: {100 * took / measured:.1f} %")
    share = explained / measured
    told = trace["otherData"]["explained"]
    if abs(share - told) > Decimal("0.001"):
        fail(f"the file states a covered fraction of {told}, but its events cover {share}")
    if named < WANT * timed:
        fail(f"{100 * named / timed:.2f} % covered, want at least {100 * WANT} %")
    print(f"ok: {sum(map(len, events.values()))} events of {len(ranks)} ranks cover {100 * share:.2f} % of the steps")


if __name__ == "__main__":
    main()
