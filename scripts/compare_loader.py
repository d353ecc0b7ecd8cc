#!/usr/bin/env python3
"""Compares `hetero-train bench data` with PyTorch's DataLoader: the same images, transforms and number of workers.

The DataLoader decodes with Pillow (torchvision's default) or with torchvision.io, which returns tensors. In each round both run, and the
ratio of the round is to the faster one. If tcmalloc is installed, the DataLoader uses it.

    make && python3 -m venv .venv && .venv/bin/pip install torch torchvision
    .venv/bin/python scripts/compare_loader.py FOLDER [--workers 2] [--augment randaugment] [--rounds 5] [--seconds 5]

FOLDER contains class folders of images. Both loaders crop at random (8 to 100 % of the area), resize to --image-size
(bilinear, antialiased), flip and augment, and return batches of bytes. Runs alternate.

The script prints images per second of wall time and of CPU time, and the ratios of neighbouring runs. CPU time includes all
processes of a loader. On a machine with other load, only the figures per CPU second are reliable.
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
from pytorch_step import preload_tcmalloc


def peer(args, kind, out):
    """One run of the DataLoader in a separate process, so that the CPU time of its children can be measured."""
    import torch
    import torchvision
    import torchvision.transforms.v2
    from torchvision import datasets, transforms

    T = transforms.v2 if kind == "io" else transforms  # v2 resizes tensors of bytes without a conversion to floats
    torch.set_num_threads(1)
    steps = [T.RandomResizedCrop(args.image_size), T.RandomHorizontalFlip()]
    steps += [T.RandAugment()] if "randaugment" in args.augment else []
    steps += [T.ColorJitter(0.4, 0.4, 0.4, 0.1)] if "jitter" in args.augment else []
    if kind == "io":
        read = lambda path: torchvision.io.decode_image(torchvision.io.read_file(path),
                                                        mode=torchvision.io.ImageReadMode.RGB)
        data = datasets.ImageFolder(args.folder, T.Compose(steps), loader=read)
    else:
        data = datasets.ImageFolder(args.folder, T.Compose(steps + [T.PILToTensor()]))

    def run(batches):
        sampler = torch.utils.data.RandomSampler(data, replacement=True, num_samples=batches * args.batch_size)
        loader = torch.utils.data.DataLoader(data, args.batch_size, sampler=sampler, num_workers=args.workers,
                                             drop_last=True)
        used = lambda: sum(sum(resource.getrusage(w)[:2]) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        iterator = iter(loader)
        next(iterator)  # wait until the workers have started
        cpu, started = used(), time.monotonic()
        for _ in iterator:
            pass
        wall = time.monotonic() - started
        # the CPU time of workers is known after they have ended; their start takes below 1 % of a long run
        del iterator, loader
        return batches * args.batch_size, wall, used() - cpu

    n, wall, _ = run(4)
    n, wall, cpu = run(max(8, int(4 * args.seconds / wall)))
    out.put((n / wall, n / cpu))


def ours(args):
    command = [args.program, "bench", "data", "--json", "--path", args.folder, "--workers", str(args.workers),
               "--image-size", str(args.image_size),
               "--batch-size", str(args.batch_size), "--seconds", str(args.seconds)]
    if args.augment:
        command += ["--augment", args.augment]
    r = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if not r["decoder"].startswith("libturbojpeg"):
        sys.exit(f"hetero-train does not use the native library, but the decoder {r['decoder']}")
    return r["images_per_second"], r["images_per_core_second"]


def theirs(args, kind):
    out = multiprocessing.Queue()
    process = multiprocessing.Process(target=peer, args=(args, kind, out))
    process.start()
    result = out.get()
    process.join()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--program", default="./hetero-train")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--augment", default="", help="randaugment, jitter")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default="pillow,io", help="decoders of the DataLoader: pillow, io (both)")
    parser.add_argument("--output", help="JSON file with the figures per CPU second")
    parser.add_argument("--seconds", type=float, default=5)
    args = parser.parse_args()
    if not set(args.peers.split(",")) <= {"pillow", "io"}:
        parser.error(f"--peers: got {args.peers!r}, want a list of: pillow io")
    preload_tcmalloc()
    rows = []
    for i in range(args.rounds):
        mine, peers = ours(args), {kind: theirs(args, kind) for kind in args.peers.split(",")}
        best = max(peers, key=lambda kind: peers[kind][1])
        rows.append((mine, peers[best], best))
        (a, ac), (b, bc) = mine, peers[best]
        others = "".join(f"; {kind} {v[1]:.0f} per CPU second" for kind, v in peers.items() if kind != best)
        print(
            f"round {i + 1}: hetero-train {a:.0f} img/s, {ac:.0f} per CPU second; DataLoader with {best} {b:.0f}, {bc:.0f}; ratios {a / b:.2f}, {ac / bc:.2f}{others}",
            flush=True)
    for name, k in (("wall time", 0), ("CPU time", 1)):
        ratios = sorted(r[0][k] / r[1][k] for r in rows)
        mine, peers = statistics.median(r[0][k] for r in rows), statistics.median(r[1][k] for r in rows)
        print(f"{name}: hetero-train {mine:.0f} img/s, DataLoader {peers:.0f}, ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    if args.output:  # of CPU time
        with open(args.output, "w") as f:
            json.dump({"ours": mine, "theirs": peers, "peer": {"io": "torchvision.io", "pillow": "Pillow"}[rows[-1][2]],
                       "ratio": statistics.median(ratios), "low": ratios[0], "high": ratios[-1]}, f)


if __name__ == "__main__":
    main()
