"""SyncBatchNorm weights the statistics by the samples of each rank.

PyTorch has the kernels of SyncBatchNorm for GPUs only. The test defines the five operations on CPUs, as PyTorch describes
them, so that PyTorch's own code gathers the counts, sums the gradients over the ranks and divides by all samples.
"""
import unittest
from unittest import mock

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import hetero_train
import launch
import test_gradients as small

ALL = (0, 2, 3)  # all dimensions except the channels


def over(values):
    return values.view(1, -1, 1, 1)


def stats(x, eps):
    return x.mean(ALL), (x.var(ALL, unbiased=False) + eps).rsqrt()


def gather_stats(x, means, inverses, running_mean, running_var, momentum, eps, counts):
    weights = counts.view(-1, 1) / counts.sum()
    mean = (weights * means).sum(0)
    var = (weights * (inverses.pow(-2) - eps + (means - mean).square())).sum(0)
    running_mean.lerp_(mean, momentum)
    running_var.lerp_(var * counts.sum() / (counts.sum() - 1), momentum)
    return mean, (var + eps).rsqrt()


def normalise(x, weight, bias, mean, inverse, eps):
    return (x - over(mean)) * over(inverse * weight) + over(bias)


def backward_reduce(dy, x, mean, inverse, weight, *_):
    sums, products = dy.sum(ALL), (dy * (x - over(mean))).sum(ALL)
    return sums, products, products * inverse, sums


def backward_normalise(dy, x, mean, inverse, weight, sums, products, counts):
    n = counts.sum()
    return (dy - over(sums / n) - (x - over(mean)) * over(inverse.square() * products / n)) * over(inverse * weight)


def net_of(sync):
    net = small.image_net().train()
    return torch.nn.SyncBatchNorm.convert_sync_batchnorm(net) if sync else net


class SyncNorm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.library = torch.library.Library("aten", "IMPL")
        for name, work in (("batch_norm_stats", stats), ("batch_norm_gather_stats_with_counts", gather_stats),
                           ("batch_norm_elemt", normalise), ("batch_norm_backward_reduce", backward_reduce),
                           ("batch_norm_backward_elemt", backward_normalise)):
            cls.library.impl(name, work, "CPU")

    def run_ranks(self, shares, drop_last=True, **arguments):
        def work(rank, folder):
            with mock.patch.object(torch._C, "_get_privateuse1_backend_name", lambda: "cpu"), \
                    mock.patch.object(DistributedDataParallel, "_passing_sync_batchnorm_handle", lambda self, m: None):
                net = net_of(True)
                model, d = DistributedDataParallel(net), small.data(False)
                b = hetero_train.Balancer(global_batch=12, fixed_shares=shares, output_dir=folder, log_level="error",
                                          **arguments)
                b.attach(model)
                optimizer, grads = small.optimizer_of("sgd", net), []
                for x, y in DataLoader(d, batch_sampler=b.sampler(d, seed=5, drop_last=drop_last)):
                    with b.step():
                        b.scale(small.loss_of(model, x, y)).backward()
                        grads.append(torch.cat([p.grad.flatten().clone() for p in net.parameters()]))
                        optimizer.step()
                        optimizer.zero_grad()
                b.close()
                return grads, torch.cat([t.flatten().double() for t in net.state_dict().values()]), b._sampler.order(0)
        results = launch.run(work, ranks=3)
        for r in results:
            if isinstance(r, Exception):
                raise r
        return results

    def test_one_process_on_the_whole_batch(self):
        results = self.run_ranks(small.SHARES)
        net, d = net_of(False), small.data(False)
        optimizer = small.optimizer_of("sgd", net)
        for step, got in enumerate(results[0][0]):
            x, y = d[results[0][2][12 * step:12 * step + 12]]
            small.loss_of(net, x, y).backward()
            want = torch.cat([p.grad.flatten() for p in net.parameters()])
            self.assertLess(float((want - got).norm() / want.norm()), small.TOLERANCE)
            optimizer.step()
            optimizer.zero_grad()
        self.assertEqual(len(results[0][0]), 3)
        last = torch.cat([t.flatten().double() for t in net.state_dict().values()])  # with the running statistics
        self.assertLess(float((last - results[0][1]).norm() / last.norm()), small.TOLERANCE)
        self.assertTrue(torch.equal(results[0][1], results[1][1]))

    def test_samples_of_weight_0_are_refused(self):
        for cause, arguments in (("last batch", {"drop_last": False, "shares": small.SHARES}),
                                 ("fixed_shares", {"shares": [8, 0, 4]}),
                                 ("bench_worthless", {"shares": small.SHARES, "bench_worthless": True})):
            with self.assertRaisesRegex(hetero_train.SettingsError, cause + ".*statistics of SyncBatchNorm"):
                self.run_ranks(**arguments)


if __name__ == "__main__":
    unittest.main()
