"""Measures the headlines of BENCHMARKS.md. scripts/headlines.sh starts this program and describes it."""

import argparse
import datetime
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import quiet
import table
from parts import PARTS

FOLDER = "build/headlines"


class Run:
    """One measurement of a part."""

    def __init__(self, part, a, limit):
        self.part, self.folder, self.binary, self.python, self.images = part.name, os.path.abspath(
            FOLDER), a.binary, a.python, a.images
        self.deadline, self.log = time.monotonic() + limit, self.file("log")
        self.known, self.trial = {}, a.trial
        open(self.log, "w").close()

    def file(self, name):
        return os.path.join(self.folder, f"{self.part}.{name}")

    def start(self, *command, env=None):
        """Runs a command to its end and returns its standard output. All its processes end with it."""
        with open(self.log, "a") as log:
            log.write(f"$ {' '.join(map(str, command))}\n")
            log.flush()
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
                                       env=os.environ | (env or {}))
            try:
                out, _ = process.communicate(timeout=max(1, self.deadline - time.monotonic()))
            except BaseException as err:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.communicate(timeout=15)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.communicate()
                if isinstance(err, subprocess.TimeoutExpired):
                    raise SystemExit(f"headlines: part {self.part}: out of time: see {self.log}")
                raise
            log.write(out)
        if process.returncode != 0:
            raise SystemExit(f"headlines: part {self.part}: exit code {process.returncode}: see {self.log}")
        return out

    def few(self, options):
        """The options of a script. A trial has one round, one step and one second."""
        options = list(options)
        if self.trial:
            for name in ("--rounds", "--steps", "--warmup", "--seconds"):
                if name in options:
                    options[options.index(name) + 1] = "1"
        return options

    def facts(self, options, precision, key):
        """A fact about a model of compare_pytorch.sh, from a run of one rank."""
        if precision not in self.known:
            given = dict(zip(options[::2], options[1::2]))
            chosen = [x for name in ("--model", "--image-size", "--seq-len", "--batch-size") if name in given
                      for x in (name, given[name])]
            out = self.start(self.binary, "bench", "train", "--device", "cpu", *chosen, "--precision", precision,
                             "--steps", "1", "--warmup", "0", "--json")
            self.known[precision] = json.loads(out.splitlines()[-1])
        return self.known[precision][key]


def code_hash(paths):
    """The hash of the code of a part at HEAD and of the parts, and whether the working tree differs from HEAD there."""
    files = table.git("ls-files", "-s", "--", *table.code(paths), "scripts/headlines/parts.py").stdout
    dirty = table.git("status", "--porcelain", "--", *table.code(paths)).stdout
    return hashlib.sha256(files.encode()).hexdigest()[:16], bool(dirty)


def machine():
    fields = {}
    with open("/proc/cpuinfo") as f:
        for text in f:
            key, _, value = text.partition(":")
            fields.setdefault(key.strip(), value.strip())
    with open("/proc/meminfo") as f:
        memory = int(f.readline().split()[1]) / 2**20
    where = "KVM guest, " if "hypervisor" in fields.get("flags", "") else ""
    return f"{fields.get('model name', 'unknown CPU')} (family {fields.get('cpu family')} model {fields.get('model')}), {where}{os.cpu_count()} CPUs, {memory:.0f} GiB"


def stored(part):
    try:
        with open(os.path.join(FOLDER, part.name + ".json")) as f:
            return json.load(f)
    except (OSError, ValueError):
        return None


def usable(part, result, a):
    if not result or result["trial"] != a.trial or result["code"] != code_hash(part.paths)[0] or result[
            "dirty"] and not a.allow_load:
        return False
    return part.simulated or result["machine"] == machine() and (result["quiet"] or a.allow_load)


def minutes(part):
    """The time that a part will take: that of its last run, or an estimate for two cores."""
    result = stored(part)
    return result["seconds"] / 60 if result and not result["trial"] else part.minutes


def measure(part, a):
    """Measures a part and stores the result. Returns None if it failed."""
    hashed, dirty = code_hash(part.paths)
    if dirty and not a.allow_load:
        raise SystemExit(f"headlines: part {part.name}: its code has changes that are not committed: commit them first")
    load, who = (0, "") if part.simulated else quiet.before()
    if load > quiet.LIMIT and not a.allow_load:
        raise SystemExit(f"headlines: other processes keep {load:.2f} CPUs busy, want at most {quiet.LIMIT}: {who}. Stop them, at idle priority too, and repeat the command; finished parts are kept")
    watch, begun, run = quiet.Watch(), time.monotonic(), Run(part, a, 60 * part.limit)
    try:
        rows = part.measure(run)
    except SystemExit as err:
        print(err, file=sys.stderr)
        return None
    load = 0 if part.simulated else watch.load()
    result = {
        "part": part.name, "commit": table.git("rev-parse", "--short=8", "HEAD").stdout.strip(), "code": hashed,
        "dirty": dirty, "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": machine(), "seconds": time.monotonic() - begun, "load": load, "trial": a.trial,
        "quiet": load <= quiet.LIMIT, "rows": rows,
    }  # fmt: skip
    if not result["quiet"]:
        print(
            f"headlines: part {part.name}: other processes kept {load:.2f} CPUs busy during the measurement: {watch.others()}",
            file=sys.stderr)
    with open(os.path.join(FOLDER, part.name + ".json"), "w") as f:
        json.dump(result, f, indent=1)
    return result


