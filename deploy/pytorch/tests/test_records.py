"""The records of a run: those before a checkpoint outlive a killed script, and a resumed run continues their figures."""
import json
import os
import signal
import tempfile
import time
import unittest
from unittest import mock

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import hetero_train
import launch

EVALUATED = {13: 3.0, 26: 1.0, 39: 2.0}  # loss by step


def train(folder, state=None, until=60, after=lambda rank, step, b: None, within=lambda rank, step: None, lag=None,
          workers=0, **arguments):
    """Returns the work of a rank, which ends after step until. after and within are called in each step. The work
    returns the shares after each step. lag: of the reports, as on a GPU."""
    def work(rank, _):
        model = DistributedDataParallel(torch.nn.Linear(4, 2))
        b = hetero_train.Balancer(global_batch=24, output_dir=folder, name="run", log_level="error", **arguments)
        b.attach(model)
        if lag is not None:
            b._reports._lag = lag
        if state is not None:
            b.load_state_dict(state)
        data = TensorDataset(torch.randn(300, 4))
        loader = DataLoader(data, batch_sampler=b.sampler(data), num_workers=workers)
        shares = []
        while b._step < until:
            for x, in loader:
                with b.step(), b.no_sync():
                    within(rank, b._step + 1)
                    b.scale(model(x).square().mean()).backward()
                    updates = b.updates
                if not updates:
                    continue
                shares.append(b.shares)
                after(rank, b._step, b)
                if b._step == until:
                    break
        b.close()
        return shares
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
        """Rank 0 alone evaluates and saves, between two decisions. Then script and program are killed."""
        folder = self.folder

        def after(rank, step, b):
            if rank == 0 and step in EVALUATED:
                b.evaluated(EVALUATED[step], samples=10)
            if rank == 0 and step == 27:
                with open(os.path.join(folder, "state"), "w") as f:
                    json.dump(b.state_dict(), f)
                b.saved(0.5)
            if step == 27:
                os.kill(b._bridge.pid, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
        launch.run(train(folder, after=after))
        for rank in range(2):
            self.assertEqual([r["iteration"] for r in self.records(rank)], list(range(1, 28)))
        with open(os.path.join(folder, "state")) as f:
            state = json.load(f)
        self.assertEqual((state["step"], state["samples"]), (27, 2 * 300 + 24))  # an epoch has 13 steps
        results = launch.run(train(folder, state, until=45, after=after))
        self.assertEqual(len(results[0]), 18, results)
        result = self.result()
        self.assertEqual((result["state"], result["steps"], result["samples_seen"], result["notes"] or []),
                         ("finished", 45, 3 * 300 + 6 * 24, []))
        self.assertEqual((result["best_eval"], result["best_eval_step"]), (1.0, 26))
        self.assertEqual([e["step"] for e in self.events("evaluation")], [13, 26, 39])
        self.assertEqual([e["step"] for e in self.events("checkpoint")], [27])
        for rank in range(2):
            self.assertEqual([r["iteration"] for r in self.records(rank)], list(range(1, 46)))
        records = self.records(0)
        times = [r["training_time"] for r in records]
        for before, now, record in zip([0.0] + times, times, records):
            self.assertAlmostEqual(now - before, record["step_time"], delta=1e-5)  # each time is rounded
        self.assertAlmostEqual(result["samples_per_second"], result["samples_seen"] / times[-1],
                               delta=0.01 * result["samples_per_second"])

    def test_ranks_agree_although_rank_0_asks_alone(self):
        def within(rank, step):
            time.sleep(0.002 * rank)

        def after(rank, step, b):
            if rank == 0 and step % 3 == 1:
                b.state_dict()
            if rank == 0 and step % 7 == 0:
                b.evaluated(1.0 / step)
        for lag, settings in ((None, {"interval": 7}), (None, {"interval": 10, "accumulation": 3, "workers": 2}),
                              (1, {"interval": 6, "workers": 1}), (1, {"interval": 11})):
            with self.subTest(lag=lag, **settings):
                results = launch.run(train(self.folder, within=within, after=after, lag=lag, **settings))
                self.assertIsInstance(results[0], list, results)
                self.assertEqual(results[0], results[1])
                self.assertGreater(len(set(results[0])), 1, "the shares did not change")
                for rank in range(2):
                    self.assertEqual([r["iteration"] for r in self.records(rank)], list(range(1, 61)))
                self.assertEqual([e["step"] for e in self.events("evaluation")], list(range(7, 61, 7)))

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

    def test_failed_after_the_sum_of_gradients(self):
        """Rank 0 waits for the report of step 30, and still gives the program those of steps 21 to 29."""
        def work(rank, folder):
            def finish(self, micro, times, original=hetero_train.Balancer._finish):
                if rank == 1 and self._step == 29:
                    raise ValueError("no memory for the update")
                return original(self, micro, times)
            with mock.patch.object(hetero_train.Balancer, "_finish", finish):
                return train(self.folder)(rank, folder)
        results = launch.run(work)
        self.assertIsInstance(results[0], hetero_train.RankLostError, results)
        self.assertEqual([r["iteration"] for r in self.records(0)], list(range(1, 30)))
        self.assertIn("no record: step 30", " ".join(self.result()["notes"]))

    def test_calls_at_the_wrong_time(self):
        def work(rank, folder):
            b = hetero_train.Balancer(global_batch=8, output_dir=folder, log_level="error")
            b.attach(model := DistributedDataParallel(torch.nn.Linear(4, 2)))
            data = TensorDataset(torch.randn(8, 4))
            said = []
            for call in (b.saved, lambda: b.evaluated(1.0)):
                try:
                    call()
                except hetero_train.BatchError as e:
                    said.append(str(e))
            for x, in DataLoader(data, batch_sampler=b.sampler(data)):
                with b.step():
                    try:
                        b.evaluated(1.0)
                    except hetero_train.BatchError as e:
                        said.append(str(e))
                    b.scale(model(x).mean()).backward()
            b.close()
            return said
        for said in launch.run(work):
            self.assertEqual([s.split(":")[0] for s in said], [
                "balancer.saved() was called before the first batch or after close()",
                "balancer.evaluated() was called before the first batch or after close()",
                "balancer.evaluated() was called within an optimizer step"])

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
        self.assertIn("no record: steps 31 to 35", " ".join(result["notes"]))


if __name__ == "__main__":
    unittest.main()
