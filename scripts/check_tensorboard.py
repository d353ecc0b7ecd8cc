#!/usr/bin/env python3
"""Loads a run's event files with TensorBoard, and compares every point with the run's own records.

    python3 -m venv /tmp/tensorboard && /tmp/tensorboard/bin/pip install tensorboard
    ./hetero-train -c configs/simple_cnn.toml
    /tmp/tensorboard/bin/python scripts/check_tensorboard.py experiments/simple_cnn

The script reads twice: in this process, as notebooks do, and from the web server of `tensorboard --logdir`, which reads
files in another program.
Exit 0: every step appears once and in order, values equal those of rank_0_metrics.json, and TensorBoard shows settings
and configuration.
"""
import json
import math
import os
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

from tensorboard.backend.event_processing import event_accumulator
from tensorboard.plugins.hparams import plugin_data_pb2

# Scalars that the run's records also contain, with their keys in the records.
SAME = {"train/loss": "loss", "train/top1": "accuracy", "train/learning_rate": "learning_rate",
        "train/grad_norm": "grad_norm",
        "progress/training_seconds": "training_time"}


def fail(text):
    sys.exit(f"FAILED: {text}")


def near(got, want):
    """Whether two values are equal in f32, the type in event files."""
    if want is None:
        return math.isnan(got) or math.isinf(got)
    return got == struct.unpack("f", struct.pack("f", want))[0]


def check_points(how, tag, points, records):
    steps = [step for step, _ in points]
    if steps != sorted(set(steps)):
        fail(f"{how}: {tag}: steps are out of order, or occur twice: {steps}")
    for step, value in points:
        if step not in records:
            fail(f"{how}: {tag}: step {step} is not in the records")
        if tag in SAME and not near(value, records[step][SAME[tag]]):
            fail(f"{how}: {tag}: step {step}: got {value}, want {records[step][SAME[tag]]}")
    return len(points)


def check_process(folder, records):
    events = event_accumulator.EventAccumulator(folder, size_guidance={event_accumulator.TENSORS: 0,
                                                                       event_accumulator.SCALARS: 0})
    events.Reload()
    tags = events.Tags()
    points = 0
    for tag in tags["scalars"]:
        points += check_points("in this process", tag, [(e.step, e.value) for e in events.Scalars(tag)], records)
    for tag in SAME:
        if tag not in tags["scalars"]:
            fail(f"no scalar {tag} among {tags['scalars']}")
    text = events.Tensors("config")[-1].tensor_proto.string_val[0].decode()
    if "[model]" not in text:
        fail(f"the configuration reads {text[:200]!r}")
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    settings = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    if "optimizer.lr" not in settings or "model.name" not in settings:
        fail(f"got only the settings {sorted(settings)}")
    return len(tags["scalars"]), points, len(settings)


def ask(port, path, **query):
    url = f"http://localhost:{port}/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def check_server(folder, records, port=16006):
    server = subprocess.Popen([sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--port", str(port),
                               "--samples_per_plugin", "scalars=1000000"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(120):
            time.sleep(0.5)
            try:
                tags = ask(port, "data/plugin/scalars/tags")
            except (urllib.error.URLError, ConnectionError):
                continue
            if tags:
                break
        else:
            fail("the server shows no scalars after a minute")
        points = 0
        for run, of_run in tags.items():
            for tag in of_run:
                got = ask(port, "data/plugin/scalars/scalars", run=run, tag=tag)
                points += check_points("from the server", tag, [(step, float(value)) for _, step, value in got],
                                       records)
        if not ask(port, "data/plugin/text/tags"):
            fail("the server shows no text")
        return points
    finally:
        server.terminate()
        server.wait()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    run = sys.argv[1]
    logs = os.path.join(run, "logs")
    with open(os.path.join(logs, "rank_0_metrics.json")) as file:
        records = {r["iteration"]: r for r in json.load(file)}
    folder = os.path.join(logs, "tensorboard")
    tags, points, settings = check_process(folder, records)
    served = check_server(folder, records)
    if served != points:
        fail(f"the server shows {served} points, this process read {points}")
    print(f"ok: {len(os.listdir(folder))} event files, {tags} scalars, {points} points, {settings} settings; the server shows the same")


if __name__ == "__main__":
    main()