def arguments():
    names = [p.name for p in PARTS]
    p = argparse.ArgumentParser(prog="scripts/headlines.sh", description="Measure the headlines of BENCHMARKS.md.")
    p.add_argument("--parts", default=",".join(names), help="comma-separated list of: " + " ".join(names) + " (all)")
    p.add_argument("--write", action="store_true", help="replace the rows of BENCHMARKS.md")
    p.add_argument("--again", action="store_true", help="measure parts again that have a valid result")
    p.add_argument("--allow-load", action="store_true",
                   help="measure although other processes use the CPUs, or code is not committed; excludes --write")
    p.add_argument("--trial", action="store_true",
                   help="test the parts with one short round each; implies --allow-load")
    p.add_argument("--plan", action="store_true", help="print the parts with their times, and measure nothing")
    p.add_argument("--check", action="store_true",
                   help="check that no figure of BENCHMARKS.md is stale; exit code 1 if one is")
    p.add_argument("--mark", action="store_true", help='write "code changed since" next to stale figures')
    p.add_argument("--binary", help="use this program, without running make first")
    p.add_argument("--python", default=os.environ.get("PYTHON", "python3"),
                   help="a Python with torch, torchvision and transformers (PYTHON, or python3)")
    p.add_argument("--images",
                   help="a folder of class folders with JPEG files, for parts loading and decoding (generated)")
    a = p.parse_args()
    a.parts = [x for x in a.parts.split(",") if x]
    for x in a.parts:
        if x not in names:
            p.error(f"--parts: got {x!r}, want a list of: {' '.join(names)}")
    a.allow_load |= a.trial
    if a.write and a.allow_load:
        p.error("--write: figures of a busy machine are no headlines: want --write without --allow-load")
    return a


def build(a):
    if a.binary is None:
        with open(os.path.join(FOLDER, "make.log"), "w") as log:
            if subprocess.run(["make"], stdout=log, stderr=log).returncode != 0:
                raise SystemExit(f"headlines: make failed: see {log.name}")
        a.binary = "./hetero-train"
    if not os.access(a.binary, os.X_OK):
        raise SystemExit(f"headlines: no program {a.binary}")
    a.binary = os.path.abspath(a.binary)


def main():
    a = arguments()
    if a.check or a.mark:
        wrong = table.faults(a.mark)
        print("\n".join(wrong) or "no figure is stale")
        return bool(wrong)
    os.makedirs(FOLDER, exist_ok=True)
    parts = [p for p in PARTS if p.name in a.parts]
    todo = [p for p in parts if a.again or not usable(p, stored(p), a)]
    for p in parts:
        print(f"{p.name:15} {minutes(p):5.1f} min, limit {p.limit:4.1f}" if p in todo else f"{p.name:15}  measured",
              file=sys.stderr)
    print(f"{len(todo)} parts to measure, about {sum(map(minutes, todo)):.0f} minutes", file=sys.stderr)
    if a.plan:
        return 0
    if todo:
        build(a)
    failed = []
    for i, p in enumerate(todo):
        print(
            f"[{i + 1}/{len(todo)}] {p.name}: about {minutes(p):.1f} min, {sum(map(minutes, todo[i:])):.0f} min to go",
            file=sys.stderr, flush=True)
        if not usable(p, measure(p, a), a):
            failed.append(p.name)
    lines, sources = {}, {}
    for p in parts:
        result = stored(p)
        if p.name != "peak" and usable(p, result, a):
            lines[p.name] = [table.line(r, p.name, result) for r in result["rows"]]
            sources[p.name] = result["rows"][0]["command"]
    print(table.HEADER + "\n".join(x for of in lines.values() for x in of))
    print("\nMachine: " + about(a))
    print("".join(f"\n- `{name}`: `{command.strip('`')}`" for name, command in sources.items()))
    if a.write and lines:
        table.replace(lines, about(a))  # simulated parts leave the machine as it is
        print(f"headlines: wrote the rows of {len(lines)} parts to {table.PAGE}", file=sys.stderr)
    if failed:
        print(
            f"headlines: {len(failed)} parts have no valid result: {', '.join(failed)}; the same command measures them again",
            file=sys.stderr)
    return bool(failed)


def about(a):
    """The machine, and its measured limits."""
    part = next(p for p in PARTS if p.name == "peak")
    peak, text = stored(part), machine()
    if usable(part, peak, a):
        limits = peak["rows"][0]
        text += "; " + ", ".join(f"{name} {limits[key]:,.0f} {unit}" for name, key,
                                 unit in (("f32", "f32_gflops", "GFLOP/s"), ("bf16", "bf16_gflops", "GFLOP/s"),
                                          ("memory read", "read_gbytes_per_second", "GB/s")) if key in limits)
    return text


def stop(*_):
    raise KeyboardInterrupt


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        # also if a shell started this program in the background, with SIGINT ignored
        signal.signal(number, stop)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("headlines: interrupted; the same command continues with the part that was interrupted", file=sys.stderr)
        sys.exit(130)
