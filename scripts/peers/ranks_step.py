#!/usr/bin/env python3
"""Times training steps of several ranks of hetero-train on this machine; prints one JSON line like `bench train --json`.

    python3 scripts/peers/ranks_step.py --binary ./hetero-train --ranks 2 --model resnet50 --image-size 32 --batch-size 128

The time of a step is that of its slowest rank, from its metrics: data, forward, backward, wait for gradients, optimizer.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile

p = argparse.ArgumentParser()
p.add_argument("--binary", default="./hetero-train")
p.add_argument("--ranks", type=int, default=2)
p.add_argument("--model", default="resnet50")
p.add_argument("--image-size", type=int, default=32)
p.add_argument("--batch-size", type=int, default=128, help="samples of all ranks")
p.add_argument("--classes", type=int, default=1000)
p.add_argument("--precision", default="f32")
p.add_argument("--optimizer", choices=["auto", "sgd"], default="auto",
               help="sgd with momentum, as in bench train for images")
p.add_argument("--device", choices=["cpu"], default="cpu")
p.add_argument("--steps", type=int, default=20)
p.add_argument("--warmup", type=int, default=3)
p.add_argument("--threads", type=int, default=0, help="of all ranks together; 0: all")
p.add_argument("--batch-norm", choices=["sync", "local"], default="local", help="PyTorch on a CPU supports only local")
p.add_argument("--json", action="store_true", help="always on")
a = p.parse_args()

# as in bench train
optimizer = {"name": "sgd", "momentum": 0.9, "nesterov": False, "weight_decay": 0.0001, "decay_norms_and_biases": False}
with tempfile.TemporaryDirectory() as scratch:
    settings = {
        "parallel.ranks": a.ranks, "model.batch_norm": a.batch_norm, "model.num_classes": a.classes,
        "data.batch_size": a.batch_size,
        "data.image_size": a.image_size, "data.num_samples": 2 * a.batch_size, "data.workers": 1,
        "train.precision": a.precision,
        "train.steps": a.warmup + a.steps, "train.eval_interval": 0, "device.threads": max(a.threads // a.ranks, 1)
        if a.threads else 0,
        "device.kind": a.device, "optimizer.lr": 0.01, "train.clip_norm": 0, "train.grad_accumulation": 1,
        "profile.enabled": "true",
    }
    settings |= {f"optimizer.{key}": str(value).lower() for key, value in optimizer.items()}
    command = [a.binary, "train", "--model", a.model, "--dataset", "synthetic_image", "--output-dir", scratch,
               "--experiment-name", "run"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {run.returncode}\n{run.stderr[-2000:]}")
    ranks = []
    for rank in range(a.ranks):
        with open(f"{scratch}/run/logs/rank_{rank}_metrics.json") as f:
            ranks.append(json.load(f)[a.warmup:])

seconds = [max(r["iteration_time"] for r in step) for step in zip(*ranks)]
mean = lambda key: statistics.mean(r[key] for rank in ranks for r in rank)
median = statistics.median(seconds)
print(json.dumps({
    "optimizer": optimizer | {"clip_norm": 0.0}, "model": a.model, "device": a.device, "precision": a.precision,
    "image_size": a.image_size, "classes": a.classes, "batch_size": a.batch_size, "ranks": a.ranks,
    "grad_accumulation": 1, "threads": settings["device.threads"], "batch_norm": a.batch_norm, "steps": len(seconds),
    "step_seconds_median": median, "step_seconds_min": min(seconds), "step_seconds_max": max(seconds),
    "share_of_peak": None, "peak_memory_bytes": 0,  # not measured here
    "samples_per_second": a.batch_size / median, "backward_seconds": mean("backward_time"),
    "communication_seconds": mean("communication_time"),
    "communication_hidden_seconds": mean("communication_hidden_time"),
    "communication_bytes": ranks[0][0]["communication_bytes"],
}))
