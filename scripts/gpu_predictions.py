#!/usr/bin/env python3
"""Prints the predicted times of training steps on GPUs, next to the times measured on an H100.

  scripts/gpu_predictions.py                   # ./hetero-train, all tables
  scripts/gpu_predictions.py --binary PATH

The output is Markdown for docs/benchmarks/gpu.md, section "Predictions". It needs no GPU: "plan --device-model"
predicts the times, and its JSON output contains the measured steps, their settings and all coefficients. All plans
assume 80 GiB of memory and thus have the same launches. With less memory, a plan would recompute activations. GPUs
without bf16 compute in fp16.
"""
import argparse
import collections
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MEASURED = os.path.join(ROOT, "engine", "device", "gpumodel", "testdata", "h100.tsv")
GPUS = [("h100", "H100"), ("a100", "A100"), ("rtx3060", "RTX 3060"), ("gtx1650", "GTX 1650, fp16")]
OTHERS = ["h200", "rtx4090", "rtx3050", "t4"]
SMALL = "--model simple_cnn --dataset synthetic_image"  # a fast plan, for data sheets and coefficients
SGD = ["--set", "optimizer.name=sgd", "--set", "optimizer.momentum=0.9"]


def predicted(binary, settings, gpu, narrow=False, memory=""):
    """The object "prediction" of plan --json."""
    command = [binary, "plan", *settings.split(), *SGD, "--samples", "8", "--device-model", gpu, "--json"]
    if memory:
        command += ["--memory", memory]
    environment = dict(os.environ)
    environment.pop("HETERO_CUDA_NARROW_GRADIENTS", None)
    if narrow:
        environment["HETERO_CUDA_NARROW_GRADIENTS"] = "1"
    run = subprocess.run(command, capture_output=True, text=True, env=environment)
    if run.returncode != 0:
        sys.exit(f"gpu_predictions: {' '.join(command)}: exit code {run.returncode}\n{run.stderr}")
    return json.loads(run.stdout)["prediction"]


def measured(trace, narrow, gap):
    """The measured times by op, s."""
    times = collections.defaultdict(float)
    with open(MEASURED, encoding="utf-8") as lines:
        for line in lines:
            fields = line.rstrip("\n").split("\t")
            if line.startswith("#") or fields[0] != trace:
                continue
            op = fields[1].split(",")[0]
            if op == "conv2d_diff_weights" and ("16 bits" in fields[1]) != narrow:
                continue
            times[op] += float(fields[6]) * 1e-6 + float(fields[3]) * gap
    return times


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def ms(seconds):
    return f"{1e3 * seconds:.2f}" if seconds < 0.1 else f"{1e3 * seconds:,.0f}"


def sheets(small):
    rows = []
    for p in small:
        gpu = p["gpu"]
        rows.append([f"`{gpu['name']}`", gpu["model"].replace("NVIDIA ", ""), gpu["isa"],
                     *(f"{gpu[f'{kind}_flops_per_second'] / 1e12:.4g}" for kind in ("f32", "bf16", "f16")),
                     f"{gpu['memory_bytes_per_second'] / 1e9:,.0f}", gpu["multiprocessors"], gpu["l2_bytes"] >> 20,
                     f"{gpu['memory_bytes'] / 2**30:.2f}",
                     gpu["source"] + ("; assumed: " + gpu["assumption"] if "assumption" in gpu else "")])
    print("Data sheets:\n")
    table(["Name", "Model, NVIDIA", "Architecture", "f32, TFLOP/s", "bf16", "f16", "GB/s", "Multiprocessors", "L2, MiB",
           "Memory, GiB", "Source"], rows)


