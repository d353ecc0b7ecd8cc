#!/usr/bin/env python3
"""Makes the golden runs in engine/models/testdata: 20 training steps of PyTorch, which the engine's tests repeat.

    python3 -m venv .venv && .venv/bin/pip install torch torchvision numpy
    .venv/bin/python scripts/goldens.py            # all cases, some minutes on two cores
    .venv/bin/python scripts/goldens.py --case resnet50_sgd --dry-run

Run the script only to add a case or a field: the tests never need PyTorch. The last digits depend on the version of
PyTorch and on the CPU, so read the difference before a commit. Each file names the version of PyTorch that made it.

The files contain no random numbers. Every number comes from the generator of engine/nn/random (here counter_random.py), with
the seed of the file and the name of a stream. Element i of a tensor, in row-major order, has index i:

  parameters  The stream is named as the parameter (torchvision's names). Values are computed in f64 and rounded to f32.
      convolution (O, I, KH, KW)  normal, mean 0, deviation sqrt(2 / (O·KH·KW))
      linear weight and bias      uniform in ±1/sqrt(inputs)
      BatchNorm                   weight 1 (residual_weight in the last of a bottleneck, bn3), bias 0, running mean 0, variance 1
  batch of step t = 0, 1, 2 …
      labels (N)                  Bits(n) mod classes, of "golden.labels.<t>"
      images (N, H, W, 3), bytes  (Bits(i) & 127) + 8·((label + 1)·(x + 2·y + 3·c) mod 16), of "golden.images.<t>", where
                                  y, x, c are the element's row, column and channel: noise over waves that identify the class
      network input (N, 3, H, W)  src·a + b, a = 1/(255·std), b = -mean/std: all in f32, each operation rounded

With multi_label, the label of an image is Bits(n) mod 2^classes. Bit k of it states whether the image has class k.

Training, in f64 and in several ways of f32 (VARIANTS) from the same f32 parameters and inputs:
  loss           mean of the batch's softmax cross-entropy, with label smoothing; with multi_label
                 binary_cross_entropy_with_logits, its mean over images and classes
  learning rate  step t uses lr·min(1, (t + 1)/warmup_steps)
  weight decay   on all parameters; with finetune on those of more than one dimension
  finetune       `freeze`d modules get no gradient and are in eval mode; layer i of L (the blocks, then fc) learns with
                 layer_decay^(L - 1 - i) of the rate; averages of weights and statistics: a = lerp(a, w, 1 - decay) every
                 ema_interval steps, update n with at most 1 - n^(-2/3) of the averages (timm's ModelEmaV3 with warm-up), and
                 the evaluation is of the averages
  BatchNorm      batch statistics, eps 1e-5, running statistics with momentum 0.1 (the variance unbiased)

Fields: `loss_*` before each step's update. `grad_norm_*` the L2 norm of each parameter's gradient at step 0, summed in
f64. `eval_loss_*` after the last step, on the batch that follows, with running statistics and without label smoothing.
`first_*` excerpts of the batch of both sides, which distinguish a wrong batch from a wrong step.
"""

import argparse
import math
import pathlib
import sys

sys.dont_write_bytecode = True
import numpy as np
import torch
import torchvision

import golden_file
from counter_random import Stream, indices
from peers.simple_cnn import SimpleCNN

TESTDATA = pathlib.Path(__file__).resolve().parent.parent / "engine" / "models" / "testdata"

# The constants of CIFAR-10, for values from 0 to 1.
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)

SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}
ADAMW = {"name": "adamw", "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.05}
COMMON = {"classes": 10, "steps": 20, "warmup_steps": 5, "mean": MEAN, "std": STD}

# Seeds for which PyTorch's f32 variants agree for the largest number of steps; see VARIANTS. The seeds of simple_cnn
# come from a search: in 30 runs with parameters changed by a relative 3e-7, all losses stayed within 1e-6 of f64. A
# ResNet-50 with a residual_weight of 1 cannot be compared, because the gradients of its first step differ by 1 %
# between f32 runs.
SMALL = {"model": "simple_cnn", "batch_size": 8, "image_size": 16, "residual_weight": 1.0}
RESNET = {"model": "resnet50", "batch_size": 8, "image_size": 32, "residual_weight": 0.03, "label_smoothing": 0.0}
CASES = {
    "simple_cnn_sgd": {**SMALL, "seed": 57, "optimizer": {**SGD, "lr": 0.01}, "label_smoothing": 0.0},
    "simple_cnn_adamw": {**SMALL, "seed": 221, "optimizer": ADAMW, "label_smoothing": 0.1},
    "simple_cnn_finetune": {**SMALL, "seed": 221, "optimizer": {**ADAMW, "lr": 2e-3}, "label_smoothing": 0.0,
                            "finetune": {"freeze": ["block0"], "layer_decay": 0.7, "ema_decay": 0.8,
                                         "ema_interval": 2}},
    "simple_cnn_labels": {**SMALL, "seed": 57, "classes": 6, "optimizer": {**SGD, "lr": 0.02}, "label_smoothing": 0.0,
                          "multi_label": True},
    "resnet50_sgd": {**RESNET, "seed": 22, "optimizer": {**SGD, "lr": 0.0005}},
    "resnet50_adamw": {**RESNET, "seed": 22, "optimizer": {**ADAMW, "lr": 0.0001}},
    # The published image size. The learning rate keeps the losses of the variants close for 20 steps. A single
    # activation on the other side of a ReLU changes the gradient norm of a bias in layer4 by more than 1e-4, because
    # only 98 positions are summed. f64 is slow at this size, so the case has two variants.
    "resnet50_224": {**RESNET, "seed": 22, "batch_size": 2, "image_size": 224, "optimizer": {**SGD, "lr": 0.0001},
                     "variants": ["default", "without oneDNN"], "norm_limit": 3e-4},
}


def build(config, dtype, disturbance=0):
    """The model with the generator's parameters, times 1 + 1e-7·normal where a disturbance is numbered."""
    if config["model"] == "simple_cnn":
        model = SimpleCNN(config["classes"])
    else:
        model = getattr(torchvision.models, config["model"])(num_classes=config["classes"])
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(initial_value(config, name, tuple(p.shape), model.fc.in_features)))
            if disturbance:
                noise = Stream(config["seed"], f"golden.disturbance.{disturbance}.{name}").fill_normal(tuple(p.shape),
                                                                                                       0.0, 1e-7)
                p.add_(p * torch.from_numpy(noise))
    return model.to(dtype)


def initial_value(config, name, shape, fc_inputs):
    stream = Stream(config["seed"], name)
    if len(shape) == 4:  # convolution (O, I, KH, KW)
        return stream.fill_normal(shape, 0.0, math.sqrt(2.0 / (shape[0] * shape[2] * shape[3])))
    if name.startswith("fc."):
        bound = 1.0 / math.sqrt(fc_inputs)
        return stream.fill_uniform(shape, -bound, bound)
    if name.endswith("bn3.weight"):
        return np.full(shape, config["residual_weight"], dtype=np.float32)
    return np.full(shape, 1.0 if name.endswith("weight") else 0.0, dtype=np.float32)


def make_batch(config, step):
    """Images (N, H, W, 3) of u8 and labels (N)."""
    n, size = config["batch_size"], config["image_size"]
    different = 2 ** config["classes"] if config.get("multi_label") else config["classes"]
    labels = (Stream(config["seed"], f"golden.labels.{step}").bits(indices((n,))) % np.uint64(
        different)).astype(np.int64)
    shape = (n, size, size, 3)
    noise = (Stream(config["seed"], f"golden.images.{step}").bits(indices(shape)) & np.uint64(127)).astype(
        np.int64).reshape(shape)
    y, x, c = np.ogrid[:size, :size, :3]
    wave = (labels[:, None, None, None] + 1) * (x + 2 * y + 3 * c) % 16
    return (noise + 8 * wave).astype(np.uint8), labels


