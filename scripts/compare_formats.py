#!/usr/bin/env python3
"""Compares the decoding of image formats with Pillow, and the reading of Arrow and Parquet files with datasets and pyarrow.

    python3 scripts/compare_formats.py [--rounds 5] [--seconds 2] [--rows 2000]

The script needs Go, Pillow, numpy and datasets. It writes 8 photographs of 500 x 375 pixels in each format, a data set of
JPEG images and one of texts, to a temporary folder. In each round, the Go benchmarks and the peers run one after another,
each with one thread. The figures are per second of CPU time: medians (range), and the median ratio of the rounds."""
import argparse
import io
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from PIL import Image

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent


def photograph(k):
    """Smooth colours with some noise, which compress like a photograph."""
    random = np.random.default_rng(k)
    small = Image.fromarray(random.integers(0, 256, (12, 16, 3), np.uint8)).resize((500, 375), Image.BICUBIC)
    noise = random.normal(0, 6, (375, 500, 3))
    return Image.fromarray((np.asarray(small) + noise).clip(0, 255).astype(np.uint8))


FORMATS = {"jpeg": ("jpg", {"quality": 90}), "png": ("png", {}), "webp": ("webp", {"quality": 80}),
           "webp-lossless": ("webp", {"lossless": True, "method": 2}), "bmp": ("bmp", {}), "tiff": ("tiff", {}),
           "tiff-lzw": ("tiff", {"compression": "tiff_lzw"}), "gif": ("gif", {}), "ppm": ("ppm", {})}


def write_images(folder):
    for name, (ending, options) in FORMATS.items():
        for k in range(8):
            to = folder / name / f"{k}.{ending}"
            to.parent.mkdir(parents=True, exist_ok=True)
            photograph(k).save(to, **options)


def write_tables(folder, rows):
    import datasets
    datasets.disable_progress_bars()
    encoded = []
    for k in range(32):
        b = io.BytesIO()
        photograph(k).save(b, "JPEG", quality=90)
        encoded.append(b.getvalue())
    pictures = datasets.Dataset.from_dict(
        {"image": [{"bytes": encoded[k % 32] + k.to_bytes(4, "little"), "path": None} for k in range(rows)],
         "label": [k % 10 for k in range(rows)]},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=10)}))
    random = np.random.default_rng(0)
    words = [bytes(random.integers(97, 123, n, np.uint8)).decode() for n in random.integers(2, 9, 20000)]
    texts = datasets.Dataset.from_dict(
        {"text": [" ".join(words[w] for w in random.integers(0, 20000, n))
                  for n in random.integers(20, 200, 25 * rows)],
         "label": [k % 4 for k in range(25 * rows)]})
    for name, one in (("images", pictures), ("texts", texts)):
        one.to_parquet(str(folder / f"{name}.parquet"))
        one.save_to_disk(str(folder / name))


def spent(work, seconds, n):
    """Units of work per second of CPU time; a call does n units."""
    work()
    start, done = time.process_time(), 0
    while time.process_time() - start < seconds:
        work()
        done += n
    return done / (time.process_time() - start)


def pillow(folder, seconds):
    out = {}
    for name in FORMATS:
        files = [p.read_bytes() for p in sorted((folder / name).iterdir())]

        def work():
            for f in files:
                Image.open(io.BytesIO(f)).convert("RGB").load()
        out[name] = spent(work, seconds, len(files))
    return out


def tables(folder, seconds):
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    out = {}
    for name in ("images", "texts"):
        file = str(folder / f"{name}.parquet")
        rows = pq.ParquetFile(file).metadata.num_rows

        def scan():
            for batch in pq.ParquetFile(file).iter_batches(use_threads=False):
                for column in batch.columns:
                    column.to_pylist()
        out[f"{name} Parquet scan"] = spent(scan, seconds, rows)
        saved = datasets.load_from_disk(str(folder / name))
        if name == "images":
            saved = saved.cast_column("image", datasets.Image(decode=False))
        order = np.random.default_rng(0).permutation(rows)[:500].tolist()

        def read():
            for i in order:
                saved[i]
        if name == "images":
            out[f"{name} Arrow random"] = spent(read, seconds, len(order))
    return out


def go(package, pattern, variable, folder, seconds):
    env = dict(os.environ, GOMAXPROCS="1", **{variable: str(folder)})
    command = ["go", "test", package, "-run", "^$", "-bench", pattern, "-benchtime", f"{seconds}s"]
    text = subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True).stdout
    out = {}
    for line in text.splitlines():
        fields = line.split()
        if "units/cpu-s" in fields:
            name = fields[0].split("/", 1)[1].replace("_", " ")
            out[name] = float(fields[fields.index("units/cpu-s") - 1])
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--rows", type=int, default=2000)
    p.add_argument("--json", action="store_true")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        write_images(work / "formats")
        (work / "tables").mkdir()
        write_tables(work / "tables", args.rows)
        rounds = []
        for _ in range(args.rounds):
            own = go("./engine/data/images", "Formats", "HETERO_BENCH_FORMATS", work / "formats", args.seconds)
            own |= go("./engine/data/huggingface", "Tables", "HETERO_BENCH_TABLES", work / "tables", args.seconds)
            rounds.append((own, pillow(work / "formats", args.seconds) | tables(work / "tables", args.seconds)))
        rows = []
        for name in rounds[0][1]:
            a, b = [o[name] for o, _ in rounds], [q[name] for _, q in rounds]
            ratios = [x / y for x, y in zip(a, b)]
            rows.append({"name": name, "ours": a, "peer": b, "ratio": ratios})
            show = lambda v: f"{statistics.median(v):,.0f} ({min(v):,.0f} to {max(v):,.0f})"
            if not args.json:
                print(f"| {name} | {show(a)} | {show(b)} | {statistics.median(ratios):.2f} ({min(ratios):.2f} to "
                      f"{max(ratios):.2f}) |", flush=True)
        if args.json:
            print(json.dumps(rows))


main()
