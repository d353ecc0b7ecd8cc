"""The records of a run: those before a checkpoint outlive a killed script, and a resumed run continues their figures."""
import json
import os
import signal
import tempfile
import unittest

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import hetero_train
import launch

EVALUATED = {13: 3.0, 26: 1.0, 39: 2.0}  # loss by step


def train(folder, state=None, until=60, after=lambda rank, step, b: None, within=lambda rank, step: None):
    """Returns the work of a rank, which ends after step until. after and within are called in each step."""
    def work(rank, _):
        model = DistributedDataParallel(torch.nn.Linear(4, 2))
        b = hetero_train.Balancer(global_batch=8, output_dir=folder, name="run", log_level="error")
        b.attach(model)
        if state is not None:
            b.load_state_dict(state)
        data = TensorDataset(torch.randn(100, 4))
        loader = DataLoader(data, batch_sampler=b.sampler(data))
        while b._step < until:
            for x, in loader:
                with b.step():
                    within(rank, b._step + 1)
                    b.scale(model(x).square().mean()).backward()
                after(rank, b._step, b)
                if b._step == until:
                    break
        b.close()
    return work


class Records(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # a bridge may end after its script
        self.addCleanup(temporary.cleanup)
        self.folder = temporary.name

    def records(self, rank):
        with open(os.path.join(self.folder, "run", "logs", f"rank_{rank}_metrics.json")) as f:
            return json.load(f)

    def result(self):
        with open(os.path.join(self.folder, "run", "results", "result.json")) as f:
            return json.load(f)

    def events(self, kind):
        with open(os.path.join(self.folder, "run", "logs", "events.jsonl")) as f:
            return [e for e in map(json.loads, f) if e.get(kind)]

    def test_killed_after_a_checkpoint(self):
        """Rank 0 alone evaluates and saves, between two decisions."""
        folder = self.folder

        def after(rank, step, b):
            if rank == 0 and step in EVALUATED:
                b.evaluated(EVALUATED[step], samples=10)
            if rank == 0 and step == 27:
                with open(os.path.join(folder, "state"), "w") as f:
                    json.dump(b.state_dict(), f)
                b.saved(0.5)
            if step == 43:
                os.kill(os.getpid(), signal.SIGKILL)
        launch.run(train(folder, after=after))
        with open(os.path.join(folder, "state")) as f:
            state = json.load(f)
        self.assertEqual((state["step"], state["samples"]), (27, 2 * 100 + 8))  # an epoch has 13 steps
        results = launch.run(train(folder, state, until=45))
        self.assertEqual(results, [None, None])
        result = self.result()
        self.assertEqual((result["state"], result["steps"], result["samples_seen"], result["notes"] or []),
                         ("finished", 45, 3 * 100 + 6 * 8, []))
        self.assertEqual((result["best_eval"], result["best_eval_step"]), (1.0, 26))
        self.assertEqual([e["step"] for e in self.events("evaluation")], [13, 26])
        self.assertEqual([e["step"] for e in self.events("checkpoint")], [27])
        for rank in range(2):
            records = self.records(rank)
            self.assertEqual([r["iteration"] for r in records], list(range(1, 46)))
        records = self.records(0)
        times = [r["training_time"] for r in records]
        for before, now, record in zip([0.0] + times, times, records):
            self.assertAlmostEqual(now - before, record["step_time"], delta=1e-5)  # each time is rounded
        self.assertAlmostEqual(result["samples_per_second"], result["samples_seen"] / times[-1],
                               delta=0.01 * result["samples_per_second"])

    def test_failed_between_two_decisions(self):
        def within(rank, step):
            if rank == 1 and step == 37:
                raise ValueError("a bad sample")
        results = launch.run(train(self.folder, within=within))
        self.assertIsInstance(results[0], hetero_train.RankLostError, results)
        self.assertEqual([r["iteration"] for r in self.records(1)], list(range(1, 37)))
        result = self.result()
        self.assertEqual((result["state"], result["steps"], result["notes"] or []), ("failed", 36, []))
        self.assertIn("rank 0: RankLostError: the sum of gradients: another rank has failed", result["error"])
        self.assertNotIn(".cc:", result["error"])

    def test_records_that_are_lost_are_named(self):
        def after(rank, step, b):
            if step == 35:
                b._reports._under_way.clear()  # as if no report of another rank had arrived
                b._abort(ValueError("no space left"))
                raise ValueError("no space left")
        results = launch.run(train(self.folder, after=after))
        self.assertIsInstance(results[0], ValueError, results)
        result = self.result()
        self.assertEqual((result["state"], result["steps"]), ("failed", 30), result)
        self.assertIn("steps 31 to 35 have no record", " ".join(result["notes"]))


if __name__ == "__main__":
    unittest.main()
