"""The adapters of Hugging Face Trainer and accelerate, and LoRA by peft, each with two ranks."""
import importlib.util
import json
import os
import unittest

import torch
from torch.nn.parallel import DistributedDataParallel

import hetero_train
import launch

if importlib.util.find_spec("transformers"):  # before the ranks are forked, because the imports take seconds
    import transformers
    import transformers.trainer
    import hetero_train.transformers

SHARES = [6, 2]


def needs(name):
    return unittest.skipUnless(importlib.util.find_spec(name), f"needs {name}")


class Texts(torch.utils.data.Dataset):
    def __init__(self, n=24):
        torch.manual_seed(4)
        self.n = n
        self.ids = torch.randint(0, 31, (24, 6))
        self.labels = self.ids.clone()
        self.labels[torch.rand(24, 6) < 0.3] = -100
        self.labels[:, 1] = 3

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


class Points(torch.utils.data.Dataset):
    def __init__(self):
        torch.manual_seed(6)
        self.x, self.y = torch.randn(18, 5), torch.randint(0, 3, (18,))

    def __len__(self):
        return 18

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.y[i]}


class Classes(torch.nn.Module):
    """A model in the style of transformers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(8)
        self.net = torch.nn.Linear(5, 3)

    def forward(self, x, labels):
        return {"loss": torch.nn.functional.cross_entropy(self.net(x), labels)}


def tiny():
    torch.manual_seed(0)
    c = transformers.GPT2Config(vocab_size=31, n_positions=8, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0,
                                embd_pdrop=0, attn_pdrop=0)
    return transformers.GPT2LMHeadModel(c)


def reference(order, model, batch=8, lr=0.1):
    """Trains in one process on whole batches; the loss is a mean over the valid tokens."""
    d = Texts()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr)
    for start in range(0, len(order), batch):
        rows = order[start:start + batch]
        out = model(d.ids[rows]).logits[:, :-1].flatten(0, 1)
        torch.nn.functional.cross_entropy(out, d.labels[rows][:, 1:].flatten(), ignore_index=-100).backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@needs("transformers")
class Losses(unittest.TestCase):
    """The weights of a loss that the package knows, and the refusal of others."""

    def test_weighted_parts_are_the_whole(self):
        t = transformers
        size = dict(vocab_size=31, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
                    hidden_dropout_prob=0, attention_probs_dropout_prob=0, max_position_embeddings=16)
        bert = t.BertConfig(num_labels=31, **size)
        t5 = t.T5Config(vocab_size=31, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, dropout_rate=0,
                        decoder_start_token_id=0, pad_token_id=0)
        d = Texts()
        for model in (tiny(), t.BertForMaskedLM(bert), t.BertForTokenClassification(bert),
                      t.T5ForConditionalGeneration(t5)):
            def loss(start, end):
                inputs = {"input_ids": d.ids[start:end], "labels": d.labels[start:end]}
                return hetero_train.transformers.targets(model, inputs) * float(model(**inputs).loss.detach())

            def count(start, end):
                return hetero_train.transformers.targets(model, {"labels": d.labels[start:end]})
            self.assertEqual(count(0, 7) + count(7, 24), count(0, 24))
            self.assertAlmostEqual((loss(0, 7) + loss(7, 24)) / loss(0, 24), 1, places=5, msg=type(model).__name__)

    def test_unknown_losses_are_refused(self):
        t = transformers
        bart = t.BartConfig(vocab_size=31, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
                            decoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8)
        speech = t.Wav2Vec2Config(vocab_size=31, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                                  intermediate_size=8, conv_dim=(8,), conv_stride=(5,), conv_kernel=(10,),
                                  num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2)
        rows = {"labels": torch.zeros(2, 6, dtype=torch.long)}
        for model, inputs in ((t.Wav2Vec2ForCTC(speech), rows), (t.BartForCausalLM(bart), rows), (Classes(), rows),
                              (Classes(), {"x": torch.zeros(2, 5), "target": torch.zeros(2)}),
                              (Classes(), {"labels": torch.zeros(2, 3, 4)})):
            with self.assertRaisesRegex(hetero_train.SettingsError, "pass count=FUNCTION"):
                hetero_train.transformers.targets(model, inputs)

    @needs("accelerate")
    def test_a_loss_of_the_trainer_is_refused(self):
        class Own(transformers.Trainer):
            def compute_loss(self, model, inputs, *_, **__):
                return model(**inputs)["loss"]

        def work(rank, folder):
            os.environ.update(MASTER_ADDR="127.0.0.1", ACCELERATE_USE_CPU="true")
            args = transformers.TrainingArguments(folder, report_to=[], use_cpu=True)
            for trainer in (Own(Classes(), args, train_dataset=Points()),
                            transformers.Trainer(Classes(), args, train_dataset=Points(),
                                                 compute_loss_func=lambda *a, **k: None)):
                try:
                    hetero_train.transformers.balance(trainer, output_dir=folder, log_level="error")
                except hetero_train.SettingsError as e:
                    said = str(e)
                else:
                    return "accepted"
            return said
        for result in launch.run(work):
            self.assertIn("pass count=FUNCTION", str(result))


class Adapters(unittest.TestCase):
    def results(self, work):
        results = launch.run(work, ranks=2)
        for r in results:
            if isinstance(r, Exception):
                raise r
        self.assertTrue(torch.equal(results[0][0], results[1][0]))
        return results

    def check(self, work, model):
        results = self.results(work)
        want = reference(results[0][1], model())
        self.assertLess(float((want - results[0][0]).norm() / want.norm()), 1e-6)
        return results

    @needs("transformers")
    @needs("accelerate")
    def test_trainer(self):
        """Two micro-batches in a step; the second trainer resumes the first one in the middle of an epoch."""
        def work(rank, folder):
            os.environ.update(MASTER_ADDR="127.0.0.1", ACCELERATE_USE_CPU="true")

            def train(resume=None, batch=2, **arguments):
                model = tiny()
                args = transformers.TrainingArguments(
                    os.path.join(folder, "trainer"), num_train_epochs=1, learning_rate=0.1, optim="sgd",
                    max_grad_norm=0, lr_scheduler_type="constant", per_device_train_batch_size=batch, seed=7,
                    gradient_accumulation_steps=2, logging_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
                    **arguments)
                trainer = transformers.Trainer(model, args, train_dataset=Texts())
                b = hetero_train.transformers.balance(trainer, fixed_shares=[batch * s // 2 for s in SHARES],
                                                      output_dir=folder, name="run", log_level="error")
                trainer.train(resume_from_checkpoint=resume)
                return torch.cat([p.detach().flatten() for p in model.parameters()]), b._sampler.order(0), b._step
            train(max_steps=2, save_strategy="steps", save_steps=2)
            checkpoint = os.path.join(folder, "trainer", "checkpoint-2")
            try:
                train(resume=checkpoint, batch=3, save_strategy="no")
            except hetero_train.SettingsError as e:
                assert "the checkpoint has 8, the balancer 12" in str(e), e
            else:
                raise AssertionError("another global batch is not refused")
            return train(resume=checkpoint, save_strategy="no")
        results = self.check(work, tiny)
        self.assertEqual(results[0][2], 3)

    @needs("transformers")
    @needs("accelerate")
    def test_trainer_of_samples(self):
        """A model whose loss is a mean over samples. The last batch has two samples: rank 1 has none of them."""
        def work(rank, folder):
            os.environ.update(MASTER_ADDR="127.0.0.1", ACCELERATE_USE_CPU="true")
            model = Classes()
            args = transformers.TrainingArguments(
                os.path.join(folder, "trainer"), num_train_epochs=1, learning_rate=0.1, optim="sgd", max_grad_norm=0,
                lr_scheduler_type="constant", per_device_train_batch_size=4, logging_strategy="no", report_to=[],
                save_strategy="no", disable_tqdm=True, use_cpu=True, eval_strategy="steps", eval_steps=2,
                label_names=["labels"])
            trainer = transformers.Trainer(model, args, train_dataset=Points(), eval_dataset=Points())
            b = hetero_train.transformers.balance(trainer, fixed_shares=[7, 1], output_dir=folder, log_level="error",
                                                  name="run")
            trainer.train()
            trainer.evaluate()  # after the run
            losses = [h["eval_loss"] for h in trainer.state.log_history if "eval_loss" in h]
            with open(os.path.join(folder, "run", "results", "result.json")) as f:
                recorded = json.load(f)
            return (torch.cat([p.detach().flatten() for p in model.parameters()]), b._sampler.order(0), losses,
                    recorded)
        results = self.results(work)
        model, points = Classes(), Points()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for start in range(0, 18, 8):
            rows = results[0][1][start:start + 8]
            torch.nn.functional.cross_entropy(model.net(points.x[rows]), points.y[rows]).backward()
            optimizer.step()
            optimizer.zero_grad()
        want = torch.cat([p.detach().flatten() for p in model.parameters()])
        self.assertLess(float((want - results[0][0]).norm() / want.norm()), 1e-6)
        losses, recorded = results[0][2:]
        self.assertAlmostEqual(recorded["last_eval"]["loss"], losses[1], places=6)
        self.assertEqual((recorded["state"], recorded["last_eval"]["step"]), ("finished", 3))

    @needs("peft")
    def test_lora(self):
        def lora():
            import peft
            torch.manual_seed(1)
            return peft.get_peft_model(tiny(), peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True,
                                                               lora_dropout=0))

        def work(rank, folder):
            model = lora()
            ddp = DistributedDataParallel(model)
            b = hetero_train.Balancer(global_batch=8, fixed_shares=SHARES, output_dir=folder, log_level="error")
            optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
            b.attach(ddp, optimizer)
            d = Texts()
            for batch in torch.utils.data.DataLoader(d, batch_sampler=b.sampler(d)):
                with b.step():
                    b.scale(ddp(**batch).loss, count=int((batch["labels"][:, 1:] != -100).sum())).backward()
                    optimizer.step()
                    optimizer.zero_grad()
            b.close()
            return torch.cat([p.detach().flatten() for p in model.parameters()]), b._sampler.order(0)
        self.check(work, lora)

    @needs("accelerate")
    def test_accelerate(self):
        """The last batch has 6 samples, which the ranks divide unevenly, too: accelerate must not fill it up."""
        def work(rank, folder):
            import accelerate
            from hetero_train.accelerate import loader, prepare
            os.environ.update(MASTER_ADDR="127.0.0.1", ACCELERATE_USE_CPU="true")
            accelerator = accelerate.Accelerator(cpu=True)
            model = tiny()
            b = hetero_train.Balancer(global_batch=8, fixed_shares=SHARES, output_dir=folder, log_level="error")
            ddp, optimizer = prepare(accelerator, b, model, torch.optim.SGD(model.parameters(), lr=0.1))
            for batch in loader(accelerator, b, Texts(22)):
                with b.step():
                    accelerator.backward(b.scale(ddp(**batch).loss, count=int((batch["labels"][:, 1:] != -100).sum())))
                    optimizer.step()
                    optimizer.zero_grad()
            b.close()
            return torch.cat([p.detach().flatten() for p in model.parameters()]), b._sampler.order(0)
        self.check(work, tiny)


if __name__ == "__main__":
    unittest.main()
