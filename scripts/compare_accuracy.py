#!/usr/bin/env python3
"""Trains configs/resnet50.toml with hetero-train and with PyTorch, and prints the accuracy of both after each epoch.

    make
    python3 -m venv .venv && .venv/bin/pip install torch torchvision      once; also: apt-get install libtcmalloc-minimal4
    .venv/bin/python scripts/compare_accuracy.py --data CIFAR.tar.gz --epochs 10

The archive contains train/<class>/*.jpg and test/<class>/*.jpg. Both programs read the same images and train for the same
number of epochs, and both cosine schedules end with the last epoch. scripts/peers/resnet_cifar.py describes the PyTorch
program.

By default one training follows the other, so their times can be compared. --together runs both at the same time, each with
half of the threads: use it on a machine with two idle cores, or if only the accuracy matters.

A comparison that takes hours can be stopped and continued: repeat the command with --resume. hetero-train continues from
its checkpoint, PyTorch from the end of its last complete epoch. The first epoch after a stop has no time.

stdout: a Markdown table. With --output DIR the script also writes ours.log, pytorch.log, accuracy.json and accuracy.md to
DIR, and extends them after each epoch. Without --resume, DIR must not contain an earlier comparison.

exit: 0 success; 1 a training failed; 2 bad arguments, or a missing requirement; 130 stopped by Ctrl-C
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER = ROOT / "scripts" / "peers" / "resnet_cifar.py"
EVALUATION = re.compile(r"^eval after step \d+ \(epoch (\d+)\).*?\btop-1 ([\d.]+) %")


RUNNING = []  # the processes of both sides


class Comparison:
    """The results of both sides so far, saved to disk after each epoch."""

    def __init__(self, a):
        self.a, self.rows, self.lock = a, {"ours": [], "pytorch": []}, threading.Lock()
        self.about = {
            "model": a.model, "epochs": a.epochs, "precision": a.precision, "zero_init_residual": a.zero_init_residual,
            "threads": threads(a), "together": a.together,
            "seed": a.seed, "batch_size": 128,
            "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        }  # fmt: skip

    def load(self):
        """Continues an earlier comparison, whose settings must be equal."""
        before = json.loads((self.a.output / "accuracy.json").read_text())
        for key in self.about.keys() - {"started", "threads", "together"}:
            if before.get(key) != self.about[key]:
                raise SystemExit(f"compare_accuracy: --resume: {key}: got {self.about[key]!r}, want {before.get(key)!r}, as in {self.a.output}")
        self.about = before | {"resumed": before.get("resumed", 0) + 1}
        self.rows = {who: before.pop(who) for who in self.rows}

    def add(self, who, epoch, top1, seconds):
        """Notes the accuracy after an epoch, from 1. seconds is None if the epoch began before the start of this
        process."""
        with self.lock:
            rows = self.rows[who]
            del rows[epoch - 1 :]  # a resumed run repeats the steps after its last checkpoint
            if len(rows) != epoch - 1:
                raise SystemExit(f"compare_accuracy: {who}: got epoch {epoch}, want {len(rows) + 1}")
            rows.append({"epoch": epoch, "top1": top1, "seconds": seconds})
            print(f"{who}: epoch {epoch}/{self.a.epochs}, top-1 {100 * top1:.2f} %, {shown(seconds)} s",
                  file=sys.stderr, flush=True)
            (self.a.output / "accuracy.json").write_text(json.dumps(self.about | self.rows, indent=1) + "\n")
            (self.a.output / "accuracy.md").write_text(self.table())

    def table(self):
        """One row per epoch; seconds include the evaluation."""
        lines = ["| epoch | hetero-train top-1 | seconds | PyTorch top-1 | seconds |", "|---|---|---|---|---|"]
        for i in range(max(map(len, self.rows.values()))):
            cells = []
            for who in ("ours", "pytorch"):
                row = self.rows[who][i] if i < len(self.rows[who]) else None
                cells += [f"{100 * row['top1']:.2f} %", shown(row["seconds"])] if row else ["", ""]
            lines.append(f"| {i + 1} | " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"


def shown(seconds):
    return "-" if seconds is None else f"{seconds:.0f}"


def threads(a):
    """Threads of each side."""
    return max(1, a.threads // 2) if a.together else a.threads


def commands(a):
    """The two commands."""
    settings = {
        "experiment.name": "compare_accuracy", "experiment.output_dir": a.output, "experiment.seed": a.seed,
        "model.name": a.model, "data.dataset": "images", "data.path": a.data, "data.fallback": "",
        "device.kind": "cpu", "device.threads": threads(a), "parallel.ranks": 1, "profile.enabled": "false",
        "model.zero_init_residual": str(a.zero_init_residual).lower(), "train.epochs": a.epochs,
        "train.precision": a.precision, "train.resume": "auto" if a.resume else "none", "checkpoint.best": "false",
    }  # fmt: skip
    ours = [a.binary, "train", "-c", a.config]
    for key, value in settings.items():
        ours += ["--set", f"{key}={value}"]
    peer = [sys.executable, PEER, "--data", a.data, "--model", a.model, "--epochs", a.epochs, "--precision",
            a.precision, "--seed", a.seed, "--threads", threads(a), "--state", a.output / "pytorch.pt"]
    if a.zero_init_residual:
        peer.append("--zero-init-residual")
    if a.epoch_steps:  # the schedule of a trial ends with the steps of the trial
        ours += ["--set", f"data.num_samples={128 * a.epoch_steps}"]
        peer += ["--epoch-steps", a.epoch_steps]
    return {"ours": [str(x) for x in ours], "pytorch": [str(x) for x in peer]}


def run(comparison, who, command):
    """Runs one side to its end. Returns its exit code, or 1 if it ended before the last epoch."""
    a, last = comparison.a, time.monotonic()
    partial = bool(comparison.rows[who]) or a.resume  # the first epoch of a resumed training began earlier
    with open(a.output / f"{who}.log", "a" if a.resume else "w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env=os.environ | {"OMP_NUM_THREADS": str(threads(a))})  # fmt: skip
        RUNNING.append(process)
        for line in process.stdout:
            log.write(line)
            log.flush()
            if who == "ours" and line.startswith("data "):
                last = time.monotonic()  # the model and the data are ready at this time
            elif who == "ours" and (found := EVALUATION.match(line)):
                comparison.add(who, int(found[1]) + 1, float(found[2]) / 100, None if partial
                               else time.monotonic() - last)
                last, partial = time.monotonic(), False
            elif who == "pytorch" and line.startswith('{"epoch"'):
                record = json.loads(line)
                comparison.add(who, record["epoch"], record["top1"], record["train_seconds"] + record["eval_seconds"])
    code, reached = process.wait(), len(comparison.rows[who])
    if code == 0 and reached != a.epochs:
        print(f"compare_accuracy: {who}: got {reached} evaluations, want {a.epochs}: see {a.output / who}.log",
              file=sys.stderr)
        return 1
    if code:
        print(f"compare_accuracy: {who} failed with exit code {code}: see {a.output / who}.log", file=sys.stderr)
    return code


def parse_arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", type=pathlib.Path, required=True,
                   help="archive of train/<class>/*.jpg and test/<class>/*.jpg")
    p.add_argument("--epochs", type=int, required=True, help="epochs of both programs")
    p.add_argument("--model", default="resnet50", help="a ResNet (default resnet50)")
    p.add_argument("--config", default=ROOT / "configs" / "resnet50.toml", type=pathlib.Path,
                   help="(default configs/resnet50.toml)")
    p.add_argument("--precision", choices=["f32", "bf16"], default="bf16", help="type of both programs (default bf16)")
    p.add_argument("--zero-init-residual", action="store_true",
                   help="in both programs, the last BatchNorm of each residual branch starts at zero")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)),
                   help="(default: the CPUs of this process)")
    p.add_argument("--seed", type=int, default=42, help="seed of both programs' generators (default 42)")
    p.add_argument("--together", action="store_true", help="train both at the same time, on half of the threads each")
    p.add_argument("--resume", action="store_true", help="continue the comparison in --output")
    p.add_argument("--epoch-steps", type=int, default=0,
                   help="for a quick trial: steps of an epoch (default: all samples)")
    p.add_argument("--binary", type=pathlib.Path, default=ROOT / "hetero-train", help="(default ./hetero-train)")
    p.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "compare_accuracy",
                   help="(default build/compare_accuracy)")
    a = p.parse_args()
    if a.epochs < 1 or a.threads < 1 or a.epoch_steps < 0:
        p.error("--epochs and --threads: want at least 1; --epoch-steps: want at least 0")
    for path, what in ((a.data, "--data"), (a.config, "--config"), (a.binary, "--binary")):
        if not path.is_file():
            p.error(f"{what}: {path} not found")
    if a.resume and not (a.output / "accuracy.json").is_file():
        p.error(f"--resume: {a.output} contains no comparison")
    if not a.resume and ((a.output / "accuracy.json").exists() or (a.output / "compare_accuracy").exists()):
        p.error(f"--output: {a.output} contains an earlier comparison: continue it with --resume, remove it, or use another folder")
    try:
        a.versions = {name: importlib.metadata.version(name) for name in ("torch", "torchvision")}
    except importlib.metadata.PackageNotFoundError as e:
        p.error(f"{sys.executable} has no package {e.name}: pip install torch torchvision")
    return a


def main():
    a = parse_arguments()
    for number in (signal.SIGINT, signal.SIGTERM):
        # also if a shell started this program in the background, with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    a.output.mkdir(parents=True, exist_ok=True)
    comparison = Comparison(a)
    version = subprocess.run([a.binary, "version"], capture_output=True, text=True).stdout.strip()
    comparison.about |= a.versions | {"program": version.splitlines()[0] if version else "unknown"}
    if a.resume:
        comparison.load()
    codes = {}

    def side(who, command):
        codes[who] = run(comparison, who, command)

    sides = [threading.Thread(target=side, args=item) for item in commands(a).items()]
    try:
        for thread in sides:
            thread.start()
            if not a.together:
                thread.join()
        for thread in sides:
            thread.join()
    except KeyboardInterrupt:  # hetero-train saves a checkpoint
        for process in RUNNING:
            process.send_signal(signal.SIGINT)
        for process in RUNNING:
            process.wait()
        print("compare_accuracy: stopped; repeat the command with --resume to continue", file=sys.stderr)
        os._exit(130)
    print(comparison.table(), end="")
    raise SystemExit(1 if any(codes.get(who) != 0 for who in ("ours", "pytorch")) else 0)


if __name__ == "__main__":
    main()
