"""The callback of Lightning, with two ranks."""
import importlib.util
import os
import socket
import unittest
import warnings

import torch
from torch.utils.data import DataLoader

import hetero_train
import launch
import test_gradients as small

HAS = importlib.util.find_spec("lightning")
if HAS:  # before the ranks are forked, because the imports take seconds
    import lightning.pytorch as pl
    import hetero_train.lightning
    from lightning.pytorch.plugins.environments import TorchElasticEnvironment


def run(work):
    """Calls work(rank, folder) in two ranks, which Lightning connects, and returns the results by rank."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NODE_RANK": "0", "GROUP_RANK": "0",
           "TORCHELASTIC_RUN_ID": "test"}
    return launch.run(work, env=env, connect=False)


def module(words):
    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = small.Words() if words else small.image_net()

        def on_train_start(self):
            self.net.eval()  # BatchNorm

        def training_step(self, batch, index):
            loss = small.loss_of(self.net, *batch)
            return loss if words else {"loss": loss}

        def configure_optimizers(self):
            return small.optimizer_of("sgd", self)
    return Module()


@unittest.skipUnless(HAS, "needs lightning")
class Lightning(unittest.TestCase):
    def fit(self, words, accumulation, resume=False, limit=None, none=False, **arguments):
        """Returns the parameters, the order of samples and the number of steps of each rank."""
        def work(rank, folder):
            def train(checkpoint=None):
                net, seen = module(words), []
                if none:
                    net.training_step = lambda *_: None

                class Watch(pl.Callback):
                    def on_train_batch_start(self, trainer, module, batch, index):
                        seen.append(batch[0].flatten(1)[:, 0].tolist())
                callback = hetero_train.lightning.BalancerCallback(
                    fixed_shares=[9 * accumulation, 3 * accumulation], output_dir=folder, name="run", log_level="error",
                    count=(lambda batch: int((batch[1] != -100).sum())) if words else None, **arguments)
                keep = pl.callbacks.ModelCheckpoint(folder, every_n_train_steps=2, save_top_k=-1, filename="{step}")
                trainer = pl.Trainer(accelerator="cpu", devices=2, strategy="ddp", logger=False,
                                     max_epochs=2 if limit else 1, limit_train_batches=limit,
                                     callbacks=[callback, keep, Watch()], accumulate_grad_batches=accumulation,
                                     enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
                                     plugins=[TorchElasticEnvironment()])
                trainer.fit(net, DataLoader(small.data(words), batch_size=6, shuffle=True),
                            ckpt_path=checkpoint)
                b = callback.balancer
                if limit:
                    return seen
                return torch.cat([p.detach().flatten() for p in net.parameters()]), b._sampler.order(0), b._step
            result = train()
            if limit:
                return result, train(os.path.join(folder, "step=2.ckpt"))
            if resume:
                result = train(os.path.join(folder, "step=2.ckpt"))
            return result
        results = run(work)
        for r in results:
            if isinstance(r, Exception):
                raise r
        if limit:
            return results
        self.assertTrue(torch.equal(results[0][0], results[1][0]))
        _, want = small.single(words, "sgd", accumulation, results[0][1])
        self.assertLess(float((want - results[0][0]).norm() / want.norm()), small.TOLERANCE)
        return results

    def test_tokens(self):
        self.fit(words=True, accumulation=1)

    def test_accumulation(self):
        self.fit(words=False, accumulation=2)

    def test_resume_in_the_middle_of_an_epoch(self):
        self.assertEqual(self.fit(words=False, accumulation=1, resume=True)[0][2], 4)

    def test_resume_after_a_limited_epoch(self):
        for whole, rest in self.fit(words=False, accumulation=1, limit=2):
            self.assertEqual((len(whole), rest), (4, whole[2:]))

    def test_epoch_that_ends_within_a_step_is_refused(self):
        with self.assertRaisesRegex(hetero_train.SettingsError, "3 batches .*multiple of accumulate_grad_batches = 2"):
            self.fit(words=False, accumulation=2, limit=3)

    def test_step_without_a_loss_is_refused(self):
        with self.assertRaisesRegex(hetero_train.BatchError, "returned no loss"):
            self.fit(words=False, accumulation=1, none=True)

    def test_checkpoint_within_a_step(self):
        """Lightning would continue with the next micro-batch, and the balancer cannot."""
        def work(rank, folder):
            path = os.path.join(folder, "within.ckpt")

            class Save(pl.Callback):
                def on_train_batch_end(self, trainer, module, out, batch, index):
                    if index == 2:
                        trainer.save_checkpoint(path)

            def train(checkpoint=None):
                callback = hetero_train.lightning.BalancerCallback(fixed_shares=[18, 6], output_dir=folder, name="run",
                                                                   log_level="error")
                trainer = pl.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False,
                                     callbacks=[callback, Save()], accumulate_grad_batches=2,
                                     enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                                     default_root_dir=folder, plugins=[TorchElasticEnvironment()])
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    trainer.fit(module(False), DataLoader(small.data(False), batch_size=6, shuffle=True),
                                ckpt_path=checkpoint)
                return [str(w.message) for w in said if "within an optimizer step" in str(w.message)]
            said = train()
            try:
                train(path)
            except hetero_train.SettingsError as e:
                return len(said), str(e)
            return len(said), "resumed"
        for result in run(work):
            if isinstance(result, Exception):
                raise result
            self.assertEqual(result[0], 1)
            self.assertIn("after a whole step", result[1])

    def test_tokens_with_accumulation_are_refused(self):
        with self.assertRaisesRegex(hetero_train.BatchError, "needs total"):
            self.fit(words=True, accumulation=2)


if __name__ == "__main__":
    unittest.main()
