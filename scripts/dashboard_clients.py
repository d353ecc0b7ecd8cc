#!/usr/bin/env python3
"""Measures the effect of many clients of the dashboard on training, in one run.

Trains with `hetero-train train --dashboard`. Blocks with clients and blocks without clients alternate. Prints:

- the number of streams that the server opened and refused
- the ratio of the step times of neighbouring blocks, with its 95 % interval
- the CPU time of the server
- the delay of a record: from the write of the record to its file, to the arrival of the first event that covers the record

    scripts/dashboard_clients.py --train-cpus 0 --client-cpus 1

Each client follows the run by a stream. With --load page, a client also loads the run and its charts after an event, at
most once a second, as a visible page does. --load stream is the load of hidden pages, which load nothing.

The clients of the script share the machine with the training: give them CPUs of their own (--client-cpus), and use a
quiet machine. The script keeps these CPUs awake in all blocks. To wake a sleeping CPU of a virtual machine costs the
server as much as an event, and clients on other machines would not cause this cost.

The server has a low priority. On CPUs that the ranks keep busy, it gets little time, and clients wait longer.
--server-cpus gives the server CPUs of its own. Needs Python 3.9 or later, taskset, and about 3 open files per client
(ulimit -n).

Exit codes: 0; 1 if the server refused or ended a stream or a request, or if the measurement failed; 2 for bad flags.
"""
import argparse
import asyncio
import bisect
import collections
import json
import math
import multiprocessing
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
# s at the start of a block that are not measured, because clients load their pages or have just disconnected
SETTLE = 4.0
CONNECT = 60.0  # s within which the server must open all streams of a block; the block begins then
LATE = 16.0  # s; longer delays are not measured
LOOK = 0.02  # s between two looks at the file of records, which is written twice a second
# Two-sided 95 % quantiles of Student's t by degrees of freedom.
T95 = [0, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13]


def fail(text):
    sys.exit(f"dashboard_clients: {text}")


async def ask(reader, writer, port, path, header=""):
    """Sends a request and returns the status and the head of the response."""
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n{header}\r\n".encode())
    await writer.drain()
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    return int(head.split()[1]), head


async def load_of(connection, port, path, header=""):
    """Loads a resource on an open connection. Returns the status and the body."""
    status, head = await ask(*connection, port, path, header)
    return status, await connection[0].readexactly(int(head.split("content-length:")[1].split("\r\n")[0]))