def steps(works, results, plans):
    """The steps. A cell of a GPU that was not measured contains the limit and the prediction."""
    rows = []
    for work, by_gpu, own in zip(works, results, plans):
        cells = []
        for gpu, _ in GPUS[1:]:
            p = by_gpu[gpu]
            cells.append(f"{ms(p['limit_seconds'])} to {ms(p['step_seconds'])}" +
                         ("" if own[gpu]["fits"] else " (does not fit)"))
        h100, step = by_gpu["h100"], work["measured_seconds"]
        earlier = work["predicted_seconds"]
        error = f"{100 * (earlier / step - 1):+.1f} %"
        if "first_error" in work:
            error += f" (before the correction: {100 * work['first_error']:+.1f} %)"
        rows.append([work["name"], ms(step), ms(earlier), error.replace("-", "−"), ms(h100["step_seconds"]),
                     ms(h100["limit_seconds"]), *cells])
    table(["Step, ms", "H100, measured", "H100, kernels of that time", "error on the H100", "H100, present kernels",
           "H100, limit", *(title for _, title in GPUS[1:])], rows)


def memories(works, plans):
    rows = []
    for work, own in zip(works, plans):
        if not work["narrow_gradients"]:
            rows.append([work["name"], *(f"{own[gpu]['bytes'] / 2**30:.2f} GiB" +
                                         ("" if own[gpu]["fits"] else ": does not fit") for gpu, _ in GPUS)])
    table(["Memory that a plan for the GPU needs", *(title for _, title in GPUS)], rows)


def ops(work, by_gpu):
    trace = work.get("trace", "")
    times = measured(trace, work["narrow_gradients"], by_gpu["h100"]["coefficients"]["gap_seconds"])
    others = {gpu: {o["op"]: o for o in by_gpu[gpu]["ops"]} for gpu, _ in GPUS}
    rows, rest, marked = [], collections.defaultdict(float), False
    for op in by_gpu["h100"]["ops"]:
        cells = [others[gpu][op["op"]] for gpu, _ in GPUS]
        if op["seconds"] < 0.5e-3:
            for key, value in [("launches", op["launches"]), ("bytes", op["bytes"]), ("flops", op["flops"]),
                               ("measured", times[op["op"]]), *((g, o["seconds"]) for (g, _), o in zip(GPUS, cells))]:
                rest[key] += value
            continue
        marked = marked or not all(o["measured"] for o in cells)
        rows.append([f"`{op['op']}`", f"{op['launches']:.0f}", f"{op['bytes'] / 1e9:.2f}", f"{op['flops'] / 1e9:,.0f}",
                     ms(times[op["op"]]) if op["op"] in times else "",
                     *(ms(o["seconds"]) + ("" if o["measured"] else " \\*") for o in cells)])
    rows.append(["the rest", f"{rest['launches']:.0f}", f"{rest['bytes'] / 1e9:.2f}", f"{rest['flops'] / 1e9:,.0f}",
                 ms(rest["measured"]) if trace else "", *(ms(rest[gpu]) for gpu, _ in GPUS)])
    note = "; \\*: a kernel that was not measured on any GPU" if marked else ""
    print(f"{work['name']}, ms per step{note}:\n")
    table(["Op", "Launches", "GB", "GFLOP", "H100, measured", *(title for _, title in GPUS)], rows)


def changes(works, results):
    """Kernels that changed since the measurement: the measured time of the ops that they replaced, the prediction."""
    rows = []
    for work, by_gpu in zip(works, results):
        h100 = by_gpu["h100"]
        times = measured(work.get("trace", ""), work["narrow_gradients"], h100["coefficients"]["gap_seconds"])
        for change in h100["coefficients"]["changes"]:
            op = next((o for o in h100["ops"] if o["op"] == change["name"]), None)
            if op is None:
                continue
            before = sum(times[name] for name in change["replaces"])
            rows.append([work["name"], f"`{op['op']}`", ", ".join(f"`{name}`" for name in change["replaces"]),
                         ms(before) if before else "", ms(op["seconds"]), ms(op["limit_seconds"]), change["basis"]])
    print("Kernels that changed since the measurement, H100:\n")
    table(["Step, ms", "Op", "Replaces", "Measured", "Predicted now", "Limit", "Assumption"], rows)


