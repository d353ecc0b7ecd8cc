#!/usr/bin/env python3
"""growth.py [--write PAGE] [PART...]: measures how CPU time and memory grow with the size of a run, a cluster or a folder.

Each row measures one size. The exponent compares a row with the row before it: log(time ratio) / log(size ratio). 0 is
constant, 1 linear, 2 quadratic. The time is CPU time of all processes, because other programs change it less than
elapsed time. The memory is the peak of the largest process. All parts together take about four minutes of CPU time on
two cores.

The program is ./hetero-train or $HETERO_TRAIN. --write replaces the tables of the measured parts in PAGE (docs/benchmarks/growth.md).
Exit codes: 0 done; 1 a command failed; 2 bad arguments.
"""
import argparse, json, math, os, resource, shutil, subprocess, sys, tempfile, time

PROGRAM = os.path.abspath(os.environ.get("HETERO_TRAIN", "hetero-train"))
LIMIT = 600  # seconds of one command
TINY = ["model.channels=[3,4]", "data.image_size=8", "device.kind=cpu", "device.threads=1", "checkpoint.interval_steps=0",
        "checkpoint.interval_seconds=0", "train.epochs=0", "train.eval_interval=0", "profile.enabled=true"]


def run(arguments, folder, text=None):
    """Runs the program. Returns its CPU seconds, the peak memory of its largest process in MiB, and its output."""
    code = ("import resource, subprocess, sys; done = subprocess.run(sys.argv[2:], stdin=sys.stdin, stdout=subprocess.PIPE);"
            "sys.stdout.buffer.write(done.stdout); used = resource.getrusage(resource.RUSAGE_CHILDREN);"
            "open(sys.argv[1], 'w').write(f'{used.ru_utime + used.ru_stime} {used.ru_maxrss / 1024}');"
            "sys.exit(done.returncode)")
    figures = os.path.join(folder, "figures")
    done = subprocess.run([sys.executable, "-c", code, figures, PROGRAM, *arguments], cwd=folder, input=text, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)
    if done.returncode:
        sys.exit(f"growth: {' '.join(arguments)}: exit code {done.returncode}: {done.stderr[-2000:]}")
    with open(figures) as file:
        seconds, memory = map(float, file.read().split())
    return seconds, memory, done.stdout


def train(folder, name, ranks, steps, *more):
    sets = TINY + [f"parallel.ranks={ranks}", f"train.steps={steps}", f"data.batch_size={2 * ranks}",
                   f"data.num_samples={4 * ranks}", f"experiment.name={name}",
                   f"experiment.output_dir={folder}/runs", *more]
    arguments = ["train", "--model", "simple_cnn", "--dataset", "synthetic_image"]
    for one in sets:
        arguments += ["--set", one]
    seconds, memory, _ = run(arguments, folder)
    return seconds, memory


