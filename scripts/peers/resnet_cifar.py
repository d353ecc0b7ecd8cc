#!/usr/bin/env python3
"""Trains torchvision's ResNet in PyTorch with the settings of configs/resnet50.toml.

    python3 scripts/peers/resnet_cifar.py --data CIFAR.tar.gz --epochs 8

Network, initial distribution and augmentation are the same (4 black pixels on each side, random window, mirrored in
half of the cases). Both use label smoothing 0.1, and SGD with Nesterov momentum and weight decay on weights only. The
learning rate has one warm-up epoch, and a cosine to zero at the last step. The seeds of the two programs differ, so the
curves agree like the curves of two seeds, not digit by digit.

The archive contains train/<class>/*.jpg and test/<class>/*.jpg. Prints one JSON line after each epoch: epoch, train_loss
(mean over the epoch), top1 (fraction of the test images), train_seconds, eval_seconds.
"""

import argparse
import io
import json
import math
import os
import pathlib
import sys
import tarfile
import time

sys.dont_write_bytecode = True

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # constants that hetero-train uses for folders of images
PAD = 4  # pixels added on each side before the random crop


def load(path, part):
    """Images (N, 32, 32, 3) of u8 and labels (N) of one part of the archive, "train" or "test"."""
    import numpy as np
    import torch
    from PIL import Image

    images, classes = [], []
    with tarfile.open(path) as tar:
        for member in tar:
            parts = pathlib.PurePosixPath(member.name).parts
            if member.isfile() and part in parts:
                images.append(np.asarray(Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGB")))
                classes.append(parts[-2])
    if not images:
        raise SystemExit(f"reading {path}: found no files below {part}/, want {part}/<class>/*.jpg")
    index = {name: i for i, name in enumerate(sorted(set(classes)))}
    return torch.from_numpy(np.stack(images)), torch.tensor([index[c] for c in classes])


class Training:
    """One training. step() trains on the next batch; evaluate() returns top-1 over the test images."""

    def __init__(self, a, steps):
        import torch
        import torchvision

        self.torch, self.a, self.steps, self.done = torch, a, steps, 0
        torch.manual_seed(a.seed)
        torch.set_num_threads(a.threads)
        images, self.labels = load(a.data, "train")
        self.size = images.shape[1]
        self.padded = torch.nn.functional.pad(images, (0, 0, PAD, PAD, PAD, PAD))  # (N, H+8, W+8, 3) of u8
        self.epoch_steps = len(self.labels) // a.batch  # an incomplete last batch is left out
        classes = int(self.labels.max()) + 1
        self.model = getattr(torchvision.models, a.model)(
            num_classes=classes, zero_init_residual=a.zero_init_residual).to(memory_format=torch.channels_last)
        weights = [p for p in self.model.parameters() if p.ndim > 1]
        others = [p for p in self.model.parameters() if p.ndim == 1]
        groups = [{"params": weights, "weight_decay": 5e-4}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, fused=True)
        self.loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

    def rate(self):
        """The learning rate of this step: a linear warm-up over the first epoch, then a cosine."""
        if self.done < self.epoch_steps:
            return 0.1 * (self.done + 1) / self.epoch_steps
        if self.steps <= self.epoch_steps:
            return 0.1
        progress = (self.done - self.epoch_steps) / (self.steps - self.epoch_steps)
        return 0.1 * (1 + math.cos(math.pi * progress)) / 2

    def augmented(self, pick):
        """Random windows (B, 32, 32, 3) of the padded images."""
        torch, n = self.torch, len(pick)
        rows = torch.randint(0, 2 * PAD + 1, (n, 1)) + torch.arange(self.size)
        columns = torch.arange(self.size).repeat(n, 1)
        mirrored = torch.randint(0, 2, (n, 1)).bool()
        columns = torch.where(mirrored, columns.flip(1), columns) + torch.randint(0, 2 * PAD + 1, (n, 1))
        return self.padded[pick[:, None, None], rows[:, :, None], columns[:, None, :]]

    def forward(self, images):
        """Logits (B, classes) in f32 of images (B, 32, 32, 3) of u8."""
        torch = self.torch
        x = images.permute(0, 3, 1, 2).float() / 255
        x = (x - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(1, 3, 1, 1)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.a.precision == "bf16"):
            return self.model(x.contiguous(memory_format=torch.channels_last)).float()

    def step(self):
        """Trains on the next batch and returns its loss."""
        at = self.done % self.epoch_steps
        if at == 0:
            self.order = self.torch.randperm(len(self.labels))
            self.model.train()
        pick = self.order[at * self.a.batch :][: self.a.batch]
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        loss = self.loss(self.forward(self.augmented(pick)), self.labels[pick])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.done += 1
        return loss.item()

    def save(self, path, epochs):
        """Writes the state after a number of epochs, in place of the earlier state."""
        if path is None:
            return
        state = {"epochs": epochs, "done": self.done, "model": self.model.state_dict(),
                 "optimizer": self.optimizer.state_dict(), "random": self.torch.get_rng_state()}
        part = path.with_suffix(".part")
        self.torch.save(state, part)
        os.replace(part, path)

    def load(self, path):
        """Continues from a state. Returns its number of complete epochs, 0 without a state."""
        if path is None or not path.exists():
            return 0
        state = self.torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.torch.set_rng_state(state["random"])
        self.done = state["done"]
        return state["epochs"]

    def evaluate(self, images, labels):
        """Top-1 over all images, each once, as a fraction."""
        self.model.eval()
        right = 0
        with self.torch.no_grad():
            for begin in range(0, len(labels), self.a.batch):
                logits = self.forward(images[begin : begin + self.a.batch])
                right += int((logits.argmax(1) == labels[begin : begin + self.a.batch]).sum())
        return right / len(labels)


def add_arguments(p):
    p.add_argument("--data", required=True, help="archive of train/<class>/*.jpg and test/<class>/*.jpg")
    p.add_argument("--model", default="resnet50", help="a ResNet of torchvision (default resnet50)")
    p.add_argument("--batch", type=int, default=128, help="samples (default 128)")
    p.add_argument("--seed", type=int, default=0, help="(default 0)")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)),
                   help="(default: the CPUs of this process)")
    p.add_argument("--zero-init-residual", action="store_true",
                   help="the last BatchNorm of each residual branch starts at zero")
    p.add_argument("--precision", choices=["f32", "bf16"], default="bf16",
                   help="bf16: autocast, weights stay f32 (default)")


def main():
    from pytorch_step import preload_tcmalloc

    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(p)
    p.add_argument("--epochs", type=int, required=True,
                   help="passes over the training images; the cosine ends with them")
    p.add_argument("--state", type=pathlib.Path,
                   help="file of the state after the last complete epoch; if it exists, the training continues from it")
    p.add_argument("--epoch-steps", type=int, default=0,
                   help="for a quick trial: steps of an epoch (default: all samples)")
    a = p.parse_args()
    preload_tcmalloc()
    training = Training(a, 0)
    if a.epoch_steps:
        training.epoch_steps = min(a.epoch_steps, training.epoch_steps)
    training.steps = a.epochs * training.epoch_steps
    images, labels = load(a.data, "test")
    for epoch in range(training.load(a.state), a.epochs):
        begin = time.monotonic()
        loss = sum(training.step() for _ in range(training.epoch_steps)) / training.epoch_steps
        trained = time.monotonic()
        top1 = training.evaluate(images, labels)
        record = {"epoch": epoch + 1, "train_loss": loss, "top1": top1}
        record |= {"train_seconds": trained - begin, "eval_seconds": time.monotonic() - trained}
        training.save(a.state, epoch + 1)
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