def gains(results):
    """The predicted gains of single changes of the kernels on the H100."""
    resnet, narrow, gpt2 = (results[i]["h100"] for i in range(3))

    def of(result, name):
        return next(o for o in result["ops"] if o["op"] == name)

    def seconds(result, *names):
        return sum(of(result, name)["seconds"] for name in names)

    gpu, coefficients = gpt2["gpu"], gpt2["coefficients"]
    known = {kind["name"]: kind["efficiency"] for kind in coefficients["kinds"]}
    bandwidth, launch = gpu["memory_bytes_per_second"], coefficients["launch_seconds"]
    bf16_copy = 2 * 124.4e6 / bandwidth / known["sgd"]  # the optimizer also writes the weights in bf16
    first = {}  # limit and measured time of the first convolution, s
    with open(MEASURED, encoding="utf-8") as lines:
        for line in lines:
            fields = line.rstrip("\n").split("\t")
            if len(fields) == 7 and fields[1].endswith("few channels"):
                time = float(fields[6]) * 1e-6 + float(fields[3]) * coefficients["gap_seconds"]
                first[fields[1]] = (float(fields[5]) * 1e-6, time)
    forward, wide, weights = (first[f"{kind}, few channels"] for kind in (
        "conv2d", "conv2d_diff_weights", "conv2d_diff_weights, 16 bits"))
    rows = []
    for result, change, assumption, before, after in [
        (gpt2, "attention by cuDNN", "300 TFLOP/s forward, 310 backward; not measured here",
         seconds(gpt2, "attention", "attention_diff"),
         of(gpt2, "attention")["flops"] / 300e12 + of(gpt2, "attention_diff")["flops"] / 310e12 + 24 * launch),
        (gpt2, "`layer_norm_diff` in one pass", "2.7 TB/s", seconds(gpt2, "layer_norm_diff"),
         of(gpt2, "layer_norm_diff")["bytes"] / 2.7e12 + 25 * launch),
        (gpt2, "no launches that prepare weights: the optimizer writes the bf16 copies",
         "the additional traffic at the efficiency of `sgd`", seconds(gpt2, "reorder"), bf16_copy),
        (resnet, "first convolution rearranged (space to depth), forward",
         "efficiency of the other convolutions; the rearrangement is free",
         forward[1], forward[0] / known["conv2d"] + launch),
        (narrow, "the same for its weight gradient in 16 bits", "as in the row above", weights[1],
         weights[0] / known["conv2d_diff_weights, 16 bits"] + launch),
        (resnet, "the same for its weight gradient in f32", "as in the row above", wide[1],
         wide[0] / known["conv2d_diff_weights"] + launch),
        (resnet, "weight gradients in f32 of the other convolutions", "as fast as in 16 bits",
         seconds(resnet, "conv2d_diff_weights") - wide[1], seconds(narrow, "conv2d_diff_weights") - weights[1]),
    ]:
        step = result["step_seconds"]
        name = "GPT-2" if result is gpt2 else "ResNet-50" + (", 16 bits" if result is narrow else "")
        rows.append([name, change, assumption, ms(before), ms(after), f"{100 * (before - after) / step:.1f} %"])
    print("Possible changes of kernels, predictions for an H100:\n")
    table(["Step", "Change", "Assumption", "ms now", "ms then", "of the step"], rows)
    saved = sum(float(row[3]) - float(row[4]) for row in rows if row[0] == "GPT-2")
    step = 1e3 * gpt2["step_seconds"]
    print(f"All changes of GPT-2 together, if every assumption holds: {step:.1f} ms become {step - saved:.1f} ms, "
          f"{8 * 1024 / (step - saved) * 1e3:,.0f} tokens/s.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "hetero-train"), help="program; default: ./hetero-train")
    args = parser.parse_args()
    if not os.access(args.binary, os.X_OK):
        sys.exit(f"gpu_predictions: {args.binary} is no program; run: make")
    small = [predicted(args.binary, SMALL, gpu) for gpu in [gpu for gpu, _ in GPUS] + OTHERS]
    works = small[0]["accuracy"]
    sheets(small)

    def plans(work, memory):
        return {gpu: predicted(args.binary, work["settings"], gpu, work["narrow_gradients"], memory) for gpu, _ in GPUS}

    results, own = [plans(work, "80GiB") for work in works], [plans(work, "") for work in works]
    steps(works, results, own)
    for work, by_gpu in zip(works, results):
        if not work["narrow_gradients"]:
            ops(work, by_gpu)
    memories(works, own)
    changes(works, results)
    gains(results)


if __name__ == "__main__":
    main()
