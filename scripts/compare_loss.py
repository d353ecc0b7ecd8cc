#!/usr/bin/env python3
"""Trains torchvision's ResNet-50 as configs/resnet50.toml does, and compares its loss with that of a run of hetero-train.

    ./hetero-train -c configs/resnet50.toml --set data.dataset=images --set data.path=CIFAR.tar.gz --set data.image_size=32 \\
        --set data.crop_padding=4 --set train.precision=f32 --set train.steps=300 --set experiment.name=compare_loss
    .venv/bin/python scripts/compare_loss.py --data CIFAR.tar.gz --precision f32 --run experiments/compare_loss

The archive contains train/<class>/*.jpg. Both programs draw their own initial weights, order and augmentation from the same
distributions. The curves therefore agree like the curves of two seeds, not digit by digit (scripts/goldens.py compares digits).
"""

import argparse
import json
import math
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
import resnet_cifar


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    resnet_cifar.add_arguments(p)
    p.add_argument("--run", required=True, help="folder of a run of hetero-train")
    p.add_argument("--steps", type=int, default=300, help="steps to compare (default 300)")
    p.add_argument("--total-steps", type=int, default=0,
                   help="steps of the run's schedule; the cosine ends with them (default: no cosine)")
    a = p.parse_args()
    ours = [r["loss"] for r in json.loads((pathlib.Path(a.run) / "logs" / "rank_0_metrics.json").read_text())][
        : a.steps]
    training = resnet_cifar.Training(a, a.total_steps)
    peer = [training.step() for _ in range(a.steps)]
    print("| steps | hetero-train | PyTorch " + training.torch.__version__ + " |\n|---|---|---|")
    for start in range(0, min(len(ours), len(peer)), 50):
        mine, theirs = ours[start : start + 50], peer[start : start + 50]
        print(f"| {start + 1}-{start + len(mine)} | {statistics.mean(mine):.3f} | {statistics.mean(theirs):.3f} |")
    assert all(math.isfinite(x) for x in ours + peer)


if __name__ == "__main__":
    main()