async def client(port, run, load, observer, got):
    """One client, until it is canceled. The client adds all that it receives to got. The observer also records the
    newest step of each version."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    got["status"], _ = await ask(reader, writer, port, f"/api/stream?run={run}")
    if got["status"] != 200:
        return
    page = await asyncio.open_connection("127.0.0.1", port) if load == "page" or observer else None
    last = 0.0
    while line := await reader.readline():
        if line.startswith(b"event: refused"):
            got["refusals"] += 1
        if not line.startswith(b"data:"):
            continue
        now = time.time()
        got["events"].append((now, json.loads(line[5:]).get("version", 0)))
        if observer:
            status, text = await load_of(page, port, f"/api/runs/{run}")
            view = json.loads(text) if status == 200 else fail(f"the observer got status {status}")
            got["steps"].append((view["version"], view["last"]))
        if load == "page" and now - last >= 1:
            last = now
            for path in (f"/api/runs/{run}", f"/api/runs/{run}{FIGURES}"):
                at = time.monotonic()
                status, _ = await load_of(page, port, path, "Accept-Encoding: gzip\r\n")
                got["loads"].append((now, time.monotonic() - at))
                got["refusals"] += status != 200
    got["error"] = "the server ended the stream"


async def guarded(port, run, load, observer, got):
    try:
        await client(port, run, load, observer, got)
    except (OSError, EOFError, ValueError) as error:
        got["error"] = f"{type(error).__name__}: {error}"


async def clients(port, run, load, number):
    """Runs the clients until SIGTERM, and prints what they received."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    all_got = [{"status": 0, "events": [], "steps": [], "loads": [], "refusals": 0, "error": ""} for _ in range(number)]
    tasks = [asyncio.create_task(guarded(port, run, load, i == 0, got)) for i, got in enumerate(all_got)]
    end = time.monotonic() + CONNECT
    while time.monotonic() < end and not all(got["status"] or got["error"] for got in all_got):
        await asyncio.sleep(0.1)
    print("connected", flush=True)
    await over.wait()
    for task in tasks:
        task.cancel()
    print(json.dumps(all_got), flush=True)
    os._exit(0)  # without an orderly end of thousands of tasks


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else math.nan


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat", encoding="utf-8").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def server_of(port):
    """Returns the process that listens on a port: a child of the training's supervisor."""
    rows = [line.split() for line in open("/proc/net/tcp", encoding="utf-8")][1:]
    names = {f"socket:[{r[9]}]" for r in rows if r[3] == "0A" and int(r[1].split(":")[1], 16) == port}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if names & {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}:
                return int(pid)
        except OSError:
            continue  # the process has ended, or belongs to another user
    return fail(f"no process listens on port {port}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def pinned(cpus, command):
    return ["taskset", "-c", cpus, *command] if cpus else command


def keep_awake(cpu, parent):
    """Keeps a CPU busy at the lowest priority, until the parent process ends or kills this process."""
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    while os.getppid() == parent:
        for _ in range(10**6):
            pass


def watch(path, seconds, writes):
    """Waits, and adds each write to a file to writes: time of the write (by the kernel, to a few ms) and size of the
    file then."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        s = os.stat(path)
        if not writes or s.st_size != writes[-1][1]:
            writes.append((s.st_mtime, s.st_size))
        time.sleep(LOOK)


def records_of(path):
    """Returns (step, end in s since 1970, offset behind the record in the file) of each record. The last line may be
    incomplete."""
    out, offset = [], 0
    for line in open(path, "rb"):
        offset += len(line)
        try:
            r = json.loads(line.strip().rstrip(b","))
            out.append((r["iteration"], r["timestamp"], offset))
        except (ValueError, KeyError, TypeError):
            continue
    return out


def delays_of(block, writes, records):
    """Returns the delay of each write at each client of a block; math.inf if a client has not received it within
    LATE."""
    ends = [r[2] for r in records]
    versions = sorted(tuple(p) for p in block["clients"][0]["steps"])
    known = [v for v, _ in versions]
    inside = []
    for at, size in writes:
        # A record ends with ",\n" or with "\n" and the closing bracket, which the next write overwrites.
        n = bisect.bisect_right(ends, size + 1)
        if n and block["begin"] < at < block["end"] - LATE:
            inside.append((at, records[n - 1][0]))
    out = []
    for got in block["clients"]:
        if got["status"] != 200:
            continue
        arrivals = []
        for at, version in got["events"]:
            i = bisect.bisect_right(known, version)  # an unknown version has at least the step of the version before
            arrivals.append((at, versions[i - 1][1] if i else 0))
        k = 0
        for at, step in inside:
            while k < len(arrivals) and arrivals[k][1] < step:
                k += 1
            delay = arrivals[k][0] - at if k < len(arrivals) else math.inf
            out.append(delay if delay <= LATE else math.inf)
    return out


def still_training(train, folder):
    """Fails with the messages of the training if it has ended."""
    if train.poll() is not None:
        fail("the training ended:\n" + open(os.path.join(folder, "messages"), encoding="utf-8").read())


def measure(a, folder, port, train):
    """Runs the blocks. Returns them, the writes to the file of records, and its records."""
    path = os.path.join(folder, "run", "logs", "rank_0_metrics.json")
    for _ in range(600):
        time.sleep(0.1)
        still_training(train, folder)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/runs/run", timeout=5) as r:
                if json.load(r)["last"] > 20:
                    break
        except OSError:
            pass
    else:
        fail("the run has not computed 20 steps after a minute")
    server, blocks, writes = server_of(port), [], []
    if a.server_cpus:
        subprocess.run(["taskset", "-acp", a.server_cpus, str(server)], check=True, stdout=subprocess.DEVNULL)
    for i in range(2 * a.pairs):
        on = i % 4 in (0, 3)  # on, off, off, on, …: a steady change of the machine has no effect
        crowd = on and subprocess.Popen(pinned(a.client_cpus, [sys.executable, __file__, "--as-clients", str(port),
                                                               "run", "--clients", str(a.clients),
                                                               "--load", a.load]), stdout=subprocess.PIPE)
        try:
            if crowd:
                crowd.stdout.readline()  # until all clients are connected
            still_training(train, folder)
            watch(path, SETTLE, writes)
            still_training(train, folder)
            cpu, begin = cpu_seconds(server), time.time()
            watch(path, a.block - SETTLE, writes)
            still_training(train, folder)
            blocks.append({"on": on, "begin": begin, "end": time.time(), "cpu": cpu_seconds(server) - cpu})
            if crowd:
                crowd.send_signal(signal.SIGTERM)
                text = crowd.communicate()[0]
                if crowd.returncode != 0:
                    fail("the clients failed; see the messages above")
                blocks[-1]["clients"] = json.loads(text)
        except OSError:
            still_training(train, folder)  # its server ends with it, and then has no CPU time
            raise
        finally:
            if crowd and crowd.poll() is None:
                crowd.kill()
                crowd.wait()
        print(f"block {i + 1} of {2 * a.pairs}: {'with' if on else 'without'} clients", file=sys.stderr, flush=True)
    train.send_signal(signal.SIGINT)
    train.wait(60)
    return blocks, writes, records_of(path)


def report(a, blocks, writes, records):
    """Prints the figures. Returns the number of refused or ended clients and requests."""
    means = []
    for b in blocks:
        ends = [at for _, at, _ in records if b["begin"] < at <= b["end"]]
        if len(ends) < 2:
            fail("a block has fewer than 2 steps: choose longer blocks or a smaller model")
        means.append((ends[-1] - ends[0]) / (len(ends) - 1))
    logs = []
    for i in range(0, len(blocks), 2):
        x, y = (i, i + 1) if blocks[i]["on"] else (i + 1, i)
        logs.append(math.log(means[x] / means[y]))
    mean = sum(logs) / len(logs)
    half = T95[len(logs) - 1] * math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1) / len(logs))
    without = sum(m for m, b in zip(means, blocks) if not b["on"]) / a.pairs
    cpu = {on: (sum(b["cpu"] for b in blocks if b["on"] == on),
                sum(b["end"] - b["begin"] for b in blocks if b["on"] == on)) for on in (True, False)}
    all_got = [got for b in blocks if b["on"] for got in b["clients"]]
    statuses = collections.Counter(got["status"] for got in all_got)
    errors = collections.Counter(got["error"] for got in all_got if got["error"])
    refused, refusals = len(all_got) - statuses[200], sum(got["refusals"] for got in all_got)
    delays = [d for b in blocks if b["on"] for d in delays_of(b, writes, records)]
    loads = [took for b in blocks if b["on"] for got in b["clients"] for at, took in got["loads"] if at > b["begin"]]
    ms = lambda values, q: f"over {LATE:g} s" if math.isinf(
        quantile(values, q)) else f"{1000 * quantile(values, q):.0f} ms"

    print(f"clients              {a.clients} ({a.load}), CPUs {a.client_cpus or 'all'}")
    print(f"training             {a.ranks} ranks, CPUs {a.train_cpus or 'all'}; server: CPUs {a.server_cpus or a.train_cpus or 'all'}")
    print(f"streams              {statuses[200]} opened, {refused} refused; {refusals} refused runs and requests; {sum(errors.values())} ended by an error")
    for status, n in sorted(statuses.items()):
        if status != 200:
            print(f"                     {n} with " + (f"status {status}" if status else "no response"))
    for error, n in errors.most_common(5):
        print(f"                     {n} times: {error}")
    print(f"step time            {1000 * without:.3f} ms without clients")
    print(f"ratio of step times  {math.exp(mean):.4f} with clients, 95 % interval {math.exp(mean - half):.4f} to {math.exp(mean + half):.4f}, {len(logs)} pairs of blocks")
    print(f"CPU time of server   {cpu[True][0]:.2f} s in {cpu[True][1]:.0f} s with clients, {cpu[False][0]:.2f} s in {cpu[False][1]:.0f} s without")
    print(f"delay of a record    p50 {ms(delays, 0.5)}, p99 {ms(delays, 0.99)}, from its write to its arrival; {len(delays)} arrivals, "
          f"{sum(map(math.isinf, delays))} later than {LATE:g} s")
    if loads:
        print(f"time of a request    p50 {ms(loads, 0.5)}, p99 {ms(loads, 0.99)}, {len(loads)} requests")
    return refused + refusals + sum(errors.values())


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--binary", default="./hetero-train")
    p.add_argument("--clients", type=int, default=1000)
    p.add_argument("--load", choices=["page", "stream"], default="page", help="what a client does (default: page)")
    p.add_argument("--block", type=float, default=30, help="length of a block in s (default: 30)")
    p.add_argument("--pairs", type=int, default=6,
                   help="pairs of blocks with and without clients, 2 to 16 (default: 6)")
    p.add_argument("--train-cpus", default="", help="CPUs of the training, as taskset -c takes them")
    p.add_argument("--server-cpus", default="",
                   help="CPUs of the server (default: those of the training, where it has a low priority)")
    p.add_argument("--client-cpus", default="", help="CPUs of the clients")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="further setting of the training")
    p.add_argument("--as-clients", nargs=2, metavar=("PORT", "RUN"), help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.clients < 1 or not 2 <= a.pairs <= 16 or a.block < SETTLE + LATE + 2:
        p.error(f"want at least 1 client, 2 to 16 pairs, and blocks of at least {SETTLE + LATE + 2:g} s")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    want = 3 * a.clients + 100
    if soft < want:
        if hard != resource.RLIM_INFINITY and hard < want:
            p.error(f"the limit of open files is {hard}, want {want}: ulimit -n {want}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (want, hard))
    if a.as_clients:
        asyncio.run(clients(int(a.as_clients[0]), a.as_clients[1], a.load, a.clients))
        return
    if a.client_cpus:
        subprocess.run(["taskset", "-cp", a.client_cpus, str(os.getpid())], check=True, stdout=subprocess.DEVNULL)
        for cpu in os.sched_getaffinity(0):
            # ends with this program
            multiprocessing.Process(target=keep_awake, args=(cpu, os.getpid()), daemon=True).start()

    folder, port = tempfile.mkdtemp(prefix="dashboard_clients_"), free_port()
    settings = ["model.name=simple_cnn", "data.dataset=synthetic_image", "data.image_size=32", "data.batch_size=64",
                "train.steps=100000000",
                "experiment.name=run", f"experiment.output_dir={folder}", f"parallel.ranks={a.ranks}",
                f"dashboard.port={port}",
                "balance.policy=none", *a.set]
    train = subprocess.Popen(
        pinned(a.train_cpus, [a.binary, "train", "--dashboard", *(x for s in settings for x in ("--set", s))]),
                             stdout=subprocess.DEVNULL, stderr=open(os.path.join(folder, "messages"), "wb"))
    try:
        blocks, writes, records = measure(a, folder, port, train)
    finally:
        if train.poll() is None:
            train.kill()
            train.wait()
        shutil.rmtree(folder, ignore_errors=True)
    if n := report(a, blocks, writes, records):
        fail(f"the server refused or ended {n} clients or requests")


if __name__ == "__main__":
    main()
