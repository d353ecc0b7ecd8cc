"""The parts of the headlines: what each measures, the code that it measures, and the rows that it gives.

A part has a name, the minutes that it takes on two cores, the limit of its time, the paths of its code, and a function that
measures. The function gets the run (see main.py) and returns rows: dictionaries with the fields of a line of the table.
"""

import json
import os
import re
import shutil
import statistics
import types

TRAINING = ["engine/device", "engine/plan", "engine/graph", "engine/optim", "engine/train", "engine/tensor",
            "cmd/hetero-train/internal/command/bench",
            # fmt: skip
            "scripts/compare_pytorch.sh", "scripts/peers/pytorch_step.py", "scripts/peers/summary.py",
            "third_party/cmake", "go.mod"]
# Code in these folders that no training executes: the devices in Go, the suites of conformance, and bench data.
TRAINING += [":(exclude)engine/device/internal/bookkeeping", ":(exclude)engine/device/devicetest",
             ":(exclude)engine/collective/collectivetest",
             ":(exclude)cmd/hetero-train/internal/command/bench/data.go"]
RANKS = TRAINING + ["engine/collective", "engine/gradsync", "cmd/hetero-train/internal/run",
                    "cmd/hetero-train/internal/session", "scripts/peers/ranks_step.py"]
BALANCE = [":(glob)balancer/*.go", "balancer/divide", "balancer/estimate", "balancer/hybrid", "balancer/internal",
           "balancer/policies", "balancer/straggler", "cmd/hetero-train/internal/rebalance", "engine/collective",
           "engine/train", "engine/gradsync", "scripts/lab.sh", ":(exclude)engine/collective/collectivetest"]
LOADING = ["engine/data/jpeg", "engine/data/images", ":(glob)engine/data/*.go",
           "cmd/hetero-train/internal/command/bench/data.go"]
SCHEDULE = ["balancer/scheduler", "cmd/hetero-train/internal/dqn", "cmd/hetero-train/internal/command/schedule"]


def row(what, ours, peer, ratio, low, high, share=None, command=""):
    return {"what": what, "ours": ours, "peer": peer, "ratio": ratio, "low": low, "high": high, "share": share,
            "command": command}


def figure(v):
    return f"{v:,.0f}" if v >= 100 else f"{v:.1f}" if v >= 10 else f"{v:.2f}"


def compared(what, unit, *options):
    """A part that compares training with PyTorch in f32 and bf16."""
    shown = "scripts/compare_pytorch.sh " + " ".join(options)

    def measure(run):
        output = run.file("compare.json")
        run.start("scripts/compare_pytorch.sh", *run.few(options), "--binary", run.binary, "--skip-slower", "--output",
                  output, env={"PYTHON": run.python})
        with open(output) as f:
            result = json.load(f)
        rows = []
        for c in result["comparisons"]:
            speeds = dict(c["samples_per_second"])
            ours, (mode, peer) = speeds.pop("ours"), max(speeds.items(), key=lambda item: item[1])
            if result["peer_malloc"] != "tcmalloc":
                raise SystemExit("headlines: PyTorch ran without tcmalloc, which it needs for its best speed: apt-get install libtcmalloc-minimal4")
            share = c["share_of_peak"]
            if share is None:  # of several ranks: the operations of a sample and the peak come from a run of one rank
                share = ours / 1e9 * run.facts(options, c["precision"], "flops_per_sample") / run.facts(
                    options, c["precision"], "peak_gflops")
            name = f"PyTorch {result['peer_version'].split('+')[0]} ({mode})"
            rows.append(row(f"{what}, {c['precision']}, {unit}", figure(ours), f"{name}: {figure(peer)}",
                            c["ratio_median"], c["ratio_min"], c["ratio_max"], share, shown))
        return rows

    return measure


def against_oracle(what, config, batch, rounds, *settings):
    """A part that compares policy hybrid with the best fixed shares, on four ranks with CPU quotas."""
    flags = ["--cpu", "0.8,0.4,0.2,0.2", "--pin", "0,1,1,1"]

    def measure(run):
        if os.geteuid() != 0:
            raise SystemExit("headlines: scripts/lab.sh needs root")
        name = f"headlines_{run.part}"
        shutil.rmtree(run.file("runs"), ignore_errors=True)  # of an earlier or interrupted measurement
        keys = {"experiment.name": name, "experiment.output_dir": run.file("runs"), "data.dataset": "synthetic_image",
                "data.num_samples": 50000, "data.image_size": 32,
                # fmt: skip
                "data.batch_size": batch, "model.num_classes": 10, "model.batch_norm": "ghost", "model.ghost_group": 4,
                "balance.curve_cache": "off"}
        command = ["scripts/lab.sh", *flags, "--", run.binary, "balance", "compare", "--rounds", "3" if run.trial
                   else str(rounds), "--policies", "hybrid,oracle", "-c", config]
        for key, value in keys.items():
            command += ["--set", f"{key}={value}"]
        run.start(*command)
        with open(run.log) as f:
            if "CPUs are real" not in f.read():
                raise SystemExit(f"headlines: part {run.part}: scripts/lab.sh had no control groups, so the quotas were not real: measure on a machine with control groups")
        with open(os.path.join(run.file("runs"), f"{name}-balance_compare", "logs", "balance_compare.json")) as f:
            results = {r["policy"]: r for r in json.load(f)["results"]}
        hybrid, oracle, share = results["hybrid"], results["oracle"], results["hybrid"]["share_of_oracle"]
        shown = f"`balance compare --rounds {rounds}` in `scripts/lab.sh {' '.join(flags)}`"
        return [row(what, figure(batch / hybrid["step_seconds"]),
                    f"best fixed shares (oracle): {figure(batch / oracle['step_seconds'])}", share["ratio"],
                    share["low"], share["high"], None, shown)]

    return measure


