"""The adapter of accelerate, and LoRA by peft, each with two ranks."""
import importlib.util
import os
import unittest

import torch
from torch.nn.parallel import DistributedDataParallel

import hetero_train
import launch

SHARES = [6, 2]


def needs(name):
    return unittest.skipUnless(importlib.util.find_spec(name), f"needs {name}")


class Texts(torch.utils.data.Dataset):
    def __init__(self):
        torch.manual_seed(4)
        self.ids = torch.randint(0, 31, (24, 6))
        self.labels = self.ids.clone()
        self.labels[torch.rand(24, 6) < 0.3] = -100
        self.labels[:, 1] = 3

    def __len__(self):
        return 24

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


def tiny():
    import transformers
    torch.manual_seed(0)
    c = transformers.GPT2Config(vocab_size=31, n_positions=8, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0,
                                embd_pdrop=0, attn_pdrop=0)
    return transformers.GPT2LMHeadModel(c)


def reference(order, model, batch=8, lr=0.1):
    """Trains in one process on whole batches; the loss is a mean over the valid tokens."""
    d = Texts()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr)
    for start in range(0, 24, batch):
        rows = order[start:start + batch]
        out = model(d.ids[rows]).logits[:, :-1].flatten(0, 1)
        torch.nn.functional.cross_entropy(out, d.labels[rows][:, 1:].flatten(), ignore_index=-100).backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


class Adapters(unittest.TestCase):
    def check(self, work, model):
        results = launch.run(work, ranks=2)
        for r in results:
            if isinstance(r, Exception):
                raise r
        self.assertTrue(torch.equal(results[0][0], results[1][0]))
        want = reference(results[0][1], model())
        self.assertLess(float((want - results[0][0]).norm() / want.norm()), 1e-5)

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
        def work(rank, folder):
            import accelerate
            from hetero_train.accelerate import loader, prepare
            os.environ.update(MASTER_ADDR="127.0.0.1", ACCELERATE_USE_CPU="true")
            accelerator = accelerate.Accelerator(cpu=True)
            model = tiny()
            b = hetero_train.Balancer(global_batch=8, fixed_shares=SHARES, output_dir=folder, log_level="error")
            ddp, optimizer = prepare(accelerator, b, model, torch.optim.SGD(model.parameters(), lr=0.1))
            for batch in loader(accelerator, b, Texts()):
                with b.step():
                    accelerator.backward(b.scale(ddp(**batch).loss, count=int((batch["labels"][:, 1:] != -100).sum())))
                    optimizer.step()
                    optimizer.zero_grad()
            b.close()
            return torch.cat([p.detach().flatten() for p in model.parameters()]), b._sampler.order(0)
        self.check(work, tiny)


if __name__ == "__main__":
    unittest.main()
