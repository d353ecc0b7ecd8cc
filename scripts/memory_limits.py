#!/usr/bin/env python3
"""memory_limits.py [MODEL...] [--limits GIB,...] [--parts PERCENT,...]: measures the memory of runs against their plan.

For each model and limit, the script makes a control group with the limit. `hetero-train plan` computes in the group the
largest batch that fits. The script then trains two steps with 90, 99 and 100 % of this batch, each followed by an
evaluation and a checkpoint. It reads the memory of the group every 5 ms and prints the peak next to the plan, as rows
of Markdown.

The peak is the memory that the kernel cannot reclaim: anonymous memory, shared memory and memory of the kernel.
memory.peak and max_usage also count page cache, such as written checkpoints, which the kernel drops when it needs memory.
The plan is compared without the part "program files", because mapped files are page cache, too.

It needs root and the memory controller of version 1 or 2 of control groups. HETERO_TRAIN is the program (default
./hetero-train), OUTPUT the folder of the runs (default: a temporary folder). Exit code 1: a run failed, or its peak
differs from the plan by more than 3 %.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = os.environ.get("HETERO_TRAIN", "./hetero-train")
TOLERANCE = 0.03
MODELS = {
    "simple_cnn": ["model.name=simple_cnn", "model.channels=[32,64]", "data.dataset=synthetic_image",
                   "data.image_size=32", "train.precision=f32"],
    "resnet50": ["model.name=resnet50", "model.num_classes=1000", "data.dataset=synthetic_image",
                 "data.image_size=224", "train.precision=f32", "train.recompute=off"],
    "gpt2": ["model.name=gpt2", "data.dataset=synthetic_text", "model.vocabulary_size=50257",
             "data.sequence_length=128", "train.precision=f32", "train.recompute=off"],
}
FILES = "program files"


class Group:
    """A control group with a limit of memory."""

    def __init__(self, limit):
        v1 = pathlib.Path("/sys/fs/cgroup/memory")
        self.v2 = not v1.is_dir()
        parent = pathlib.Path("/sys/fs/cgroup") if self.v2 else v1
        if self.v2:
            (parent / "cgroup.subtree_control").write_text("+memory")
        self.folder = parent / f"hetero-train-{os.getpid()}"
        self.folder.mkdir()
        (self.folder / ("memory.max" if self.v2 else "memory.limit_in_bytes")).write_text(str(limit))

    def used(self):
        """Bytes that the kernel cannot reclaim."""
        stat = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        if self.v2:
            return int(stat["anon"]) + int(stat["shmem"]) + int(stat["kernel"]) - int(stat["slab_reclaimable"])
        return int(stat["rss"]) + int(stat["shmem"]) + int((self.folder / "memory.kmem.usage_in_bytes").read_text())

    def kills(self):
        name = "memory.events" if self.v2 else "memory.oom_control"
        return int(dict(line.split() for line in (self.folder / name).read_text().splitlines())["oom_kill"])

    def run(self, command):
        """Runs a command in the group and returns its exit code, its output and the peak of the memory."""
        procs = self.folder / "cgroup.procs"
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = subprocess.Popen(["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(procs), *command], stdout=out,
                                     stderr=err, text=True)
            peak, ended = 0, threading.Event()

            def watch():
                nonlocal peak
                while not ended.is_set():
                    peak = max(peak, self.used())
                    time.sleep(0.005)

            watcher = threading.Thread(target=watch)
            watcher.start()
            code = child.wait()
            ended.set()
            watcher.join()
            out.seek(0)
            err.seek(0)
            return code, out.read(), err.read(), peak

    def remove(self):
        for _ in range(100):
            try:
                self.folder.rmdir()
                return
            except OSError:
                time.sleep(0.05)
        self.folder.rmdir()


def settings(model, batch):
    keys = MODELS[model] + [f"data.batch_size={batch}", f"data.num_samples={batch}", "train.steps=2", "train.epochs=0"]
    return [word for key in keys for word in ("--set", key)]


def planned(group, model, batch, samples):
    code, out, err, _ = group.run([PROGRAM, "plan", *settings(model, batch), "--samples", str(samples), "--json",
                                   "--log-level", "error"])
    if code not in (0, 6):  # 6: nothing fits; plan prints its figures all the same
        sys.exit(f"memory_limits.py: plan of {model}: exit code {code}\n{err}")
    return json.loads(out)


def mebibytes(n):
    return f"{n / 2**20:,.0f}"


def largest_batch(model, gib):
    group = Group(int(gib * 2**30))
    try:
        return planned(group, model, 64, 1)["largest_micro_batch"]
    finally:
        group.remove()


def measure(model, gib, largest, part, output):
    """Prints the row of one run and reports whether its peak is as planned."""
    group = Group(int(gib * 2**30))
    try:
        if largest == 0:
            code, _, err, peak = group.run([PROGRAM, "train", *settings(model, 1), "--resume", "none", "--set",
                                            f"experiment.output_dir={output}"])
            refused = code == 6 and group.kills() == 0
            needs = next((line.split("needs ")[1].split(" of memory")[0] for line in err.splitlines()
                          if "needs " in line), "?")
            print(f"| {model} | {gib} GiB | none fits | {needs} | {mebibytes(peak)} MiB when refused | "
                  f"{'refused, exit code 6' if refused else f'FAILED: exit code {code}'} |", flush=True)
            return refused
        batch = max(int(largest * part / 100), 1)
        account = planned(group, model, batch, batch)["table"][0]["account"]
        parts = account["device"] + account["host"] + (account.get("optional") or [])
        plan = sum(p["bytes"] for p in parts if p["name"] != FILES)
        code, _, err, peak = group.run([PROGRAM, "train", *settings(model, batch), "--resume", "none", "--set",
                                        f"experiment.output_dir={output}"])
        off = peak / plan - 1
        good = code == 0 and abs(off) <= TOLERANCE and group.kills() == 0
        verdict = f"{off:+.1%}" if code == 0 else f"exit code {code}, {group.kills()} killed"
        print(f"| {model} | {gib} GiB | {batch:,} ({part} %) | {mebibytes(plan)} MiB | {mebibytes(peak)} MiB | "
              f"{verdict} |", flush=True)
        if not good:
            print(err[-1500:] if code else json.dumps({p["name"]: round(p["bytes"] / 2**20, 1) for p in parts}),
                  file=sys.stderr, flush=True)
        return good
    finally:
        group.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="simple_cnn, resnet50, gpt2; default: all")
    parser.add_argument("--limits", default="1,3,8", help="GiB")
    parser.add_argument("--parts", default="90,99,100", help="percent of the largest batch")
    asked = parser.parse_args()
    output = os.environ.get("OUTPUT") or tempfile.mkdtemp()
    if unknown := set(asked.models) - set(MODELS):
        parser.error(f"got {', '.join(unknown)}, want {', '.join(MODELS)}")
    print("| model | limit | batch | plan | peak | peak against plan |\n|---|---|---|---|---|---|", flush=True)
    good = True
    try:
        for model in asked.models or MODELS:
            for gib in map(float, asked.limits.split(",")):
                gib = int(gib) if gib == int(gib) else gib
                largest = largest_batch(model, gib)
                for part in map(int, asked.parts.split(",")) if largest else [0]:
                    good &= measure(model, gib, largest, part, output)
                    shutil.rmtree(output, ignore_errors=True)
    finally:
        shutil.rmtree(output, ignore_errors=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