def normalize(images):
    """Network input (N, 3, H, W) of f32."""
    mean, std = np.array(MEAN, dtype=np.float32), np.array(STD, dtype=np.float32)
    a, b = np.float32(1) / (np.float32(255) * std), -mean / std
    return np.ascontiguousarray((images.astype(np.float32) * a + b).transpose(0, 3, 1, 2))


def parameter_groups(model, finetune):
    """One group per layer and kind of decay, with the layer's fraction of the learning rate."""
    layers = [name for name, _ in model.named_children() if name.startswith("block")] + ["fc"]
    groups = []
    for i, layer in enumerate(layers):
        trained = [p for p in getattr(model, layer).parameters() if p.requires_grad]
        for decays in (True, False):
            some = [p for p in trained if (p.ndim > 1) == decays]
            if some:
                scale = finetune["layer_decay"] ** (len(layers) - 1 - i)
                groups.append({"params": some, "scale": scale} | ({} if decays else {"weight_decay": 0.0}))
    return groups


class Average:
    """Averages of everything in a model's state_dict, as timm's ModelEmaV3 makes them with warm-up."""

    def __init__(self, finetune):
        self.decay, self.interval, self.state = finetune["ema_decay"], finetune["ema_interval"], None

    def update(self, model, step):  # step counts from 1
        if step % self.interval:
            return
        n, now = step // self.interval, {k: v.detach().clone() for k, v in model.state_dict().items()}
        decay = 0.0 if n == 1 else min(self.decay, 1 - n ** (-2 / 3))
        if self.state is None:
            self.state = now
        for k, v in now.items():
            self.state[k] = torch.lerp(self.state[k], v, 1 - decay) if v.is_floating_point() else v


def freeze(model, finetune):
    for name in finetune["freeze"]:
        getattr(model, name).eval().requires_grad_(False)


def make_optimizer(o, parameters):
    if o["name"] == "sgd":
        return torch.optim.SGD(parameters, lr=o["lr"], momentum=o["momentum"], nesterov=o["nesterov"],
                               weight_decay=o["weight_decay"])
    return torch.optim.AdamW(parameters, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
                             weight_decay=o["weight_decay"])


def loss_of(config, logits, labels, smoothing):
    labels = torch.from_numpy(labels)
    if not config.get("multi_label"):
        return torch.nn.functional.cross_entropy(logits, labels, label_smoothing=smoothing)
    targets = (labels[:, None] >> torch.arange(config["classes"])) & 1
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, targets.to(logits.dtype))


def train(config, dtype, layout=torch.contiguous_format, disturbance=0):
    """Loss of every step, gradient norms of the first, loss of the evaluation."""
    model = build(config, dtype, disturbance).train().to(memory_format=layout)
    finetune = config.get("finetune")
    if finetune:
        freeze(model, finetune)
        average = Average(finetune)
    optimizer = make_optimizer(config["optimizer"], parameter_groups(model, finetune) if finetune
                               else model.parameters())
    result = {"loss": []}
    for step in range(config["steps"]):
        images, labels = make_batch(config, step)
        for group in optimizer.param_groups:
            group["lr"] = config["optimizer"]["lr"] * min(1.0, (step + 1) / config["warmup_steps"]) * group.get("scale",
                                                                                                                1.0)
        logits = model(torch.from_numpy(normalize(images)).to(dtype))
        loss = loss_of(config, logits, labels, config["label_smoothing"])
        optimizer.zero_grad()
        loss.backward()
        result["loss"].append(loss.item())
        if step == 0:
            result["grad_norm"] = {name: p.grad.double().norm().item() for name, p in model.named_parameters()
                                   if p.grad is not None}
        optimizer.step()
        if finetune:
            average.update(model, step + 1)
    if finetune:
        model.load_state_dict(average.state)
    images, labels = make_batch(config, config["steps"])
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(normalize(images)).to(dtype))
        result["eval_loss"] = loss_of(config, logits, labels, 0.0).item()
    return result


