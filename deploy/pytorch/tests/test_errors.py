"""Bad input: each case is an exception that says what to do, and the bridge process always ends."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import hetero_train
import launch


def script(change, **arguments):
    """Returns the work of a rank: a training in which change(rank, step, balancer, model, x) computes the loss."""
    def work(rank, folder):
        model = DistributedDataParallel(torch.nn.Linear(4, 2))
        arguments.setdefault("global_batch", 8)
        arguments.setdefault("output_dir", folder)
        b = hetero_train.Balancer(log_level="error", **arguments)
        b.attach(model)
        d = TensorDataset(torch.randn(32, 4))
        step = 0
        for epoch in range(3):
            for x, in DataLoader(d, batch_sampler=b.sampler(d) if b._sampler is None else b._sampler):
                step += 1
                with b.step():
                    change(rank, step, b, model, x)
        b.close()
        return "done"
    return work


def normal(rank, step, b, model, x):
    b.scale(model(x).square().mean()).backward()


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().split(") ")[1][0] != "Z"
    except OSError:
        return False


class Errors(unittest.TestCase):
    def fails(self, work, kind, text, ranks=2, timeout=30.0, env=None):
        start = time.monotonic()
        results = launch.run(work, ranks=ranks, timeout=timeout, env=env)
        self.assertTrue(any(isinstance(r, kind) and text in str(r) for r in results), results)
        for r in results:
            self.assertIsInstance(r, Exception, results)
        return results, time.monotonic() - start

    def test_program_not_found(self):
        with mock.patch.dict(os.environ, {"HETERO_TRAIN": "/nowhere/hetero-train"}):
            self.fails(script(normal), hetero_train.ProgramNotFoundError, "set it to the path of hetero-train")

    def test_another_program(self):
        with mock.patch.dict(os.environ, {"HETERO_TRAIN": "/bin/cat"}):
            self.fails(script(normal), hetero_train.BridgeError, "")

    def test_versions_that_differ(self):
        with mock.patch("hetero_train.program.PROTOCOL", 9):
            self.fails(script(normal), hetero_train.SettingsError, "install both from one release")

    def test_settings(self):
        self.fails(script(normal, policy="best"), hetero_train.SettingsError, "balance.policy")
        self.fails(script(normal, settings={"optimizer.lr": 1}), hetero_train.SettingsError,
                   "optimizer.lr has no effect")

    def test_global_batch_smaller_than_the_ranks(self):
        self.fails(script(normal, global_batch=1), hetero_train.SettingsError, "at least one for each of the 2 ranks")
        self.fails(script(normal, global_batch=9, accumulation=2), hetero_train.SettingsError, "not a multiple")

    def test_batch_that_is_no_whole_number(self):
        for settings in ({"global_batch": 16.5}, {"global_batch": "16"}, {"accumulation": 2.0}):
            self.fails(script(normal, **settings), hetero_train.SettingsError, "is not a whole number")

    def test_step_without_scale(self):
        self.fails(script(lambda rank, step, b, model, x: model(x).square().mean().backward()), hetero_train.BatchError,
                   "has no balancer.scale")

    def test_step_without_backward(self):
        self.fails(script(lambda rank, step, b, model, x: b.scale(model(x).square().mean())), hetero_train.BatchError,
                   "no gradients were summed")

    def test_exception_in_the_step(self):
        def change(rank, step, b, model, x):
            if rank == 0 and step == 3:
                raise ValueError("a bad sample")
            normal(rank, step, b, model, x)

        def work(rank, folder):
            try:
                return script(change, output_dir=folder, name="run")(rank, folder)
            finally:
                if rank == 0:
                    with open(os.path.join(folder, "run", "results", "result.json")) as f:
                        print("RESULT", json.load(f)["state"],
                              file=open(os.path.join("/tmp", f"state{os.getppid()}"), "w"))
        self.addCleanup(lambda: os.path.exists(f"/tmp/state{os.getpid()}") and os.remove(f"/tmp/state{os.getpid()}"))
        self.fails(work, ValueError, "a bad sample")
        with open(f"/tmp/state{os.getpid()}") as f:
            out = f.read()
        self.assertIn("failed", out)

    def test_exception_between_two_steps(self):
        """Steps that no context encloses: the end of the script tells the records that it has failed."""
        with tempfile.TemporaryDirectory() as folder:
            text = ("import torch, hetero_train, torch.distributed as dist\n"
                    "dist.init_process_group('gloo', init_method='file://%s/store', rank=0, world_size=1)\n"
                    "b = hetero_train.Balancer(global_batch=8, output_dir='%s', name='run', log_level='error')\n"
                    "b.attach(model := torch.nn.Linear(4, 2))\n"
                    "d = torch.utils.data.TensorDataset(torch.randn(32, 4))\n"
                    "for x, in torch.utils.data.DataLoader(d, batch_sampler=b.sampler(d)):\n"
                    "    b.begin_step()\n    b.scale(model(x).square().mean()).backward()\n    b.end_step()\n"
                    "    raise ValueError('no space left')\n") % (folder, folder)
            out = subprocess.run([sys.executable, "-c", text], stderr=subprocess.PIPE, text=True)
            self.assertIn("no space left", out.stderr)
            with open(os.path.join(folder, "run", "results", "result.json")) as f:
                result = json.load(f)
            self.assertEqual(result["state"], "failed", result)

    def test_end_without_a_beginning(self):
        def change(rank, step, b, model, x):
            normal(rank, step, b, model, x)
            b.end_step()  # the context ends it again
        self.fails(script(change), hetero_train.BatchError, "without begin_step")

    def test_rank_that_ends_its_loop_early(self):
        def work(rank, folder):
            def change(rank, step, b, model, x):
                if rank == 1 and step == 4:
                    raise StopIteration
                normal(rank, step, b, model, x)
            return script(change)(rank, folder)
        _, took = self.fails(work, hetero_train.RankLostError, "another rank has failed: rank 1: StopIteration",
                             timeout=20.0)
        self.assertLess(took, 60)

    def test_rank_that_does_not_answer(self):
        def change(rank, step, b, model, x):
            if rank == 1 and step == 3:
                time.sleep(12)
            normal(rank, step, b, model, x)
        self.fails(script(change), hetero_train.RankLostError, "has not answered", timeout=4.0)

    def test_sampler_that_is_replaced(self):
        def work(rank, folder):
            model = DistributedDataParallel(torch.nn.Linear(4, 2))
            b = hetero_train.Balancer(global_batch=8, output_dir=folder, log_level="error")
            d = TensorDataset(torch.randn(32, 4))
            b.sampler(d)
            for x, in DataLoader(d, batch_size=4):
                with b.step():
                    normal(rank, 1, b, model, x)
        self.fails(work, hetero_train.SamplerError, "keep other libraries from replacing the sampler")

    def test_samplers_that_differ(self):
        def work(rank, folder):
            b = hetero_train.Balancer(global_batch=8, output_dir=folder, log_level="error")
            b.attach(DistributedDataParallel(torch.nn.Linear(4, 2)))
            iter(b.sampler(TensorDataset(torch.randn(32, 4)), seed=rank))
        self.fails(work, hetero_train.SamplerError, "pass the same arguments")

    def test_data_set_whose_length_changes(self):
        def work(rank, folder):
            model = DistributedDataParallel(torch.nn.Linear(4, 2))
            b = hetero_train.Balancer(global_batch=8, output_dir=folder, log_level="error")
            b.attach(model)
            d = [torch.randn(4) for _ in range(16)]
            loader = DataLoader(d, batch_sampler=b.sampler(d))
            for epoch in range(2):
                for x in loader:
                    with b.step():
                        normal(rank, 1, b, model, x)
                d.append(torch.randn(4))
        self.fails(work, hetero_train.SamplerError, "create a new sampler")

    def test_models_that_differ(self):
        def work(rank, folder):
            model = DistributedDataParallel(torch.nn.Linear(4, 2))
            b = hetero_train.Balancer(global_batch=8, output_dir=folder, log_level="error")
            b.attach(model)
            if rank == 1:
                model.module = torch.nn.Linear(4, 3)
            iter(b.sampler(TensorDataset(torch.randn(32, 4))))
        self.fails(work, hetero_train.HeteroTrainError, "start all ranks with the same program")

    def test_exceptions_of_earlier_cells(self):
        """A notebook keeps its last exception, which says nothing about a run that began later."""
        def work(rank, folder):
            sys.last_value = ValueError("an earlier cell")
            model, d = torch.nn.Linear(4, 2), TensorDataset(torch.randn(16, 4))
            b = hetero_train.Balancer(global_batch=8, output_dir=folder, name="run", log_level="error")
            b.attach(model)
            for x, in DataLoader(d, batch_sampler=b.sampler(d)):
                with b.step():
                    b.scale(model(x).mean()).backward()
            b._at_exit()
            with open(os.path.join(folder, "run", "results", "result.json")) as f:
                return json.load(f)["state"]
        self.assertEqual(launch.run(work, ranks=1), ["stopped"])  # without close()

    def test_bridge_that_is_killed(self):
        def change(rank, step, b, model, x):
            if rank == 0 and step == 3:
                os.kill(b._bridge.pid, signal.SIGKILL)
            normal(rank, step, b, model, x)
        self.fails(script(change), hetero_train.BridgeError, "killed by signal 9")

    def test_bridges_end_with_killed_scripts(self):
        def change(rank, step, b, model, x):
            normal(rank, step, b, model, x)
            if step == 3:
                with open(f"/tmp/bridge{os.getppid()}.{rank}", "w") as f:
                    f.write(str(b._bridge.pid))
                os.kill(os.getpid(), signal.SIGKILL)
        launch.run(script(change))
        for rank in range(2):
            path = f"/tmp/bridge{os.getpid()}.{rank}"
            with open(path) as f:
                pid = int(f.read())
            os.remove(path)
            end = time.monotonic() + 40
            while alive(pid) and time.monotonic() < end:
                time.sleep(0.1)
            self.assertFalse(alive(pid), f"the bridge of rank {rank} lives on")

    def test_refused_models(self):
        class DeepSpeedEngine(torch.nn.Linear):
            pass

        def work(rank, folder):
            b = hetero_train.Balancer(global_batch=8, output_dir=folder, log_level="error")
            b.attach(DeepSpeedEngine(2, 2))
        self.fails(work, hetero_train.BatchError, "DeepSpeed divides each loss by its number of micro-batches")


if __name__ == "__main__":
    unittest.main()
