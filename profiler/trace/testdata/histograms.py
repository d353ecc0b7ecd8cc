"""Writes histograms.json: histograms that torch.utils.tensorboard writes, as the reader of TensorBoard reads them.

Needs torch and tensorboard: python profiler/trace/testdata/histograms.py
"""

import json
import os
import tempfile

import numpy
import torch
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto import event_pb2
from torch.utils.tensorboard import SummaryWriter

random = numpy.random.default_rng(1)
CASES = {
    "normal": random.normal(0, 0.05, 200),
    "one value": [0.25],
    "zeros": [0.0, 0.0, -0.0],
    "limits of bins": [1e-12, -1e-12, 1.1e-12, 1e-13, -1e-13, 0.0, 2.5],
    "negative": -numpy.exp(random.normal(0, 5, 50)),
    "wide": numpy.exp(random.normal(0, 12, 50)) * random.choice([-1, 1], 50),
    "largest": [9e19, -9e19, 3e20, 1.0],
}


def main():
    """Writes the cases with their histograms."""
    written = {}
    with tempfile.TemporaryDirectory() as folder:
        with SummaryWriter(folder) as writer:
            for step, values in enumerate(CASES.values()):
                writer.add_histogram("x", torch.tensor(numpy.asarray(values, dtype=numpy.float32)), step)
        (name,) = os.listdir(folder)
        for text in RawEventFileLoader(os.path.join(folder, name)).Load():
            event = event_pb2.Event.FromString(text)
            for value in event.summary.value:
                h = value.histo
                written[event.step] = {"min": h.min, "max": h.max, "num": h.num, "sum": h.sum,
                                       "sum_squares": h.sum_squares, "limits": list(h.bucket_limit),
                                       "counts": list(h.bucket)}
    out = [{"name": name, "values": [float(v) for v in numpy.asarray(values, dtype=numpy.float32)],
            "want": written[step]} for step, (name, values) in enumerate(CASES.items())]
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "histograms.json"), "w", encoding="utf-8") as file:
        json.dump(out, file)
        file.write("\n")


main()