# Variants of PyTorch's computation in f32. If a pre-activation is 0 except for rounding, a ReLU passes it in one
# variant and not in another. From this step on, the losses of the variants diverge. They diverge faster in deeper
# networks and with larger learning rates. The error of "PyTorch in f32" is therefore the maximum over all variants.
# "disturbed" changes the parameters by about one unit in the last place.
VARIANTS = {
    "default": {},
    "without oneDNN": {"mkldnn": False},
    "channels last": {"layout": torch.channels_last},
    "disturbed 1": {"disturbance": 1},
    "disturbed 2": {"disturbance": 2},
    "disturbed 3": {"disturbance": 3},
}

# A case is refused if the gradient norm of the first step differs between f32 and f64 by more than this fraction, or by
# more than the norm_limit of the case. The tolerance of the engine's tests is three times as large.
NORM_LIMIT = 3e-5


def variants(config):
    return {name: VARIANTS[name] for name in config.get("variants", VARIANTS)}


def train_variant(config, mkldnn=True, layout=torch.contiguous_format, disturbance=0):
    with torch.backends.mkldnn.flags(enabled=mkldnn):
        return train(config, torch.float32, layout, disturbance)


def require_stable_gradients(config, f64, f32):
    limit = config.get("norm_limit", NORM_LIMIT)
    for variant, run in zip(variants(config), f32):
        off, name = max((abs(run["grad_norm"][name] - norm) / norm, name) for name, norm in f64["grad_norm"].items())
        if off > limit:
            raise SystemExit(f"gradient norm of {name}, {variant}: relative difference {off:.1e} from f64, want at most {limit}: use another seed")


def golden(config):
    f64 = train(config, torch.float64)
    f32 = [train_variant(config, **v) for v in variants(config).values()]
    require_stable_gradients(config, f64, f32)
    images, labels = make_batch(config, 0)
    return {
        "config": config,
        "made_with": f"torch {torch.__version__}, torchvision {torchvision.__version__}",
        "first_labels": labels.tolist(),
        "first_image_bytes": images.flatten()[:12].tolist(),
        "loss_f64": f64["loss"],
        "loss_f32": [run["loss"] for run in f32],
        "eval_loss_f64": f64["eval_loss"],
        "eval_loss_f32": [run["eval_loss"] for run in f32],
        "grad_norm_f64": f64["grad_norm"],
        "grad_norm_f32": f32[0]["grad_norm"],
    }


def summarize(name, run):
    """Prints the basis of the tests' tolerances: the differences between PyTorch's f32 runs and its f64 run."""
    print(f"{name}: loss {run['loss_f64'][0]:.4f} -> {run['loss_f64'][-1]:.4f}, evaluation {run['eval_loss_f64']:.4f}")
    print("  loss, f64:    ", *(f"{x:.3f}" for x in run["loss_f64"]))
    for variant, loss in zip(variants(run["config"]), run["loss_f32"]):
        print(f"  {variant:14}", *(f"{abs(a - b):.0e}" for a, b in zip(loss, run["loss_f64"])))
    norms = {k: abs(run["grad_norm_f32"][k] - v) / v for k, v in run["grad_norm_f64"].items()}
    worst = max(norms, key=norms.get)
    print(f"  worst gradient norm, relative: {norms[worst]:.1e} ({worst})")


def main():
    parser = argparse.ArgumentParser(
        description="Makes the golden runs in engine/models/testdata; see the top of this file.")
    parser.add_argument("--case", action="append", choices=CASES, help="run only this case; repeatable (default: all)")
    parser.add_argument("--dry-run", action="store_true", help="print the gaps, write nothing")
    arguments = parser.parse_args()
    for name in arguments.case or CASES:
        run = golden({**COMMON, **CASES[name]})
        summarize(name, run)
        if not arguments.dry_run:
            (TESTDATA / f"{name}.json").write_text(golden_file.text(run))


if __name__ == "__main__":
    main()
