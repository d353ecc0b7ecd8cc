"""Trains a small network on random images with DistributedDataParallel and balanced shares.

    torchrun --nproc-per-node 2 examples/pytorch/train.py
"""
import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import hetero_train


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--output-dir", default="experiments")
    args = parser.parse_args()
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", dist.get_rank() % torch.cuda.device_count()) if cuda else torch.device("cpu")
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.GroupNorm(4, 16), torch.nn.ReLU(),
                                  torch.nn.Flatten(), torch.nn.Linear(16 * 900, 10))
    model = DistributedDataParallel(network.to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    labels = torch.randint(0, 10, (512,))
    dataset = TensorDataset(torch.randn(512, 3, 32, 32) + labels.view(-1, 1, 1, 1) / 5, labels)

    balancer = hetero_train.Balancer(global_batch=32, name="pytorch_example", output_dir=args.output_dir)
    balancer.attach(model, optimizer)
    loader = DataLoader(dataset, batch_sampler=balancer.sampler(dataset))
    for epoch in range(args.epochs):
        for x, y in loader:
            with balancer.step():
                loss = balancer.scale(torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device)))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    balancer.close()
    if balancer.rank == 0:
        print(f"shares {list(balancer.shares)}, records in {balancer.folder}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
