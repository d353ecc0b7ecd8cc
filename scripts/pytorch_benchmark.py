#!/usr/bin/env python3
"""Trains a model with plain DistributedDataParallel or with the package hetero_train, and prints the throughput of rank 0.

    scripts/lab.sh --cpu 1.0,0.5,0.25 -- scripts/pytorch_benchmark.py --model resnet18 --mode hybrid

The last line is JSON: samples_per_second and share_of_oracle after the warm-up, in this run. --mode ddp is plain DistributedDataParallel
with equal shares; the other modes are policies. With --overhead, the line has the ratio of both times instead. Needs torch, and torchvision or transformers.
"""
import argparse
import contextlib
import json
import os
import random
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "deploy", "pytorch"))


def build(name, samples):
    torch.manual_seed(0)
    if name == "resnet18":
        import torchvision
        return torchvision.models.resnet18(num_classes=10).eval(), TensorDataset(torch.randn(samples, 3, 64, 64),
                                                                                 torch.randint(0, 10, (samples,)))
    import transformers
    c = transformers.GPT2Config(vocab_size=1024, n_positions=64, n_embd=256, n_layer=4, n_head=4)
    return transformers.GPT2LMHeadModel(c).eval(), TensorDataset(torch.randint(0, 1024, (samples, 64)))


def loss_of(model, batch):
    if len(batch) == 2:
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
    return model(input_ids=batch[0], labels=batch[0]).loss


def train_step(model, optimizer, batch, balancer=None):
    """Trains one step, of the balancer if there is one."""
    with balancer.step() if balancer else contextlib.nullcontext():
        loss = loss_of(model, batch)
        (balancer.scale(loss) if balancer else loss).backward()
        optimizer.step()
        optimizer.zero_grad()


def overhead(args, model, optimizer, data, balancer):
    """Prints the time of a balanced step / that of a step of plain DDP. Both take turns after every 2 steps."""
    own = args.batch // dist.get_world_size()
    loader = iter(DataLoader(data, batch_sampler=balancer.sampler(data)))
    plain = iter(DataLoader(data, batch_size=own, sampler=DistributedSampler(data)))
    other = DistributedDataParallel(build(args.model, 1)[0])  # has no communication hook
    update = torch.optim.SGD(other.parameters(), lr=0.01)

    def steps(batches, model, optimizer, balancer=None):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(2):
            train_step(model, optimizer, next(batches), balancer)
        dist.barrier()
        return time.perf_counter() - start
    ratios = []
    for window in range(args.steps // 10):  # the ranks decide once in 10 steps
        balanced = ddp = 0.0
        for turn in range(5):
            if turn % 2:
                balanced += steps(loader, model, optimizer, balancer)
            with balancer.pause():
                ddp += steps(plain, other, update)
            if not turn % 2:
                balanced += steps(loader, model, optimizer, balancer)
        ratios.append(balanced / ddp)
    ratios = ratios[2:]  # in the first 20 steps, the ranks may decide after each
    random.seed(0)
    medians = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(2000))
    if dist.get_rank() == 0:
        print(json.dumps({"model": args.model, "mode": args.mode, "windows": len(ratios),
                          "median": round(statistics.median(ratios), 4),
                          "interval_95": [round(medians[49], 4), round(medians[1949], 4)], "shares": list(balancer.shares)}),
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["resnet18", "gpt2"], default="resnet18")
    parser.add_argument("--mode", default="hybrid", help="ddp, none, proportional, dynamic or hybrid")
    parser.add_argument("--batch", type=int, default=48, help="samples of a step on all ranks")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--warm-up", type=int, default=60, help="steps before the measurement")
    parser.add_argument("--overhead", action="store_true", help="print what the balancer adds to a step, on equal ranks")
    parser.add_argument("--output-dir", default="experiments/pytorch_benchmark")
    args = parser.parse_args()
    if args.overhead and (args.mode == "ddp" or args.steps < 40):
        parser.error("--overhead needs a policy as --mode, and at least 40 --steps")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    network, data = build(args.model, args.batch * args.steps)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    balancer = None
    if args.mode == "ddp":
        loader = DataLoader(data, batch_size=args.batch // world, sampler=DistributedSampler(data))
    else:
        import hetero_train
        balancer = hetero_train.Balancer(global_batch=args.batch, policy=args.mode, name=f"{args.model}_{args.mode}",
                                         output_dir=args.output_dir, steps=args.steps, log_level="warn",
                                         settings={"balance.curve_cache": "off"})
        balancer.attach(model, optimizer)
        if args.overhead:
            overhead(args, model, optimizer, data, balancer)
            balancer.close()
            dist.destroy_process_group()
            return
        loader = DataLoader(data, batch_sampler=balancer.sampler(data))
    start = time.perf_counter()
    for step, batch in enumerate(loader):
        if step == args.warm_up:
            start = time.perf_counter()
        train_step(model, optimizer, batch, balancer)
    seconds = time.perf_counter() - start
    if balancer:
        balancer.close()
    if dist.get_rank() == 0:
        print(
            json.dumps({"model": args.model, "mode": args.mode,
                        "samples_per_second": round(args.batch * (args.steps - args.warm_up) / seconds, 2),
                          "shares": list(balancer.shares) if balancer else [args.batch // world] * world,
                          "share_of_oracle": balancer.share_of_oracle if balancer else None}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
