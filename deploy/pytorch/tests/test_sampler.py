"""The sampler: the samples of a step do not depend on the split, and a share changes at one agreed list."""
import unittest

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import hetero_train
import launch
from hetero_train.sampler import Schedule, divide


class Numbers(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor([float(i)]), i


def train(n, epochs, workers, shares=None, state=None, stop=None, persistent=False, drop_last=False, prefetch=2,
          slow=True):
    """Returns a function that trains and returns the samples and shares of each step of this rank."""
    def work(rank, folder):
        import time
        model = DistributedDataParallel(torch.nn.Linear(1, 1))
        b = hetero_train.Balancer(global_batch=24, fixed_shares=shares, output_dir=folder, log_level="error",
                                  interval=2)
        if state is not None:
            b.load_state_dict(state)
        b.attach(model)
        d = Numbers(n)
        own = workers if isinstance(workers, int) else workers[rank]
        loader = DataLoader(d, batch_sampler=b.sampler(d, seed=7, drop_last=drop_last), num_workers=own,
                            persistent_workers=persistent and own > 0,
                            prefetch_factor=prefetch if own else None)
        seen, used = [], []
        for epoch in range(epochs):
            for x, y in loader:
                with b.step():
                    micro = b._current
                    if slow and rank == 1:
                        time.sleep(0.001 * len(x))
                    b.scale(model(x).square().mean()).backward()
                seen.append(y.tolist() if micro.own else [])
                used.append(micro.shares)
                if stop is not None and len(seen) == stop:
                    break
            if stop is not None and len(seen) == stop:
                break
        state_now = b.state_dict()
        b.close()
        return seen, used, state_now
    return work


class SamplerTest(unittest.TestCase):
    def run_ranks(self, work, ranks=3):
        results = launch.run(work, ranks=ranks)
        for r in results:
            if isinstance(r, Exception):
                raise r
        return results

    def whole(self, results):
        """Returns the samples of each step in their order on all ranks."""
        return [sum((r[0][i] for r in results), []) for i in range(len(results[0][0]))]

    def test_samples_of_a_step_do_not_depend_on_the_split(self):
        one = self.whole(self.run_ranks(train(100, 2, 0, shares=[8, 8, 8], slow=False)))
        other = self.whole(self.run_ranks(train(100, 2, 0, shares=[20, 1, 3], slow=False)))
        single = self.whole(self.run_ranks(train(100, 2, 0, slow=False), ranks=1))
        self.assertEqual(one, other)
        self.assertEqual(one, single)
        self.assertEqual(sorted(sum(one[:5], [])), list(range(100)))
        self.assertNotEqual(one[:5], one[5:])

    def test_shares_change_at_one_list_although_workers_prefetch(self):
        for persistent in (False, True):
            results = self.run_ranks(train(300, 3, [0, 3, 1], persistent=persistent, prefetch=4))
            self.assertEqual(results[0][1], results[1][1])
            self.assertEqual(results[0][1], results[2][1])
            self.assertGreater(len(set(results[0][1])), 1, "no share has changed")
            steps = self.whole(results)
            for epoch in range(3):
                self.assertEqual(sorted(sum(steps[13 * epoch:13 * epoch + 13], [])), list(range(300)))

    def test_a_loop_that_leaves_an_epoch_early(self):
        def work(rank, folder):
            model = DistributedDataParallel(torch.nn.Linear(1, 1))
            b = hetero_train.Balancer(global_batch=24, output_dir=folder, log_level="error", interval=2)
            b.attach(model)
            d = Numbers(300)
            loader = DataLoader(d, batch_sampler=b.sampler(d), num_workers=2 * rank)
            used = []
            for epoch in range(6):
                for i, (x, y) in enumerate(loader):
                    with b.step():
                        used.append(b._current.shares)
                        if rank == 1:
                            import time
                            time.sleep(0.001 * len(x))
                        b.scale(model(x).square().mean()).backward()
                    if i == 3:
                        break
            b.close()
            return used
        results = launch.run(work, ranks=2)
        self.assertIsInstance(results[0], list, results)
        self.assertEqual(results[0], results[1])
        self.assertGreater(len(set(results[0])), 1)

    def test_resume_with_another_number_of_ranks(self):
        whole = self.whole(self.run_ranks(train(100, 3, 0, slow=False)))
        first = self.run_ranks(train(100, 3, 2, slow=False, stop=7))
        states = [r[2] for r in first]
        self.assertEqual(states[0], states[1])
        self.assertEqual(states[0]["step"], 7)
        rest = self.whole(self.run_ranks(train(100, 2, 0, slow=False, state=states[0]), ranks=2))
        self.assertEqual(self.whole(first) + rest, whole)

    def test_end_of_an_epoch_resumes_at_the_next(self):
        first = self.run_ranks(train(100, 1, 0, slow=False))
        self.assertEqual((first[0][2]["epoch"], first[0][2]["lists"]), (1, 0))

    def test_drop_last(self):
        steps = self.whole(self.run_ranks(train(100, 1, 0, drop_last=True, slow=False)))
        self.assertEqual([len(s) for s in steps], [24] * 4)


class Loaders(unittest.TestCase):
    """Balancer.loader, with one rank."""

    def order(self, loader):
        """Returns the samples of an epoch with the loader of a script, or the error."""
        def work(rank, folder):
            b = hetero_train.Balancer(global_batch=8, output_dir=folder, log_level="error")
            b.attach(torch.nn.Linear(1, 1))
            rows = [y.tolist() for _, y in b.loader(loader, seed=3)]
            self.assertEqual(len(b.loader(loader)), len(rows))
            return rows
        result = launch.run(work, ranks=1)[0]
        if isinstance(result, Exception):
            raise result
        return result

    def test_order_of_the_script(self):
        d = Numbers(20)
        whole = self.order(DataLoader(d, batch_size=2))
        self.assertEqual(sum(whole, []), list(range(20)))
        mixed = self.order(DataLoader(d, batch_size=2, shuffle=True, drop_last=True))
        self.assertEqual([len(r) for r in mixed], [8, 8])
        self.assertNotEqual(sum(mixed, []), list(range(16)))
        distributed = torch.utils.data.DistributedSampler(d, num_replicas=2, rank=1, shuffle=False)
        self.assertEqual(self.order(DataLoader(d, batch_size=2, sampler=distributed)), whole)
        distributed = torch.utils.data.DistributedSampler(d, num_replicas=2, rank=1, shuffle=False, drop_last=True)
        self.assertEqual(self.order(DataLoader(d, batch_size=2, sampler=distributed)), whole)

    def test_loader_within_an_object(self):
        class Prefetch:
            def __init__(self, loader):
                self.loader = loader

            def __len__(self):
                return len(self.loader)

            def __iter__(self):
                return iter(self.loader)
        self.assertEqual(sum(self.order(Prefetch(DataLoader(Numbers(20), batch_size=2))), []), list(range(20)))

    def test_orders_that_would_be_lost(self):
        class Own(DataLoader):
            def __iter__(self):
                return iter([torch.zeros(2)])
        d = Numbers(20)
        for loader in (DataLoader(d, sampler=torch.utils.data.WeightedRandomSampler([1.0] * 20, 20), batch_size=2),
                       DataLoader(d, sampler=torch.utils.data.RandomSampler(d, num_samples=5), batch_size=2),
                       DataLoader(d, batch_sampler=[[1, 2], [3, 4]]), DataLoader(d, batch_size=None), [1, 2],
                       Own(d, batch_size=2)):
            with self.assertRaises(hetero_train.SamplerError):
                self.order(loader)


class Pieces(unittest.TestCase):
    def test_divide(self):
        self.assertEqual(divide(12, [7, 1, 4]), [7, 1, 4])
        self.assertEqual(divide(10, [3, 3, 2]), [4, 4, 2])
        self.assertEqual(divide(1, [1, 1, 2]), [0, 0, 1])
        for size in range(0, 25):
            self.assertEqual(sum(divide(size, [8, 0, 4, 12])), size)
            self.assertEqual(divide(size, [8, 0, 4, 12])[1], 0)

    def test_schedule(self):
        s = Schedule([4, 4])
        s.change(10, [5, 3], done=4)
        s.change(20, [6, 2], done=4)
        self.assertEqual([s.at(9), s.at(10), s.at(19), s.at(20)], [(4, 4), (5, 3), (5, 3), (6, 2)])
        with self.assertRaises(hetero_train.SamplerError):
            s.change(15, [1, 7], done=12)


if __name__ == "__main__":
    unittest.main()
