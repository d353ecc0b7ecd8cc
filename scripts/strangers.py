#!/usr/bin/env python3
"""strangers.py [--rounds N] [--seconds S]: measures the step time of a run while strangers attack the port of rank 0.

Two ranks train simple_cnn on CPU 0. A second process on CPU 1 opens connections to `parallel.master_port`, so that the
CPU time of the strangers themselves does not count. Windows without and with each attack alternate. For each attack,
the script prints a row of Markdown: the median step time, relative to the preceding window without an attack, as median
and range of the rounds.

It needs Linux and two CPUs. HETERO_TRAIN is the program (default ./hetero-train). Exit code 1: the run failed.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PROGRAM = os.environ.get("HETERO_TRAIN", "./hetero-train")
# Attacks: text, number of source addresses, connections per second (0: as many as possible), what a stranger sends.
ATTACKS = [
    ("1 address, 1,000 connections/s, silent", 1, 1000, b""),
    ("1 address, 1,000 connections/s, garbage", 1, 1000, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + bytes(range(256))),
    ("1 address, as many as possible", 1, 0, b""),
    ("100 addresses, as many as possible", 100, 0, b""),
    ("200 addresses, as many as possible", 200, 0, b""),
]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def attack(port, addresses, rate, contents, seconds, count):
    """Opens connections for some seconds. At most 500 of them are open at a time."""
    os.sched_setaffinity(0, {1})
    begun, n, kept = time.monotonic(), 0, []
    while (now := time.monotonic() - begun) < seconds:
        if rate and n >= rate * now:
            time.sleep(0.001)
            continue
        s = socket.socket()
        s.setblocking(False)
        try:
            s.bind((f"127.50.{n % addresses // 250}.{1 + n % addresses % 250}", 0))
            s.connect_ex(("127.0.0.1", port))
            if contents:
                s.send(contents)
        except OSError:
            pass
        kept.append(s)
        if len(kept) > 500:
            kept.pop(0).close()
        n += 1
    count.value = n


class Run:
    """Two ranks that train on CPU 0 until they get a signal."""

    def __init__(self, folder, port):
        settings = ["model.channels=[32]", "data.image_size=32", "data.batch_size=32", "train.steps=1000000",
                    "device.kind=cpu", "device.threads=1", "balance.policy=none", "parallel.backend=gloo",
                    "checkpoint.interval_seconds=0", "train.eval_interval=0"]
        command = ["taskset", "-c", "0", PROGRAM, "train", "--model", "simple_cnn", "--output-dir", str(folder)]
        for s in settings:
            command += ["--set", s]
        self.folder, self.ranks = folder, []
        for rank in range(2):
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
                           "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            self.ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL,
                                               stderr=(folder / f"{rank}.log").open("w")))

    def steps(self):
        """The end of each step so far, in seconds since 1970."""
        if any(r.poll() is not None for r in self.ranks):
            sys.exit("a rank has ended:\n" + "".join(f.read_text() for f in self.folder.glob("*.log")))
        record = self.folder / "distributed_training" / "logs" / "rank_0_metrics.json"
        if not record.exists():
            return []
        times = []
        for line in record.read_text().splitlines():
            try:
                times.append(json.loads(line.rstrip(","))["timestamp"])
            except json.JSONDecodeError:  # the bracket of the first line, and a line that is being written
                pass
        return times

    def stop(self):
        for r in self.ranks:
            r.send_signal(signal.SIGINT)
        for r in self.ranks:
            r.wait()


def step_time(times, begin, end):
    """Median and mean time between two ends of steps within a window, in ms."""
    inside = [t for t in times if begin <= t <= end]
    if len(inside) < 20:
        sys.exit(f"{len(inside)} steps in {end - begin:.0f} s, want at least 20: use longer windows")
    return 1000 * statistics.median(b - a for a, b in zip(inside, inside[1:])), \
        1000 * (inside[-1] - inside[0]) / (len(inside) - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8, help="length of a window")
    args = parser.parse_args()
    if not {0, 1} <= os.sched_getaffinity(0):
        sys.exit("CPUs 0 and 1 are needed")
    windows = {text: [] for text, *_ in ATTACKS}
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        run = Run(pathlib.Path(folder), port)
        try:
            while len(run.steps()) < 500:
                time.sleep(0.5)
            for _ in range(args.rounds):
                for text, *kind in ATTACKS:
                    begin = time.time()
                    time.sleep(args.seconds)
                    middle = time.time()
                    count = multiprocessing.Value("l")
                    process = multiprocessing.Process(target=attack, args=(port, *kind, args.seconds, count))
                    process.start()
                    process.join()
                    windows[text].append((begin, middle, time.time(), count.value))
                    time.sleep(2)
            times = run.steps()
        finally:
            run.stop()
    print("| Strangers | Connections/s | Step without, ms | Mean step, attack / without | Median step, attack / without |")
    print("|---|---|---|---|---|")
    for text, measured in windows.items():
        rates, without, means, medians = [], [], [], []
        for begin, middle, end, n in measured:
            (median0, mean0), (median1, mean1) = step_time(times, begin, middle), step_time(times, middle, end)
            rates.append(n / (end - middle))
            without.append(mean0)
            means.append(mean1 / mean0)
            medians.append(median1 / median0)
        print(f"| {text} | {statistics.median(rates):,.0f} | {statistics.median(without):.2f} | {span(means)} | {span(medians)} |")


def span(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    main()
