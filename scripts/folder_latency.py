#!/usr/bin/env python3
"""Lists and reads class folders on slow storage, with hetero-train and with torchvision's ImageFolder in turn.

    make && python3 -m venv .venv && .venv/bin/pip install torch torchvision
    .venv/bin/python scripts/folder_latency.py [--files 200000] [--folders 200] [--delays 0,0.5,20]

The script builds scripts/slowfs (FUSE), which delays each call of a mounted folder. It needs /dev/fuse and the right to
mount. Each program gets a new mount, so the kernel has cached no name.

- List: empty files with names of images. Ours is `data inspect`, twice with the same cache. No list is kept for a FUSE mount,
  so the second start lists all folders, too. The peer is the constructor of ImageFolder, without the import.
- Read: photographs of 500x375. Ours is `bench data`, the peer a DataLoader with the same transforms. Images per second.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent


class Mount:
    """A mounted folder with a delay in each call."""

    def __init__(self, binary, folder, at, delay):
        at.mkdir(exist_ok=True)
        self.at = at
        command = [binary, "--delay", f"{delay}ms", folder, at]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "mounted\n":
            sys.exit("slowfs cannot mount: it needs /dev/fuse and the right to mount")

    def __enter__(self):
        self.process.send_signal(signal.SIGUSR1)
        self.process.stdout.readline()
        return self

    def calls(self):
        self.process.send_signal(signal.SIGUSR1)
        return json.loads(self.process.stdout.readline())

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.at], check=True)  # a process of a DataLoader may still have a file open
        self.process.kill()
        self.process.wait()


def empty_files(root, files, folders):
    for c in range(folders):
        folder = root / f"n{c:08d}"
        folder.mkdir(parents=True)
        for i in range(files // folders):
            os.close(os.open(folder / f"n{c:08d}_{i:06d}.JPEG", os.O_CREAT | os.O_WRONLY))


def photographs(root, images, folders):
    import numpy
    from PIL import Image
    random = numpy.random.default_rng(1)
    for k in range(images):
        folder = root / f"class{k % folders:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(random.integers(0, 256, (48, 64, 3), dtype=numpy.uint8))
        coarse.resize((500, 375), Image.BICUBIC).save(folder / f"{k:06d}.jpg", quality=90)


LIST = """
import sys, time
from torchvision.datasets import ImageFolder
started, used = time.monotonic(), time.process_time()
found = ImageFolder(sys.argv[1])
print(len(found), time.monotonic() - started, time.process_time() - used)
"""

READ = """
import sys, time, torch
from torchvision import datasets, transforms as T
torch.set_num_threads(1)
folder, workers, batch, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
data = datasets.ImageFolder(folder, T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.PILToTensor()]))
sampler = torch.utils.data.RandomSampler(data, replacement=True, num_samples=1 << 20)
batches = iter(torch.utils.data.DataLoader(data, batch, sampler=sampler, num_workers=workers))
for _ in range(2 * workers):
    next(batches)
n, started = 0, time.monotonic()
while time.monotonic() - started < seconds or n < 2 * workers:
    next(batches)
    n += 1
print(n * batch / (time.monotonic() - started), flush=True)
"""


def output(command, **variables):
    run = subprocess.run(command, env={**os.environ, **variables}, check=True, stdout=subprocess.PIPE, text=True)
    return run.stdout


def ours_list(program, folder, cache, files):
    started, used = time.monotonic(), cpu()
    out = output([program, "data", "inspect", folder, "--dataset", "images", "--look", "1", "--json"],
                 XDG_CACHE_HOME=str(cache))
    seconds, used = time.monotonic() - started, cpu() - used
    found = sum(part["samples"] for part in json.loads(out)["parts"])
    if found != files:
        sys.exit(f"hetero-train found {found} files, want {files}")
    return seconds, used


def cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def total(calls):
    return f"{sum(calls.values()):,}"


def compare_lists(args, slowfs, work):
    files = args.files // args.folders * args.folders
    source, at = work / "files", work / "at"
    empty_files(source, args.files, args.folders)
    print(f"List {files:,} files in {args.folders:,} folders")
    print("| Delay of a call | Ours, first start | Ours, second start | ImageFolder |\n|---|---|---|---|")
    for delay in args.delays:
        cache = work / f"cache{delay}"
        row = []
        for _ in range(2):
            with Mount(slowfs, source, at, delay) as mount:
                seconds, used = ours_list(args.program, at, cache, files)
                row.append(f"{seconds:.2f} s, {used:.2f} s CPU, {total(mount.calls())} calls")
        with Mount(slowfs, source, at, delay) as mount:
            out = output([sys.executable, "-c", LIST, at]).split()
            if int(out[0]) != files:
                sys.exit(f"ImageFolder found {out[0]} files, want {files}")
            row.append(f"{float(out[1]):.2f} s, {float(out[2]):.2f} s CPU, {total(mount.calls())} calls")
        print(f"| {delay:g} ms | " + " | ".join(row) + " |", flush=True)


def compare_reads(args, slowfs, work):
    source, at = work / "photographs", work / "at"
    photographs(source, args.images, 16)
    print(f"\nRead {args.images:,} photographs, {args.workers} workers, images/s")
    peers = [args.workers, *args.more_workers]
    print("| Delay of a call | Ours | Ours, a CPU second | Ours, wait of a worker for an image | "
          + " | ".join(f"DataLoader, {n} workers" for n in peers) + " |")
    print("|---" * (len(peers) + 4) + "|")
    for delay in args.delays:
        row = []
        with Mount(slowfs, source, at, delay):
            out = output([args.program, "bench", "data", "--json", "--path", at, "--workers", str(args.workers),
                          "--image-size", "224", "--batch-size", str(args.batch), "--seconds", str(args.seconds)],
                         XDG_CACHE_HOME=str(work / "cache"))
            r = json.loads(out)
            row += [f"{r['images_per_second']:.0f}", f"{r['images_per_core_second']:.0f}", f"{r['read_ns'] / 1e6:.2f} ms"]
        for n in peers:
            with Mount(slowfs, source, at, delay):
                out = output([sys.executable, "-c", READ, at, str(n), str(args.batch), str(args.seconds)])
                row.append(f"{float(out):.0f}")
        print(f"| {delay:g} ms | " + " | ".join(row) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", default="./hetero-train")
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--folders", type=int, default=200)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--more-workers", type=lambda v: [int(n) for n in v.split(",") if n], default=[])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--delays", type=lambda v: [float(d) for d in v.split(",")], default=[0, 0.5, 20], help="ms")
    parser.add_argument("--parts", default="list,read")
    args = parser.parse_args()
    args.program = os.path.abspath(args.program)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    work = pathlib.Path(tempfile.mkdtemp(prefix="folder-latency-"))
    try:
        slowfs = work / "slowfs"
        subprocess.run(["go", "build", "-o", slowfs, "."], cwd=HERE / "slowfs", check=True)
        if "list" in args.parts:
            compare_lists(args, slowfs, work)
        if "read" in args.parts:
            compare_reads(args, slowfs, work)
    finally:
        shutil.rmtree(work)


main()
