"""Gradients of unequal shares equal those of one process on the whole batch."""
import unittest

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import hetero_train
import launch

SHARES = [7, 1, 4]  # of a micro-batch of 12
TOLERANCE = 1e-6  # of the norm: f32 has 6e-8, and the order of sums differs


def image_net():
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
                              torch.nn.Linear(8 * 36, 5))
    return net.eval()  # BatchNorm in eval mode


class Words(torch.nn.Module):
    """A language model whose targets below 0 do not count."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.table, self.out = torch.nn.Embedding(17, 12), torch.nn.Linear(12, 17)

    def forward(self, ids):
        return self.out(torch.tanh(self.table(ids)))


def data(words):
    torch.manual_seed(3)
    if words:
        ids = torch.randint(0, 17, (40, 6))
        targets = torch.randint(0, 17, (40, 6))
        targets[torch.rand(40, 6) < 0.4] = -100
        targets[:, 0] = 1  # at least one target in each text
        return TensorDataset(ids, targets)
    return TensorDataset(torch.randn(40, 3, 8, 8), torch.randint(0, 5, (40,)))


def loss_of(net, x, y):
    out = net(x)
    return F.cross_entropy(out.flatten(0, -2), y.flatten(), ignore_index=-100)


def optimizer_of(name, net):
    return torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9) if name == "sgd" else torch.optim.AdamW(
        net.parameters(), lr=1e-3)


def single(words, name, accumulation, order):
    """Trains with whole batches in one process. Returns the gradients of each step and the last parameters."""
    net, d = (Words() if words else image_net()), data(words)
    optimizer, grads = optimizer_of(name, net), []
    for start in range(0, len(d), 12 * accumulation):
        x, y = d[order[start:start + 12 * accumulation]]
        loss_of(net, x, y).backward()
        grads.append(torch.cat([p.grad.flatten() for p in net.parameters()]))
        optimizer.step()
        optimizer.zero_grad()
    return grads, torch.cat([p.detach().flatten() for p in net.parameters()])


def ranks_work(words, name, accumulation, shares):
    def work(rank, folder):
        net = DistributedDataParallel(Words() if words else image_net())
        d = data(words)
        b = hetero_train.Balancer(global_batch=12 * accumulation, accumulation=accumulation,
                                  fixed_shares=[accumulation * n for n in shares], output_dir=folder, log_level="error",
                                  bench_worthless=0 in shares)
        optimizer = optimizer_of(name, net)
        b.attach(net, optimizer)
        sampler = b.sampler(d, seed=5)
        grads, waiting = [], []
        for x, y in DataLoader(d, batch_sampler=sampler):
            waiting.append((x, y))
            micro = b._queue[len(waiting) - 1]
            if not micro.last:
                continue
            # With accumulation, the targets of all micro-batches of the step must be known before the first backward.
            counts = [int((t != -100).sum()) if m.own else 0 for (_, t), m in zip(waiting, b._queue)]
            total = b.total(sum(counts)) if words else None
            for (x, y), n in zip(waiting, counts):
                with b.step(), b.no_sync():
                    loss = loss_of(net, x, y)
                    (b.scale(loss, count=n, total=total) if words else b.scale(loss)).backward()
                    if b.updates:
                        grads.append(torch.cat([p.grad.flatten().clone() for p in net.parameters()]))
                        optimizer.step()
                        optimizer.zero_grad()
            waiting = []
        b.close()
        return grads, torch.cat([p.detach().flatten() for p in net.parameters()]), sampler.order(0)
    return work


class Gradients(unittest.TestCase):
    def compare(self, words, name, accumulation, shares):
        results = launch.run(ranks_work(words, name, accumulation, shares), ranks=3)
        for r in results:
            if isinstance(r, Exception):
                raise r
        grads, last = single(words, name, accumulation, results[0][2])
        self.assertEqual(len(grads), len(results[0][0]))
        for want, got in zip(grads, results[0][0]):
            self.assertLess(float((want - got).norm() / want.norm()), TOLERANCE)
        for other in results[1:]:
            self.assertTrue(torch.equal(results[0][1], other[1]), "parameters differ between ranks")
        # AdamW divides by the root of the second moment, which magnifies the rounding of gradients near zero.
        self.assertLess(float((last - results[0][1]).norm() / last.norm()), TOLERANCE * (1 if name == "sgd" else 50))

    def test_images_sgd(self):
        self.compare(False, "sgd", 1, SHARES)

    def test_images_adamw_accumulation(self):
        self.compare(False, "adamw", 3, SHARES)

    def test_images_sgd_accumulation(self):
        self.compare(False, "sgd", 3, SHARES)

    def test_images_adamw(self):
        self.compare(False, "adamw", 1, SHARES)

    def test_words_sgd(self):
        self.compare(True, "sgd", 1, SHARES)

    def test_words_sgd_accumulation(self):
        self.compare(True, "sgd", 3, SHARES)

    def test_words_adamw(self):
        self.compare(True, "adamw", 1, SHARES)

    def test_words_adamw_accumulation(self):
        self.compare(True, "adamw", 3, SHARES)

    def test_excluded_rank(self):
        self.compare(False, "sgd", 1, [8, 0, 4])
        self.compare(True, "sgd", 3, [8, 0, 4])

    def test_equal_shares_match_too(self):
        self.compare(False, "sgd", 1, [4, 4, 4])


class Features(unittest.TestCase):
    """PyTorch's features that change when and how gradients are summed."""

    def train(self, wrap, hook=None, scaler=False, compile_=False):
        def work(rank, folder):
            net = image_net()
            model = torch.compile(net, backend="eager") if compile_ else net
            model = wrap(model)
            d = data(False)
            b = hetero_train.Balancer(global_batch=12, fixed_shares=SHARES, output_dir=folder, log_level="error")
            b.attach(model, hook=hook)
            optimizer = optimizer_of("sgd", net)
            scale = torch.amp.GradScaler("cpu") if scaler else torch.cuda.amp.GradScaler(enabled=False)
            grads = []
            for x, y in DataLoader(d, batch_sampler=b.sampler(d, seed=5)):
                with b.step():
                    scale.scale(b.scale(loss_of(model, x, y))).backward()
                    scale.unscale_(optimizer)
                    grads.append(torch.cat([p.grad.flatten().clone() for p in net.parameters()]))
                    scale.step(optimizer)
                    scale.update()
                    optimizer.zero_grad()
            b.close()
            return grads, None, b._sampler.order(0)
        results = launch.run(work, ranks=3)
        for r in results:
            if isinstance(r, Exception):
                raise r
        want, _ = single(False, "sgd", 1, results[0][2])
        for w, g in zip(want, results[0][0]):
            self.assertLess(float((w - g).norm() / w.norm()), TOLERANCE)

    def test_find_unused_parameters(self):
        self.train(lambda m: DistributedDataParallel(m, find_unused_parameters=True))

    def test_static_graph(self):
        self.train(lambda m: DistributedDataParallel(m, static_graph=True))

    def test_gradient_as_bucket_view_and_many_buckets(self):
        self.train(lambda m: DistributedDataParallel(m, gradient_as_bucket_view=True, bucket_cap_mb=0.001))

    @unittest.skipUnless(hasattr(torch.amp, "GradScaler"), "needs PyTorch with a GradScaler for CPUs")
    def test_grad_scaler(self):
        self.train(DistributedDataParallel, scaler=True)

    def test_compile(self):
        self.train(DistributedDataParallel, compile_=True)

    def test_own_communication_hook(self):
        def hook(state, bucket: dist.GradBucket):
            return dist.all_reduce(bucket.buffer().div_(3), async_op=True).get_future().then(lambda f: f.value()[0])
        self.train(DistributedDataParallel, hook=hook)

    def test_fully_shard(self):
        """FSDP2 averages the shards of gradients over the ranks, so the weights of uneven batches are exact."""
        try:
            from torch.distributed.fsdp import fully_shard
            from torch.distributed.device_mesh import init_device_mesh
        except ImportError:
            self.skipTest("needs PyTorch with fully_shard")

        def work(rank, folder):
            net = fully_shard(Words(), mesh=init_device_mesh("cpu", (3,)))
            d = data(True)
            b = hetero_train.Balancer(global_batch=12, fixed_shares=SHARES, output_dir=folder, log_level="error")
            b.attach(net)
            optimizer = optimizer_of("adamw", net)
            grads = []
            for x, y in DataLoader(d, batch_sampler=b.sampler(d, seed=5)):
                with b.step():
                    b.scale(loss_of(net, x, y), count=int((y != -100).sum())).backward()
                    grads.append(torch.cat([p.grad.full_tensor().flatten() for p in net.parameters()]))
                    optimizer.step()
                    optimizer.zero_grad()
            last = torch.cat([p.detach().full_tensor().flatten() for p in net.parameters()])
            b.close()
            return grads, last, b._sampler.order(0)
        results = launch.run(work, ranks=3)
        for r in results:
            if isinstance(r, Exception):
                raise r
        want, last = single(True, "adamw", 1, results[0][2])
        for w, g in zip(want, results[0][0]):
            self.assertLess(float((w - g).norm() / w.norm()), TOLERANCE)
        self.assertLess(float((last - results[0][1]).norm() / last.norm()), 50 * TOLERANCE)


if __name__ == "__main__":
    unittest.main()
