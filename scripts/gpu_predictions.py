#!/usr/bin/env python3
"""Prints the predicted times of training steps on GPUs, next to the times measured on an H100.

  scripts/gpu_predictions.py                   # ./hetero-train, all tables
  scripts/gpu_predictions.py --binary PATH

The output is Markdown for docs/benchmarks/gpu.md, section "Predictions". It needs no GPU: "plan --device-model" predicts
the times. All GPUs plan the same launches, as if each had 80 GiB of memory, because less memory makes a plan recompute
activations. GPUs without bf16 compute in fp16.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(ROOT, "engine", "device", "gpumodel")
MEASURED = os.path.join(MODEL, "testdata", "h100.tsv")
KINDS = os.path.join(MODEL, "efficiency.go")
GPUS = [("h100", "H100"), ("a100", "A100"), ("rtx3060", "RTX 3060"), ("gtx1650", "GTX 1650, fp16")]
SGD = ["--set", "optimizer.name=sgd", "--set", "optimizer.momentum=0.9"]
IMAGES = ["--dataset", "synthetic_image", "--set", "model.num_classes=1000", "--set", "data.image_size=224"]
TEXT = ["--dataset", "synthetic_text", "--set", "model.dropout=0"]
# The steps of gpumodel.Works: name in h100.tsv, title, settings, weight gradients in 16 bits.
WORKS = [
    ("resnet50", "ResNet-50, 224x224, batch 256", ["--model", "resnet50", *IMAGES, "--set", "data.batch_size=256"],
     False),
    ("resnet50", "the same, weight gradients in 16 bits",
     ["--model", "resnet50", *IMAGES, "--set", "data.batch_size=256"], True),
    ("gpt2", "GPT-2 124M, 8 x 1024",
     ["--model", "gpt2", *TEXT, "--set", "data.sequence_length=1024", "--set", "data.vocabulary=50257", "--set",
      "data.num_samples=16", "--set", "data.batch_size=8"], False),
    ("", "BERT-base, 64 x 128",
     ["--model", "bert_base", *TEXT, "--set", "data.sequence_length=128", "--set", "data.vocabulary=30522", "--set",
      "data.num_samples=128", "--set", "model.positions=512", "--set", "data.batch_size=64"], False),
]


def predicted(binary, settings, gpu, narrow, memory):
    """The object "prediction" of plan --json."""
    command = [binary, "plan", *settings, *SGD, "--samples", "8", "--device-model", gpu, "--json"]
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


def efficiencies():
    """The constants and the efficiencies by kind of engine/device/gpumodel/efficiency.go."""
    with open(KINDS, encoding="utf-8") as file:
        source = file.read()
    values = {name: float(value)
              for name, value in re.findall(r"^(?:const |\t)(\w+) += ([\d.e-]+)$", source, re.MULTILINE)}
    kinds = re.findall(r'\{"(\w+)"([ +\w]*), (?:true|false), [\w.-]+, ([\d.]+), \w+\}', source)
    return values | {name + suffix: float(value) for name, suffix, value in kinds}


def measured(work, narrow):
    """The measured times by op, s."""
    times, gap = collections.defaultdict(float), efficiencies()["gapTime"]
    with open(MEASURED, encoding="utf-8") as lines:
        for line in lines:
            fields = line.rstrip("\n").split("\t")
            if line.startswith("#") or fields[0] != work:
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


def steps(results):
    rows = []
    for i, (work, by_gpu) in enumerate(zip(WORKS, results)):
        step, own = by_gpu["h100"]["accuracy"][i]["measured_seconds"], by_gpu["h100"]["step_seconds"]
        rows.append([work[1], ms(step), *(ms(by_gpu[gpu]["step_seconds"]) for gpu, _ in GPUS),
                     f"{100 * (own / step - 1):+.1f} %".replace("-", "−"), ms(by_gpu["h100"]["limit_seconds"])])
    table(["Step, ms", "H100, measured", *(title for _, title in GPUS), "error on the H100", "limit, H100"], rows)


def memories(binary):
    rows = []
    for work in (WORKS[0], WORKS[2], WORKS[3]):
        row = [work[1]]
        for gpu, _ in GPUS:
            p = predicted(binary, work[2], gpu, work[3], "")
            row.append(f"{p['bytes'] / 2**30:.2f} GiB" + ("" if p["fits"] else ": does not fit"))
        rows.append(row)
    table(["Memory that a plan for the GPU needs", *(title for _, title in GPUS)], rows)


def ops(work, by_gpu):
    times = measured(work[0], work[3])
    others = {gpu: {o["op"]: o for o in by_gpu[gpu]["ops"]} for gpu, _ in GPUS}
    rows, rest = [], collections.defaultdict(float)
    for op in by_gpu["h100"]["ops"]:
        seconds = [others[gpu][op["op"]]["seconds"] for gpu, _ in GPUS]
        if op["seconds"] < 0.5e-3:
            for key, value in [("launches", op["launches"]), ("bytes", op["bytes"]), ("flops", op["flops"]),
                               ("measured", times[op["op"]]), *((g, s) for (g, _), s in zip(GPUS, seconds))]:
                rest[key] += value
            continue
        rows.append([f"`{op['op']}`", f"{op['launches']:.0f}", f"{op['bytes'] / 1e9:.2f}", f"{op['flops'] / 1e9:,.0f}",
                     ms(times[op["op"]]) if work[0] else "", *(ms(s) for s in seconds)])
    rows.append(["the rest", f"{rest['launches']:.0f}", f"{rest['bytes'] / 1e9:.2f}", f"{rest['flops'] / 1e9:,.0f}",
                 ms(rest["measured"]) if work[0] else "", *(ms(rest[gpu]) for gpu, _ in GPUS)])
    print(f"{work[1]}, ms per step:\n")
    table(["Op", "Launches", "GB", "GFLOP", "H100, measured", *(title for _, title in GPUS)], rows)


def gains(results):
    """What single changes of the kernels would bring on the H100, by the same model."""
    resnet, narrow, gpt2 = (results[i]["h100"] for i in range(3))

    def of(result, name):
        return next(o for o in result["ops"] if o["op"] == name)

    def seconds(result, *names):
        return sum(of(result, name)["seconds"] for name in names)

    gpu, known = gpt2["gpu"], efficiencies()
    rate, bandwidth, launch = gpu["bf16_flops_per_second"], gpu["memory_bytes_per_second"], known["launchTime"]
    loss = of(gpt2, "linear_cross_entropy")
    logits = 8192 * 50304 * 2  # bytes of all logits in bf16, rows padded to 50,304 classes
    # three products; a pass over the logits reads them and writes their gradient
    fused = 3 * (loss["flops"] / rate / known["linear"] + launch)
    fused += 2 * logits / bandwidth / known["otherMoves"] + launch
    bf16_copy = 2 * 124.4e6 / bandwidth / known["sgd"]  # the optimizer also writes the weights in bf16
    first = {}  # limit and measured time of the first convolution, s
    with open(MEASURED, encoding="utf-8") as lines:
        for line in lines:
            fields = line.rstrip("\n").split("\t")
            if len(fields) == 7 and fields[1].endswith("few channels"):
                time = float(fields[6]) * 1e-6 + float(fields[3]) * known["gapTime"]
                first[fields[1]] = (float(fields[5]) * 1e-6, time)
    forward, wide, weights = (first[f"{kind}, few channels"] for kind in (
        "conv2d", "conv2d_diff_weights", "conv2d_diff_weights, 16 bits"))
    rows = []
    for result, change, before, after in [
        (gpt2, "loss: bf16 logits in one tensor, three products, one pass that also writes the gradient",
         seconds(gpt2, "linear_cross_entropy", "linear_cross_entropy_diff"), fused),
        (gpt2, "attention at 300 TFLOP/s forward and 310 backward, assumed for cuDNN",
         seconds(gpt2, "attention", "attention_diff"),
         of(gpt2, "attention")["flops"] / 300e12 + of(gpt2, "attention_diff")["flops"] / 310e12 + 24 * launch),
        (gpt2, "`layer_norm_diff` at 2.7 TB/s", seconds(gpt2, "layer_norm_diff"),
         of(gpt2, "layer_norm_diff")["bytes"] / 2.7e12 + 25 * launch),
        (gpt2, "`bias_gelu_diff` at 2.7 TB/s", seconds(gpt2, "bias_gelu_diff"),
         of(gpt2, "bias_gelu_diff")["bytes"] / 2.7e12 + 12 * launch),
        (gpt2, "no launches that prepare weights: the optimizer writes the bf16 copies", seconds(gpt2, "reorder"),
         bf16_copy),
        (resnet, "first convolution rearranged (space to depth), forward, at the efficiency of other convolutions",
         forward[1], forward[0] / known["conv2d"] + launch),
        (narrow, "the same for its weight gradient in 16 bits", weights[1],
         weights[0] / known["conv2d_diff_weights + narrow"] + launch),
        (resnet, "the same for its weight gradient in f32", wide[1],
         wide[0] / known["conv2d_diff_weights"] + launch),
        (resnet, "weight gradients in f32 of the other convolutions as fast as in 16 bits",
         seconds(resnet, "conv2d_diff_weights") - wide[1], seconds(narrow, "conv2d_diff_weights") - weights[1]),
    ]:
        step = result["step_seconds"]
        name = "GPT-2" if result is gpt2 else "ResNet-50" + (", 16 bits" if result is narrow else "")
        rows.append([name, change, ms(before), ms(after), f"{100 * (before - after) / step:.1f} %"])
    print("Changes of kernels:\n")
    table(["Step", "Change", "ms now", "ms then", "of the step"], rows)
    saved = sum(float(row[2]) - float(row[3]) for row in rows if row[0] == "GPT-2")
    step = 1e3 * gpt2["step_seconds"]
    print(f"All changes of GPT-2 together: {step:.1f} ms become {step - saved:.1f} ms, "
          f"{8 * 1024 / (step - saved) * 1e3:,.0f} tokens/s.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "hetero-train"), help="program; default: ./hetero-train")
    args = parser.parse_args()
    if not os.access(args.binary, os.X_OK):
        sys.exit(f"gpu_predictions: {args.binary} is no program; run: make")
    results = [{gpu: predicted(args.binary, work[2], gpu, work[3], "80GiB") for gpu, _ in GPUS} for work in WORKS]
    steps(results)
    for work, by_gpu in zip(WORKS, results):
        if work[1] != "the same, weight gradients in 16 bits":
            ops(work, by_gpu)
    memories(args.binary)
    gains(results)


if __name__ == "__main__":
    main()
