#!/usr/bin/env python3
"""Measures the effect of many clients of the dashboard on training, in one run.

Trains with `hetero-train train --dashboard`. Blocks with clients and blocks without clients alternate. Prints the ratio of the
step times of neighbouring blocks with its 95 % interval, the CPU time of the server, and the delays of the clients.

    scripts/dashboard_clients.py --train-cpus 0 --client-cpus 1

Each client follows the run by a stream. With --load page, it also loads the run and its charts after an event, at most once a
second, as a page does. A page that is hidden does not load, so --load stream is the load of hidden pages.

The clients of the script share the machine with the training: give them CPUs of their own (--client-cpus), and use a quiet
machine. Needs Python 3.9 or later, taskset, and about 3 open files per client (ulimit -n).
"""
import argparse
import asyncio
import json
import math
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

FIGURES = ("/figures?points=600&columns=loss,accuracy,throughput,total_throughput,share,own,communication,hidden,bus_bandwidth,"
           "utilization,memory,learning_rate,grad_norm,data,forward,backward,optimizer,step,exchange")
SETTLE = 4.0  # s at the start of a block that are not measured: clients connect, or the server notices that they have gone
# Two-sided 95 % quantiles of Student's t by degrees of freedom.
T95 = [0, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13]


async def answer(reader, writer, port, path):
    """Sends a request on an open connection and reads the whole response."""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nAccept-Encoding: gzip\r\n\r\n".encode())
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    if not head.startswith("http/1.1 200"):
        raise RuntimeError(f"{path}: got {head.splitlines()[0]}, want status 200")
    await reader.readexactly(int(head.split("content-length:")[1].split("\r\n")[0]))


