#!/usr/bin/env python3
"""Turns the records of scripts/compare_pytorch.sh into a markdown table and a JSON file.

A record is one run: {"who": "ours" | "eager" | "compile", "precision", "round", "result": the run's JSON line}.
"""

import argparse
import datetime
import json
import statistics

OURS = ("model", "device", "precision", "batch_size", "step_seconds_median", "samples_per_second", "share_of_peak",
        "peak_memory_bytes")


def machine():
    """The CPU's name according to the kernel, with family and model, because virtual machines often have a generic
    name."""
    fields = {}
    with open("/proc/cpuinfo") as info:
        for line in info:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name") or "unknown CPU"
    if "cpu family" in fields:
        name += f" (family {fields['cpu family']} model {fields['model']})"
    return name


# The fields that describe the work of a step. A program prints those that its model has.
WORK = ("model", "device", "precision", "image_size", "classes", "sequence_length", "vocabulary", "dropout",
        "batch_size", "grad_accumulation", "optimizer", "batch_norm", "threads", "ranks")


def work(result):
    """The work of a run, by field. Programs without a field for the number of ranks have one rank."""
    about = {key: result[key] for key in WORK if key in result} | {"ranks": result.get("ranks", 1)}
    # bench train names the type of the elements
    about["precision"] = "fp16" if about["precision"] == "f16" else about["precision"]
    about["device"] = about["device"].split(":")[0]  # bench train adds the number of the device
    if about["device"] == "cuda":
        about["threads"] = None  # steps of a GPU do not depend on threads of the host
    return about


def check(record, first):
    """Exits if the run did other work than the first run of this precision, or if a field of ours is missing."""
    result = record["result"]
    who = f"summary: {record['who']}, round {record['round']}"
    if record["who"] == "ours":
        missing = [key for key in OURS if key not in result]
        if missing:
            raise SystemExit(f"{who}: bench train --json lacks {', '.join(missing)}")
    got, want = work(result), work(first) | {"precision": record["precision"]}
    for key in dict.fromkeys([*want, *got]):
        if key not in got or key not in want or got[key] != want[key]:
            raise SystemExit(f"{who}: {key}: got {got.get(key)!r}, want {want.get(key)!r}: the programs did unequal work, so their times cannot be compared")


def compare(records):
    """The comparison in one precision."""
    seconds, rounds = {}, {}  # median seconds of a step: of each program in all rounds, and of each round's programs
    for r in sorted(records, key=lambda r: r["round"]):
        seconds.setdefault(r["who"], []).append(r["result"]["step_seconds_median"])
        rounds.setdefault(r["round"], {})[r["who"]] = r["result"]["step_seconds_median"]
    ratios = [min(s for who, s in times.items() if who != "ours") / times["ours"] for times in rounds.values()]
    results = [r["result"] for r in records if r["who"] == "ours"]
    batch = results[0]["batch_size"]
    return {
        "precision": records[0]["precision"],
        "ratio_median": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "ratios": ratios,
        "samples_per_second": {who: batch / statistics.median(s) for who, s in seconds.items()},
        "share_of_peak": None if results[0]["share_of_peak"] is None
        else statistics.median(r["share_of_peak"] for r in results),
        "optimizer": results[0]["optimizer"],
        "peak_memory_bytes": {
            who: max(r["result"]["peak_memory_bytes"] for r in records if r["who"] == who) for who in seconds
        },
    }


def row(c, first, peer, a):
    rate = c["samples_per_second"]
    cells = [
        f"{first['model']} {peer.get('image_size') or peer['sequence_length']}, batch {first['batch_size']}, {c['precision']}" +
        (f", {peer['ranks']} ranks" if peer["ranks"] > 1 else ""),
        f"{rate['ours']:.1f}" + ("" if c["share_of_peak"] is None else f" ({100 * c['share_of_peak']:.0f} %)"),
        f"{rate['eager']:.1f}" if "eager" in rate else "not run",
        f"{rate['compile']:.1f}" if "compile" in rate else "not run",
        f"**{c['ratio_median']:.2f}** ({c['ratio_min']:.2f} … {c['ratio_max']:.2f}, rounds: {len(c['ratios'])})",
        f"{machine()}, {a.threads} threads",
        f"{a.version}; torch {peer['version']}, {peer['malloc']}" + ("" if peer["malloc"] == "tcmalloc"
                                                                     else " **(unfair to PyTorch)**"),
        a.date,
    ]
    return "| " + " | ".join(cells) + " |"


def main():
    p = argparse.ArgumentParser(
        description="Turns the records of compare_pytorch.sh into a markdown table and a JSON file.")
    p.add_argument("records", help="JSON lines")
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--load", type=float, required=True, help="load average of the machine before the first run")
    p.add_argument("--version", required=True, help="version of hetero-train")
    p.add_argument("--output", required=True, help="JSON file to write")
    p.add_argument("--date", default=datetime.date.today().isoformat())
    a = p.parse_args()

    with open(a.records) as lines:
        records = [json.loads(line) for line in lines]
    first = next(r["result"] for r in records if r["who"] == "ours")
    peer = next(r["result"] for r in records if r["who"] != "ours")
    for r in records:
        check(r, first)
    comparisons = [compare([r for r in records if r["precision"] == precision])
                   for precision in dict.fromkeys(r["precision"] for r in records)]

    print("| work | ours, samples/s (fraction of peak) | PyTorch eager | PyTorch compile | ours / best PyTorch, median (spread) | machine | versions | date |")
    print("|---|---|---|---|---|---|---|---|")
    for c in comparisons:
        print(row(c, first, peer, a))
    with open(a.output, "w") as out:
        json.dump({
            "date": a.date,
            "machine": machine(),
            "threads": a.threads,
            "load_average_before": a.load,
            "version": a.version,
            "peer_version": peer["version"],
            "peer_malloc": peer["malloc"],
            "comparisons": comparisons,
            "records": records,
        }, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
