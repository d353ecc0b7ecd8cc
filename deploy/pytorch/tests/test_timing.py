"""The times of a step. Fake events stand for a GPU, which is behind the host."""
import json
import os
import statistics
import time
import unittest
from unittest import mock

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import hetero_train
import launch
from hetero_train.timing import Clock

PARTS = ("data_loading_time", "forward_time", "backward_time", "communication_time", "optimizer_time")
WORK = 0.01  # s of the GPU before each mark


class Event:
    """A point in time that a GPU reaches after the host."""

    latest = 0.0

    def __init__(self):
        self.at = Event.latest = max(Event.latest, time.perf_counter()) + WORK

    def synchronize(self):
        time.sleep(max(self.at - time.perf_counter(), 0.0))

    def elapsed_time(self, other):
        return 1000 * (other.at - self.at)


def behind(rank, folder):
    def start(clock, device):
        clock.cuda = True
    with mock.patch.object(Clock, "__init__", start), mock.patch.object(Clock, "mark", lambda self: Event()), \
            mock.patch.object(Clock, "keep", lambda self, value: value), \
            mock.patch.object(hetero_train.opening.Opening, "_synchronize", lambda self: None):
        b = hetero_train.Balancer(global_batch=8, output_dir=folder, name="run", log_level="error", device="cpu")
        b.attach(model := DistributedDataParallel(torch.nn.Linear(4, 2)))
        data = TensorDataset(torch.randn(320, 4))
        for x, in DataLoader(data, batch_sampler=b.sampler(data)):
            with b.step():
                b.scale(model(x).mean()).backward()
        b.close()
    with open(os.path.join(folder, "run", "logs", "rank_0_metrics.json")) as f:
        return json.load(f)


class Timing(unittest.TestCase):
    def test_waits_of_the_host_are_no_part_of_a_step(self):
        records = launch.run(behind)[0]
        self.assertIsInstance(records, list, records)
        self.assertEqual([r["iteration"] for r in records], list(range(1, 41)))
        ratios = [sum(r[k] for k in PARTS) / r["step_time"] for r in records[2:]]
        # The host waits for the GPU in each step. Counted as communication, this wait doubles the parts.
        self.assertLess(statistics.median(ratios), 1.5, ratios)
        self.assertGreater(statistics.median(ratios), 0.5, ratios)


if __name__ == "__main__":
    unittest.main()