def whole_runs(run):
    """All policies on four unequal ranks. The figures of all policies are a table of their own."""
    script = "scripts/five_figures.sh"
    if not os.path.exists(script):
        raise SystemExit(f"headlines: {script} not found")
    folder = run.file("five_figures")
    few = ["--", "--seeds", "1", "--steps", "60", "--solo-steps", "60"] if run.trial else []
    run.start(script, "--fresh", "--binary", run.binary, "--output-dir", folder, *few)
    speeds = {}
    for name in os.listdir(os.path.join(folder, "runs")):
        if found := re.fullmatch(r"(none|hybrid)_.*_four-unequal_seed(\d+)", name):
            with open(os.path.join(folder, "runs", name, "results", "result.json")) as f:
                speeds.setdefault(found[1], {})[found[2]] = json.load(f)["samples_per_second"]
    ratios = [speeds["hybrid"][seed] / speeds["none"][seed] for seed in sorted(speeds["none"])]
    median = {policy: statistics.median(of.values()) for policy, of in speeds.items()}
    return [row("Whole runs, four unequal ranks, policy hybrid, samples/s", figure(median["hybrid"]),
                f"equal shares (policy none): {figure(median['none'])}",
                statistics.median(ratios), min(ratios), max(ratios), None, f"{script} --fresh")]  # fmt: skip


def photographs(run):
    """A folder of 96 synthetic photographs of 500x375 in two classes: smooth shapes with fine texture, JPEG 4:2:0,
    quality 90."""
    folder = run.images or os.path.join(run.folder, "photographs")
    if not os.path.isdir(folder):
        run.start(run.python, "-c", PHOTOGRAPHS, folder)
    return folder


PHOTOGRAPHS = """
import os, sys
import numpy as np
from PIL import Image
for i in range(96):
    random = np.random.default_rng(i)
    coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize((500, 375), Image.BICUBIC)
    pixels = np.asarray(coarse, dtype=np.float32) + random.normal(0, 9, (375, 500, 1))
    folder = os.path.join(sys.argv[1] + ".part", "ab"[i % 2])
    os.makedirs(folder, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(os.path.join(folder, f"{i:03}.jpg"), quality=90, subsampling=2)
os.rename(sys.argv[1] + ".part", sys.argv[1])
"""


def loading(run):
    output = run.file("loader.json")
    options = ["--workers", "1", "--seconds", "6", "--rounds", "3"]
    run.start(run.python, "scripts/compare_loader.py", photographs(run), "--program", run.binary, *run.few(options),
              "--output", output)
    with open(output) as f:
        r = json.load(f)
    return [row("Decode, random resized crop to 224 and flip, images per CPU second", figure(r["ours"]),
                f"torchvision DataLoader ({r['peer']}): {figure(r['theirs'])}",
                # fmt: skip
                r["ratio"], r["low"], r["high"], None, "scripts/compare_loader.py FOLDER " + " ".join(options))]


def decoding(run):
    text = run.start("scripts/decode_speed.sh", photographs(run), "5",
                     env={"HETERO_LIB_DIR": os.path.abspath("build/lib")})
    rounds = [(float(a), float(b)) for a, b in re.findall(r"alone ([\d.]+), the loader's decoder ([\d.]+);", text)]
    ratios = [ours / own for own, ours in rounds]
    return [row("JPEG decoding alone, images per CPU second", figure(statistics.median(b for _, b in rounds)),
                f"libturbojpeg in a loop: {figure(statistics.median(a for a, _ in rounds))}",
                # fmt: skip
                statistics.median(ratios), min(ratios), max(ratios), None, "scripts/decode_speed.sh FOLDER 5")]


