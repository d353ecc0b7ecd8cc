#!/usr/bin/env python3
"""Trains on WebDataset shards of a bucket of SeaweedFS's S3 server, at several latencies, next to the local files.

    make && python3 scripts/s3_latency.py [--images 1600] [--delays 0,20] [--rounds 3] [--weed PROGRAM]

scripts/seaweedfs.sh builds the server. A proxy delays each direction of its connections by half of the latency. The
images are generated JPEG files of 500x375. Each run decodes every image of an epoch, crops it to 16x16, and trains
simple_cnn, so decoding limits its speed. Runs alternate. The script fails if a loss differs from that of the local files.

For each latency and cache, it prints images per second of the whole epochs after the first, and the requests and bytes
of the first and of a later epoch. The first epoch includes the index of the shards.
"""

import argparse
import hashlib
import io
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parent.parent
KEY, SECRET = "benchmark", "benchmark-secret"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Proxy:
    """Forwards connections, and delays each direction by half of the latency without limiting the throughput."""

    def __init__(self, target, latency_s):
        self.target, self.half = target, latency_s / 2
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            a, _ = self.listener.accept()
            b = socket.create_connection(("127.0.0.1", self.target))
            for s in (a, b):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for src, dst in ((a, b), (b, a)):
                self.pump(src, dst)

    def pump(self, src, dst):
        queue, ready = [], threading.Condition()

        def read():
            while True:
                try:
                    p = src.recv(1 << 18)
                except OSError:
                    p = b""
                with ready:
                    queue.append((time.monotonic() + self.half, p))
                    ready.notify()
                if not p:
                    return

        def write():
            while True:
                with ready:
                    ready.wait_for(lambda: queue)
                    due, p = queue.pop(0)
                if (wait := due - time.monotonic()) > 0:
                    time.sleep(wait)
                try:
                    if not p:
                        dst.shutdown(socket.SHUT_WR)
                        return
                    dst.sendall(p)
                except OSError:
                    return

        for work in (read, write):
            threading.Thread(target=work, daemon=True).start()


def shards(folder, images, count=4):
    import numpy
    from PIL import Image
    rng, folder = numpy.random.default_rng(0), pathlib.Path(folder)
    folder.mkdir(parents=True)
    per = images // count
    for s in range(count):
        with tarfile.open(folder / f"train-{s:06d}.tar", "w") as tar:
            for k in range(s * per, (s + 1) * per):
                small = rng.integers(0, 256, (31, 41, 3), dtype=numpy.uint8)
                a = numpy.asarray(Image.fromarray(small).resize((500, 375), Image.BICUBIC)).astype(int)
                a = (a + rng.integers(-14, 15, a.shape)).clip(0, 255).astype(numpy.uint8)
                out = io.BytesIO()
                Image.fromarray(a).save(out, "JPEG", quality=82)
                for end, p in (("jpg", out.getvalue()), ("cls", str(k % 10).encode())):
                    info = tarfile.TarInfo(f"{k:06d}.{end}")
                    info.size = len(p)
                    tar.addfile(info, io.BytesIO(p))


