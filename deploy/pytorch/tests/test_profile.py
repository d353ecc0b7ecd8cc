"""Balancer.profile keeps its budget, and the next start takes the curve from the cache."""
import time
import unittest
import warnings

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import hetero_train
import launch

PER_SAMPLE = 0.004  # s


def train(rank, folder, name, width, budget=0.4, rows=1, shares=None, checkpointing=False):
    """Profiles and trains. Returns the curve, the samples of the calls, the warnings, and whether the balancer has it."""
    model = DistributedDataParallel(torch.nn.Linear(4, width))
    model.module.gradient_checkpointing = checkpointing
    d = TensorDataset(torch.randn(48, rows, 4))
    b = hetero_train.Balancer(global_batch=24, output_dir=folder, name=name, log_level="error")
    b.attach(model)
    sampler, calls = b.sampler(d), []

    def step(n):
        calls.append(n)
        model.module(d[:n][0])
        time.sleep(PER_SAMPLE * n)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        curve = b.profile(step, budget=budget, shares=shares)
    for x, in DataLoader(d, batch_sampler=sampler):
        with b.step():
            b.scale(model(x).square().mean()).backward()
    b.close()
    return curve, calls, [str(w.message) for w in said], b.cached


class Profile(unittest.TestCase):
    def test_budget_and_cache(self):
        def work(rank, folder):
            return [train(rank, folder, "one", 2), train(rank, folder, "two", 2), train(rank, folder, "model", 3),
                    train(rank, folder, "inputs", 2, rows=5), train(rank, folder, "mode", 2, checkpointing=True),
                    train(rank, folder, "shares", 2, shares=[2, 4])]
        results = launch.run(work)
        for result in results:
            if isinstance(result, Exception):
                raise result
            (curve, calls, said, cached), next_start, *others, chosen = result
            self.assertTrue(cached)
            self.assertLessEqual(sum(calls) * PER_SAMPLE, 0.4)
            self.assertIn("budget of 0.4 s", said[0])
            for n, seconds in curve:
                self.assertGreaterEqual(seconds, PER_SAMPLE * n)
            self.assertIn(next_start[0], [r[0][0] for r in results])  # equal devices share a curve
            self.assertEqual((next_start[1], next_start[3]), ([1], True))
            for other in others:
                self.assertGreater(len(other[1]), 1)
            self.assertEqual([n for n, _ in chosen[0]], [2, 4])

    def test_all_shares_within_a_large_budget(self):
        def work(rank, folder):
            return train(rank, folder, "run", 2, budget=60)
        curve, calls, said, _ = launch.run(work)[0]
        self.assertEqual([n for n, _ in curve], [1, 3, 6, 9, 12, 15, 18, 24])
        self.assertEqual((len(calls), said), (6 * 8, []))

    def test_order_of_calls(self):
        def work(rank, folder):
            b = hetero_train.Balancer(global_batch=24, output_dir=folder, log_level="error")
            b.attach(DistributedDataParallel(torch.nn.Linear(4, 2)))
            b.profile(lambda n: None)
        self.assertIn("must come after sampler()", str(launch.run(work)[0]))


if __name__ == "__main__":
    unittest.main()