def ranks(folder, *more):
    for n in (2, 8, 32, 64):
        steps = 10 * max(64 // n, 1)  # so that the steps take longer than the noise of the start
        start, _ = train(folder, f"start{n}", n, 1, *more)
        whole, memory = train(folder, f"steps{n}", n, 1 + steps, *more)
        yield n, [("start, CPU s", start), ("a step, CPU ms", 1e3 * max(whole - start, 1e-4) / steps),
                  ("largest process, MiB", memory)]


def network(folder):
    yield from ranks(folder, "parallel.shared_memory=off")


def simulated(folder):
    for n in (100, 1000, 10000, 100000):
        curves = "rank,batch,seconds\n" + "".join(
            f"{r},{b},{1e-3 * (1 + r % 5) * (0.5 + b / 8):.6f}\n" for r in range(n) for b in (1, 8, 32, 64))
        common = ["balance", "simulate", "--curves", "-", "--global-batch", str(16 * n), "--json"]
        few, _, _ = run([*common, "--steps", "40"], folder, curves)
        many, memory, out = run([*common, "--steps", "80"], folder, curves)
        held = sum(part["bytes"] for part in json.loads(out)["memory"])
        yield n, [("a decision, CPU ms", 1e3 * max(many - few, 1e-4) / 4), ("process, MiB", memory),
                  ("its account, MiB", held / 2**20)]


def jobs(folder):
    for n in (200, 1000, 5000):
        row = []
        for policy in ("fcfs", "gang"):
            seconds, memory, _ = run(["schedule", "simulate", "--policy", policy, "--jobs", str(n), "--json"], folder)
            row += [(f"{policy}, CPU s", seconds)]
        yield n, [*row, ("gang, MiB", memory)]


def gpus(folder):
    """1,000 jobs of one to four GPUs; they arrive faster on a larger cluster, so its load is equal."""
    kinds = {"small": {"V100": 8, "T4": 4, "K80": 1.5}, "large": {"V100": 3, "T4": 1, "K80": 0.4}}
    for n in (16, 160, 1000, 8000):
        rows = [{"table": "gpu_types", "name": name, "memory": "16 GiB", "bandwidth": "500 GB/s"}
                for name in kinds["small"]]
        rows += [{"table": "machines", "name": f"m{i}", "cpus": 32, "memory": "256 GiB", "network": "10 Gbit/s",
                  "gpu_type": ("V100", "T4", "K80")[i % 3], "gpus": 4} for i in range(n // 4)]
        for kind, speeds in kinds.items():
            rows.append({"table": "kinds", "name": kind, "class": "learning", "gpu_memory": "9 GiB", "save": 5, "load": 15})
            rows += [{"table": "speeds", "kind": kind, "gpu_type": gpu, "gpus": g, "speed": round(speed * g ** 0.9, 3)}
                     for gpu, speed in speeds.items() for g in (1, 2, 4)]
        rows += [{"table": "jobs", "name": f"j{i}", "kind": ("small", "large")[i % 2],
                  "arrival": round(9600 * i / n, 3), "work": 2000 + 37 * (i % 101), "gpus": (1, 2, 1, 4)[i % 4],
                  "cpus": 4, "memory": "16 GiB", "network": 0, "priority": 0.5} for i in range(1000)]
        with open(f"{folder}/gpus.jsonl", "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        row = []
        for policy in ("fcfs", "gang"):
            arguments = ["schedule", "simulate", "--policy", policy, "--input", "gpus.jsonl", "--json"]
            seconds, memory, _ = run(arguments, folder)
            row += [(f"{policy}, CPU s", seconds)]
        yield n, [*row, ("gang, MiB", memory)]


def folders(folder):
    train(folder, "run0", 1, 3)
    made = 1
    for n in (10, 100, 1000):
        for i in range(made, n):
            shutil.copytree(f"{folder}/runs/run0", f"{folder}/runs/run{i}")
        made = n
        seconds, memory, out = run(["runs", "--input-dir", f"{folder}/runs", "--json"], folder)
        if len(out.splitlines()) != n:
            sys.exit(f"growth: runs listed {len(out.splitlines())} runs, want {n}")
        yield n, [("runs, CPU s", seconds), ("memory, MiB", memory)]


def steps(folder):
    for n in (100, 1000, 10000):
        train(folder, f"records{n}", 1, n)
        row = []
        for command in ("analyze", "status"):
            seconds, memory, _ = run([command, f"{folder}/runs/records{n}"], folder)
            row += [(f"{command}, CPU s", seconds), (f"{command}, MiB", memory)]
        yield n, row


def layers(folder):
    for n in (12, 48, 192, 384):
        arguments = ["plan", "--samples", "1"]
        for one in ("model.name=gpt2", f"model.layers={n}", "model.embedding_size=32", "model.heads=1",
                    "model.vocabulary_size=64", "data.dataset=synthetic_text", "device.kind=cpu"):
            arguments += ["--set", one]
        seconds, memory, _ = run(arguments, folder)
        yield n, [("plan, CPU s", seconds), ("memory, MiB", memory)]


PARTS = {
    "ranks": ("Ranks of one machine, shared memory", "Ranks", ranks),
    "network": ("Ranks of one machine, over TCP", "Ranks", network),
    "simulated": ("Ranks of `balance simulate`, policy hybrid", "Ranks", simulated),
    "jobs": ("Jobs of `schedule simulate`, 16 GPUs", "Jobs", jobs),
    "gpus": ("GPUs of `schedule simulate`, 1,000 jobs at equal load", "GPUs", gpus),
    "folders": ("Runs in a folder, `runs`", "Runs", folders),
    "steps": ("Steps of one run, `analyze` and `status`", "Steps", steps),
    "layers": ("Transformer blocks, `plan`", "Blocks", layers),
}


def table(part):
    """Measures a part. Returns a table of Markdown."""
    title, unit, measure = PARTS[part]
    lines, before = [], None
    with tempfile.TemporaryDirectory(prefix="hetero-growth-") as folder:
        for size, figures in measure(folder):
            if not lines:
                heads = [text for name, _ in figures for text in (name, "exponent")]
                lines = ["| " + " | ".join([unit, *heads]) + " |", "|" + "---|" * (1 + len(heads))]
            cells = [f"{size:,}"]
            for i, (_, value) in enumerate(figures):
                power = "" if before is None else \
                    f"{math.log(value / before[1][i][1]) / math.log(size / before[0]):.2f}"
                cells += [f"{value:.3g}" if value < 1000 else f"{value:,.0f}", power]
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], file=sys.stderr, flush=True)
            before = size, figures
    return f"## {title}\n\n" + "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", metavar="PAGE", help="replace the tables in this page")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS) + "; default: all")
    given = parser.parse_args()
    if unknown := [p for p in given.parts if p not in PARTS]:
        parser.error(f"unknown part {unknown[0]!r}, want {', '.join(PARTS)}")
    if not os.access(PROGRAM, os.X_OK):
        parser.error(f"{PROGRAM} is not a program: run make, or set HETERO_TRAIN")
    page = None
    for part in given.parts or PARTS:
        load = os.getloadavg()[0]
        begun = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = table(part)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = used.ru_utime + used.ru_stime - begun.ru_utime - begun.ru_stime
        text += f"\nMeasured on {time.strftime('%Y-%m-%d')} in {spent:.0f} s of CPU time. " \
                f"Load average: {load:.0f} at the start, {os.getloadavg()[0]:.0f} at the end.\n"
        print(text, flush=True)
        if given.write:
            with open(given.write) as file:
                page = file.read()
            begin, end = f"<!-- growth: {part} -->\n", f"<!-- end of {part} -->\n"
            if begin not in page or end not in page:
                sys.exit(f"growth: {given.write} has no marks for {part}: want {begin.strip()} and {end.strip()}")
            head, rest = page.split(begin, 1)
            page = head + begin + text + end + rest.split(end, 1)[1]
            with open(given.write, "w") as file:
                file.write(page)


main()