def scheduling(run):
    """Policies on lists of jobs that no training has used, compared with the usual policy of clusters (EASY)."""
    given = ["--seed", "10000", "--seeds", "2" if run.trial else "30", "--jobs", "300", "--policy", "easy,gang,dqn",
             "--baseline", "easy"]
    text = run.start(run.binary, "schedule", "compare", *given, "--json")
    policies = {p["policy"]: p for p in json.loads(text.splitlines()[-1])["policies"]}
    command, rows = "hetero-train schedule compare " + " ".join(given), []
    for policy, peer in (("gang", "easy"), ("dqn", "easy"), ("dqn", "gang")):
        ours, theirs = ([r["completion_s"] for r in policies[name]["runs"]] for name in (policy, peer))
        ratios = [b / a for a, b in zip(ours, theirs)]
        rows.append(row(f"Scheduling, default cluster, policy {policy}, mean completion time, s",
                        figure(statistics.mean(ours)), f"policy {peer}: {figure(statistics.mean(theirs))}",
                        statistics.median(ratios), min(ratios), max(ratios), None, command))  # fmt: skip
    ours, theirs = (max(g["worst_s"] for g in policies[name]["waits"]) for name in ("gang", "easy"))
    rows.append(row("Scheduling, default cluster, policy gang, longest wait of all jobs, s", figure(ours),
                    f"policy easy: {figure(theirs)}", theirs / ours, None, None, None, command))
    return rows


def simulator(run):
    text = run.start("go", "test", "-run", "xxx", "-bench", "Policies/fcfs", "-count", "3",
                     "./balancer/scheduler/simulate")
    rates = [float(x) for x in re.findall(r"([\d.e+]+) decisions/cpu-s", text)]
    return [row("Scheduling simulator, policy fcfs, decisions per second of CPU time",
                f"{statistics.median(rates):,.0f}", "", None, min(rates), max(rates), None,
                "go test -run xxx -bench Policies/fcfs -count 3 ./balancer/scheduler/simulate")]  # fmt: skip


def part(name, minutes, paths, measure, simulated=False):
    """simulated: whether the figures are independent of the machine and its load."""
    return types.SimpleNamespace(name=name, minutes=minutes, limit=5 * minutes + 10, paths=paths, measure=measure,
                                 simulated=simulated)


BERT, GPT2, RESNET = ["engine/models/bert"], ["engine/models/gpt2"], ["engine/models/resnet"]

def peaks(run):
    """The limits of the machine, which are a line above the table."""
    return [json.loads(run.start(run.binary, "bench", "peak", "--device", "cpu", "--json").splitlines()[-1])]


# Parts with the most important figures come first.
PARTS = [
    part("peak", 0.3, ["engine/device", ":(exclude)engine/device/devicetest"], peaks),
    part("resnet224", 7, TRAINING + RESNET, compared("ResNet-50 training, 224x224, batch 32", "images/s",
                                                     *"--model resnet50 --image-size 224 --batch-size 32 --rounds 3 --steps 3 --warmup 1".split())),
    part("gpt2_256", 6.5, TRAINING + GPT2, compared("GPT-2 training, 124 M parameters, 4 x 256 tokens, AdamW",
                                                    "samples/s",
                                                    *"--model gpt2 --seq-len 256 --batch-size 4 --rounds 3 --steps 3 --warmup 1".split())),
    part("bert", 6, TRAINING + BERT, compared("BERT-base training, 8 x 128 tokens, AdamW", "samples/s",
                                              *"--model bert_base --seq-len 128 --batch-size 8 --rounds 3 --steps 3 --warmup 1".split())),
    part("balance_cnn", 3, BALANCE,
         against_oracle("Hybrid balancing, four ranks with CPU quotas, simple_cnn, batch 512, images/s",
                        "configs/simple_cnn.toml", 512, 15)),
    part("balance_resnet", 4, BALANCE,
         against_oracle("Hybrid balancing, four ranks with CPU quotas, ResNet-50, batch 256, images/s",
                        "configs/resnet50.toml", 256, 12)),
    part("whole_runs", 6, BALANCE + ["scripts/run_benchmark.sh", "scripts/five_figures.sh", "profiler/analysis"],
         whole_runs),
    part("resnet32", 5, TRAINING + RESNET, compared("ResNet-50 training, 32x32, batch 128", "images/s",
                                                    *"--model resnet50 --image-size 32 --batch-size 128 --rounds 3 --steps 8 --warmup 2".split())),
    part("ranks32", 2.5, RANKS + RESNET,
         compared("ResNet-50, two ranks (PyTorch: DistributedDataParallel over Gloo), 32x32, batch 128", "images/s",
                  *"--ranks 2 --modes eager --image-size 32 --batch-size 128 --rounds 3 --steps 10".split())),
    part("ranks224", 4, RANKS + RESNET,
         compared("ResNet-50, two ranks (PyTorch: DistributedDataParallel over Gloo), 224x224, batch 32", "images/s",
                  *"--ranks 2 --modes eager --image-size 224 --batch-size 32 --rounds 3 --steps 3 --warmup 1".split())),
    part("gpt2_1024", 5.5, TRAINING + GPT2, compared("GPT-2 training, 124 M parameters, 1 x 1024 tokens, AdamW",
                                                     "samples/s",
                                                     *"--model gpt2 --seq-len 1024 --batch-size 1 --rounds 3 --steps 2 --warmup 1".split())),
    part("loading", 1.2, LOADING + ["scripts/compare_loader.py"], loading),
    part("decoding", 0.6, LOADING + ["scripts/decode_speed.sh"], decoding),
    part("scheduling", 0.5, SCHEDULE, scheduling, simulated=True),
    part("simulator", 0.4, SCHEDULE, simulator),
]