def curl(*arguments):
    subprocess.run(["curl", "-sf", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{KEY}:{SECRET}", *arguments],
                   check=True, stdout=subprocess.DEVNULL)


def serve(weed, folder):
    """Starts the server with one bucket, and returns its process and port."""
    config = folder / "s3.json"
    config.write_text(json.dumps({"identities": [{"name": "benchmark", "credentials": [
        {"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin", "Read", "List", "Write"]}]}))
    (folder / "server").mkdir()
    ports = {name: free_port() for name in ("s3", "master", "volume", "filer")}
    process = subprocess.Popen(
        [weed, "server", f"-dir={folder / 'server'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3",
         f"-s3.config={config}", "-volume.max=50", "-master.volumeSizeLimitMB=200",
         *(f"-{name}.port={port}" for name, port in ports.items()),
         *(f"-{name}.port.grpc={free_port()}" for name in ports)],
        stdout=open(folder / "server.log", "w"), stderr=subprocess.STDOUT)
    end = time.monotonic() + 120
    while True:
        try:
            curl("-X", "PUT", f"http://127.0.0.1:{ports['s3']}/data")
            return process, ports["s3"]
        except subprocess.CalledProcessError:
            if time.monotonic() > end or process.poll() is not None:
                sys.exit(f"the server does not answer: {(folder / 'server.log').read_text()[-2000:]}")
            time.sleep(0.5)


def train(program, folder, name, path, port, cache_mb, epochs):
    cache = folder / f"cache-{name}"
    env = dict(os.environ, AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{port}", AWS_ACCESS_KEY_ID=KEY,
               AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION="us-east-1")
    run = subprocess.run(
        [program, "train", "--model", "simple_cnn", "--dataset", "webdataset", "--experiment-name", name,
         "--resume", "none", *(x for s in (
             f"data.path={path}", f"data.cache_dir={cache}", f"data.object_cache_mb={cache_mb}", "data.image_size=16",
             "data.val_fraction=0", "data.batch_size=32", "data.random_resized_crop=true",
             f"train.epochs={epochs}", "device.kind=cpu", "data.workers=2") for x in ("--set", s))],
        cwd=folder, env=env, text=True, capture_output=True)
    if run.returncode:
        sys.exit(run.stdout + run.stderr)
    records = json.loads((folder / "experiments" / name / "logs/rank_0_metrics.json").read_text())
    found = re.search(r"requests=(\d+) tried_again=(\d+) received_bytes=(\d+)", run.stderr + run.stdout)
    return records, tuple(map(int, found.groups())) if found else (0, 0, 0)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--images", type=int, default=1600)
    p.add_argument("--delays", default="0,20", help="latencies, ms")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--program", default=str(ROOT / "hetero-train"))
    p.add_argument("--weed", default="")
    o = p.parse_args()
    weed = o.weed or subprocess.run([ROOT / "scripts/seaweedfs.sh"], check=True, text=True,
                                    stdout=subprocess.PIPE).stdout.strip()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        shards(folder / "shards", o.images)
        process, port = serve(weed, folder)
        try:
            for file in sorted((folder / "shards").iterdir()):
                curl("-T", str(file), f"http://127.0.0.1:{port}/data/shards/{file.name}")
            measure(o, folder, port)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def measure(o, folder, port):
    program = str(pathlib.Path(o.program).resolve())
    cases = [("local files", str(folder / "shards"), port, 0)]
    for delay in map(float, o.delays.split(",")):
        at = Proxy(port, delay / 1000).port
        cases += [(f"{delay:g} ms, nothing kept", "s3://data/shards", at, 0),
                  (f"{delay:g} ms, cache", "s3://data/shards", at, 51200)]
    speeds, traffic, losses = {}, {}, None
    for turn in range(o.rounds):
        for number, (name, path, at, cache) in enumerate(cases):
            label = f"r{turn}-{number}"
            _, one = train(program, folder, label + "-1", path, at, cache, 1) if turn == 0 else (None, None)
            began = f"{label}-3"
            records, three = train(program, folder, began, path, at, cache, 3)
            own = hashlib.sha256(json.dumps([r["loss"] for r in records]).encode()).hexdigest()
            losses = losses or own
            if own != losses:
                sys.exit(f"{name}: the losses differ from those of the local files")
            later = records[len(records) // 3:]
            speeds.setdefault(name, []).append(32 * len(later) / sum(r["step_time"] for r in later))
            if turn == 0:
                traffic[name] = one, ((three[0] - one[0]) / 2, (three[2] - one[2]) / 2)
    print(f"{len(records)} equal losses in all runs")
    for name in traffic:
        rates = speeds[name]
        one, more = traffic[name]
        print(f"{name}: {statistics.median(rates):.0f} ({min(rates):.0f} to {max(rates):.0f}) images/s; "
              f"first epoch {one[0]} requests, {one[2] / 1e6:.1f} MB; later epoch {more[0]:.0f} requests, "
              f"{more[1] / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