async def client(port, run, load, events, loads, begin):
    """One client, until it is canceled. events: times of arrival, by version; loads: durations."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /api/stream?run={run} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
    page = await asyncio.open_connection("127.0.0.1", port) if load == "page" else None
    last = 0.0
    while line := await reader.readline():
        if not line.startswith(b"data:"):
            continue
        now = time.monotonic()
        if now > begin:
            events.setdefault(line, []).append(now)
        if page and now - last >= 1:
            last = now
            for path in (f"/api/runs/{run}", f"/api/runs/{run}{FIGURES}"):
                at = time.monotonic()
                await answer(*page, port, path)
                if at > begin:
                    loads.append(time.monotonic() - at)
    raise RuntimeError("the server has ended the stream")


async def clients(port, run, load, number):
    """Runs the clients until SIGTERM, and prints what they measured."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    events, loads, begin = {}, [], time.monotonic() + SETTLE
    tasks = [asyncio.create_task(client(port, run, load, events, loads, begin)) for _ in range(number)]
    done, _ = await asyncio.wait([asyncio.create_task(over.wait()), *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()  # raises the error of a client
    arrivals = sorted(events.values(), key=min)[:-1]  # the newest event has not reached all clients
    print(json.dumps({"delays": [t - min(all) for all in arrivals for t in all], "loads": loads, "events": len(arrivals),
                      "missed": sum(number - len(all) for all in arrivals)}), flush=True)
    os._exit(0)  # without an orderly end of thousands of tasks


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else math.nan


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat", encoding="utf-8").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def server_of(port):
    """Returns the process that listens on a port: with several ranks, their supervisor."""
    rows = [line.split() for line in open("/proc/net/tcp", encoding="utf-8")][1:]
    names = {f"socket:[{r[9]}]" for r in rows if r[3] == "0A" and int(r[1].split(":")[1], 16) == port}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if names & {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}:
                return int(pid)
        except OSError:
            continue  # the process has ended, or belongs to another user
    sys.exit(f"dashboard_clients: no process listens on port {port}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def pinned(cpus, command):
    return ["taskset", "-c", cpus, *command] if cpus else command


def steps_of(path):
    """Returns (end in s since 1970, duration in s) of each step. The last line may be incomplete."""
    out = []
    for line in open(path, encoding="utf-8"):
        try:
            r = json.loads(line.strip().rstrip(","))
            out.append((r["timestamp"], r["iteration_time"]))
        except (ValueError, KeyError, TypeError):
            continue
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--binary", default="./hetero-train")
    p.add_argument("--clients", type=int, default=1000)
    p.add_argument("--load", choices=["page", "stream"], default="page", help="what a client does (default: page)")
    p.add_argument("--block", type=float, default=20, help="length of a block in s (default: 20)")
    p.add_argument("--pairs", type=int, default=6, help="pairs of blocks with and without clients, 2 to 16 (default: 6)")
    p.add_argument("--train-cpus", default="", help="CPUs of training and server, as taskset -c takes them")
    p.add_argument("--client-cpus", default="", help="CPUs of the clients")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="further setting of the training")
    p.add_argument("--as-clients", nargs=2, metavar=("PORT", "RUN"), help=argparse.SUPPRESS)
    a = p.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = 3 * a.clients + 100
    if soft < want:
        if hard != resource.RLIM_INFINITY and hard < want:
            sys.exit(f"dashboard_clients: the limit of open files is {hard}, want {want}: ulimit -n {want}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (want, hard))
    if a.as_clients:
        asyncio.run(clients(int(a.as_clients[0]), a.as_clients[1], a.load, a.clients))
        return
    if not 2 <= a.pairs <= 16 or a.block < 2 * SETTLE:
        sys.exit(f"dashboard_clients: want 2 to 16 pairs, and blocks of at least {2 * SETTLE:g} s")

    folder, port = tempfile.mkdtemp(prefix="dashboard_clients_"), free_port()
    settings = ["model.name=simple_cnn", "data.dataset=synthetic_image", "data.image_size=32", "data.batch_size=64", "train.steps=100000000",
                "experiment.name=run", f"experiment.output_dir={folder}", f"parallel.ranks={a.ranks}", f"dashboard.port={port}",
                "balance.policy=none", *a.set]
    train = subprocess.Popen(pinned(a.train_cpus, [a.binary, "train", "--dashboard", *(x for s in settings for x in ("--set", s))]),
                             stdout=subprocess.DEVNULL, stderr=open(os.path.join(folder, "messages"), "wb"))
    try:
        for _ in range(600):
            time.sleep(0.1)
            if train.poll() is not None:
                sys.exit("dashboard_clients: the training ended:\n" + open(os.path.join(folder, "messages"), encoding="utf-8").read())
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/runs/run", timeout=5) as r:
                    if json.load(r)["last"] > 20:
                        break
            except OSError:
                pass
        else:
            sys.exit("dashboard_clients: the run has not computed 20 steps after a minute")
        server = server_of(port)
        blocks, delays, loads, events, missed = [], [], [], 0, 0
        for i in range(2 * a.pairs):
            on = i % 4 in (0, 3)  # on, off, off, on, …: a steady change of the machine has no effect
            begin = time.time()
            crowd = on and subprocess.Popen(pinned(a.client_cpus, [sys.executable, __file__, "--as-clients", str(port), "run",
                                                                   "--clients", str(a.clients), "--load", a.load]), stdout=subprocess.PIPE)
            time.sleep(SETTLE)
            cpu, at = cpu_seconds(server), time.time()
            time.sleep(a.block - SETTLE)
            blocks.append((on, at, time.time(), cpu_seconds(server) - cpu))
            if crowd:
                crowd.send_signal(signal.SIGTERM)
                text = crowd.communicate()[0]
                if crowd.returncode != 0:
                    sys.exit("dashboard_clients: a client failed; see the messages above")
                got = json.loads(text)
                delays, loads, events, missed = delays + got["delays"], loads + got["loads"], events + got["events"], missed + got["missed"]
            print(f"block {i + 1} of {2 * a.pairs}: {'with' if on else 'without'} clients, {time.time() - begin:.0f} s", file=sys.stderr)
            if train.poll() is not None:
                sys.exit("dashboard_clients: the training ended during the measurement")
        train.send_signal(signal.SIGINT)
        train.wait(60)
        steps = steps_of(os.path.join(folder, "run", "logs", "rank_0_metrics.json"))
    finally:
        if train.poll() is None:
            train.kill()
            train.wait()
        shutil.rmtree(folder, ignore_errors=True)

    means = []
    for on, begin, end, _ in blocks:
        inside = [d for t, d in steps if begin < t <= end]
        if not inside:
            sys.exit("dashboard_clients: a block has no step: choose longer blocks or a smaller model")
        means.append(sum(inside) / len(inside))
    logs = []
    for i in range(0, len(blocks), 2):
        x, y = (i, i + 1) if blocks[i][0] else (i + 1, i)
        logs.append(math.log(means[x] / means[y]))
    mean = sum(logs) / len(logs)
    half = T95[len(logs) - 1] * math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1) / len(logs))
    percent = lambda x: f"{100 * math.expm1(x):+.2f} %"
    rate = lambda on: sum(b[3] for b in blocks if b[0] == on) / sum(b[2] - b[1] for b in blocks if b[0] == on)
    print(f"clients                        {a.clients} ({a.load}), CPUs {a.client_cpus or 'all'}; training and server: {a.ranks} ranks, CPUs {a.train_cpus or 'all'}")
    print(f"step time without clients      {1000 * sum(m for m, b in zip(means, blocks) if not b[0]) / a.pairs:.3f} ms")
    print(f"effect of the clients          {percent(mean)}, 95 % interval {percent(mean - half)} to {percent(mean + half)}, {len(logs)} pairs of blocks")
    print(f"CPU time of the server         {rate(True):.3f} s per s with clients, {rate(False):.3f} without")
    print(f"delay behind the first client  p50 {1000 * quantile(delays, 0.5):.0f} ms, p99 {1000 * quantile(delays, 0.99):.0f} ms, {events} events, {missed} not received")
    if loads:
        print(f"time of a request              p50 {1000 * quantile(loads, 0.5):.0f} ms, p99 {1000 * quantile(loads, 0.99):.0f} ms, {len(loads)} requests")


if __name__ == "__main__":
    main()
