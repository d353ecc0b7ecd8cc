#!/usr/bin/env python3
"""Trains torchvision's ResNet-50 as configs/resnet50.toml does, and prints its loss beside that of a run of hetero-train.

    ./hetero-train -c configs/resnet50.toml --set data.dataset=images --set data.path=CIFAR.tar.gz --set data.image_size=32 \\
        --set data.crop_padding=4 --set train.precision=f32 --set train.steps=300 --set experiment.name=compare_loss
    .venv/bin/python scripts/compare_loss.py --data CIFAR.tar.gz --run experiments/compare_loss

The archive holds train/<class>/*.jpg. Both sides draw their own initial weights, order and augmentation from the same
distributions, so the curves agree as two seeds do, not digit by digit (scripts/goldens.py compares digits).
"""

import argparse
import io
import json
import math
import pathlib
import statistics
import tarfile

import numpy as np
import torch
import torchvision
from PIL import Image

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # hetero-train's for folders of images


def load(path):
    """Images (N, 32, 32, 3) of u8 and labels (N) of the training part."""
    images, classes = [], []
    with tarfile.open(path) as tar:
        for member in tar:
            parts = pathlib.PurePosixPath(member.name).parts
            if member.isfile() and "train" in parts:
                images.append(np.asarray(Image.open(io.BytesIO(tar.extractfile(member).read())).convert("RGB")))
                classes.append(parts[-2])
    index = {name: i for i, name in enumerate(sorted(set(classes)))}
    return torch.from_numpy(np.stack(images)), torch.tensor([index[c] for c in classes])


def augment(x):
    """Random 32x32 window of the image with 4 black pixels on each side, mirrored in half of the cases."""
    n, size = x.shape[0], x.shape[1]
    padded = torch.nn.functional.pad(x, (0, 0, 4, 4, 4, 4))
    out = torch.empty_like(x)
    for i, (dy, dx, flip) in enumerate(zip(torch.randint(0, 9, (n,)), torch.randint(0, 9, (n,)), torch.randint(0, 2, (n,)))):
        crop = padded[i, dy : dy + size, dx : dx + size]
        out[i] = crop.flip(1) if flip else crop
    return out


def train(a):
    torch.manual_seed(a.seed)
    torch.set_num_threads(a.threads)
    images, labels = load(a.data)
    model = torchvision.models.resnet50(num_classes=int(labels.max()) + 1).to(memory_format=torch.channels_last)
    decays = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim == 1]
    optimizer = torch.optim.SGD([{"params": decays, "weight_decay": 5e-4}, {"params": rest, "weight_decay": 0.0}], lr=0.1, momentum=0.9, nesterov=True, fused=True)
    loss_fn = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    epoch_steps = len(labels) // a.batch
    losses, order = [], None
    for step in range(a.steps):
        if step % epoch_steps == 0:
            order = torch.randperm(len(labels))
        pick = order[step % epoch_steps * a.batch :][: a.batch]
        x = (augment(images[pick]).permute(0, 3, 1, 2).float() / 255 - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(STD).view(1, 3, 1, 1)
        for group in optimizer.param_groups:  # the warm-up of the configuration lasts one epoch
            group["lr"] = 0.1 * min(1.0, (step + 1) / epoch_steps)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.precision == "bf16"):
            loss = loss_fn(model(x.contiguous(memory_format=torch.channels_last)).float(), labels[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    p.add_argument("--run", required=True, help="folder of a run of hetero-train")
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    a = p.parse_args()
    ours = [r["loss"] for r in json.loads((pathlib.Path(a.run) / "logs" / "rank_0_metrics.json").read_text())][: a.steps]
    peer = train(a)
    print("| steps | hetero-train | PyTorch " + torch.__version__ + " |\n|---|---|---|")
    for start in range(0, min(len(ours), len(peer)), 50):
        mine, theirs = ours[start : start + 50], peer[start : start + 50]
        print(f"| {start + 1}-{start + len(mine)} | {statistics.mean(mine):.3f} | {statistics.mean(theirs):.3f} |")
    assert all(math.isfinite(x) for x in ours + peer)


if __name__ == "__main__":
    main()
