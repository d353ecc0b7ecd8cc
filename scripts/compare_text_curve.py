#!/usr/bin/env python3
"""Trains a small GPT-2 in hetero-train and in PyTorch from the same weights on the same batches, and compares the losses.

    python3 -m venv .venv && .venv/bin/pip install torch transformers numpy
    .venv/bin/python scripts/compare_text_curve.py --data tinyshakespeare.txt

The model and the optimizer are those of configs/gpt2_shakespeare.toml, with a constant learning rate. transformers draws the
initial weights; hetero-train reads them with model.init_from. The script computes the order of the samples as engine/data does,
from the seed of the run. Both programs compute in f32. Rounding errors grow with each step, so the curves agree to some digits.
For comparison, the script repeats the training in PyTorch:

    in f64, from the same weights
    in f64, REPEATS times from weights that differ by random relative changes of 1e-7, about the rounding of f32
    in f32, REPEATS times with the samples of each batch in another order, which changes only the rounding

These runs show how training amplifies a rounding error. A second table compares the gradients of the first step with those of
PyTorch in f64. Exit code 1 if a loss differs by more than --tolerance, relative to the loss of PyTorch.
"""

import argparse
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import safetensors.numpy
import torch
import transformers

LENGTH, BATCH, SEED, RATE, DECAY = 64, 12, 42, 1e-3, 0.1
REPEATS = 4
PERMUTATION, WINDOWS = 1, 64  # streams of engine/data/random.go
WORD = 0xFFFFFFFF


class Draws:
    """The random numbers of engine/data/random.go: Philox 4x32-10."""

    def __init__(self, seed, epoch, index, stream):
        self.key = (seed & WORD, seed >> 32)
        self.counter = [0, epoch, index & WORD, index >> 32 | stream << 24]
        self.out = []

    def word(self):
        if not self.out:
            (a, b, c, d), (k0, k1) = self.counter, self.key
            for _ in range(10):
                x, y = 0xD2511F53 * a, 0xCD9E8D57 * c
                a, b, c, d = y >> 32 ^ b ^ k0, y & WORD, x >> 32 ^ d ^ k1, x & WORD
                k0, k1 = k0 + 0x9E3779B9 & WORD, k1 + 0xBB67AE85 & WORD
            self.out = [d, c, b, a]
            self.counter[0] += 1
        return self.out.pop()

    def below(self, n):
        """Returns a number in [0, n) without bias (Lemire)."""
        product = self.word() * n
        while product & WORD < n and product & WORD < (1 << 32) % n:
            product = self.word() * n
        return product >> 32


def batches(tokens, steps):
    """Yields tokens (BATCH, LENGTH + 1) of the first epoch, in the order of a run with SEED."""
    labels = len(tokens) - 1
    samples = max(labels // LENGTH - 1, min(labels // LENGTH, 1))
    offset = Draws(SEED, 0, 0, WINDOWS).below(labels - samples * LENGTH + 1)
    order, draws = list(range(samples)), Draws(SEED, 0, 0, PERMUTATION)
    for i in range(samples - 1, 0, -1):
        j = draws.below(i + 1)
        order[i], order[j] = order[j], order[i]
    if steps * BATCH > samples:
        sys.exit(f"{steps} steps need {steps * BATCH} samples, but an epoch has {samples}: lower --steps")
    for step in range(steps):
        starts = [offset + i * LENGTH for i in order[step * BATCH : (step + 1) * BATCH]]
        yield torch.from_numpy(numpy.stack([tokens[s : s + LENGTH + 1] for s in starts]).astype(numpy.int64))


def loss_of(model, batch):
    logits = model(batch[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def peer(model, tokens, steps, order=None):
    """Returns the losses of PyTorch before each update. The seed `order` selects another order of the samples in each
    batch."""
    draws = torch.Generator().manual_seed(order or 0)
    weights = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": weights, "weight_decay": DECAY}, {"params": others, "weight_decay": 0}],
                                  lr=RATE, betas=(0.9, 0.99), eps=1e-8)
    losses = []
    for batch in batches(tokens, steps):
        if order is not None:
            batch = batch[torch.randperm(BATCH, generator=draws)]
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def changed(model, seed):
    """Returns a copy of a model in f64 whose weights have random relative changes with a standard deviation of 1e-7."""
    model = copy.deepcopy(model).double()
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + 1e-7 * torch.randn(p.shape, generator=draws, dtype=p.dtype))
    return model


def gradients(model, tokens):
    """Returns the gradients of the first step, by the names of transformers, as f64."""
    loss_of(model, next(iter(batches(tokens, 1)))).backward()
    return {name: p.grad.double().numpy() for name, p in model.named_parameters()}


def own_gradients(folder, names):
    """Returns the gradients of the first step from its checkpoint: the first moment is the gradient times 1 - beta1, in
    f32."""
    state = safetensors.numpy.load_file(folder / "checkpoints" / "step-00000001" / "optimizer.safetensors")
    scale = float(numpy.float32(1) - numpy.float32(0.9))
    out = {name: state[f"{name}.exp_avg"].astype(numpy.float64) / scale for name in names}
    # "Conv1D" of transformers
    return {name: g.T if kind_of(name) == "weights of linear layers" else g for name, g in out.items()}


def kind_of(name):
    kind = "biases" if name.endswith("bias") else "weights"
    return f"{kind} of LayerNorm" if ".ln_" in name else f"{kind} of linear layers" if ".h." in name else "embeddings"


def compare_gradients(ours, theirs, exact):
    """Prints the differences of gradients from those of f64: the median over the parameters of a kind."""
    error = lambda g, name: numpy.linalg.norm(g[name] - exact[name]) / numpy.linalg.norm(exact[name])
    print("\n| Parameters | hetero-train and PyTorch in f64 | PyTorch and PyTorch in f64 |\n|---|---|---|")
    for kind in sorted({kind_of(name) for name in exact}):
        print(f"| {kind} | " + " | ".join(f"{numpy.median([error(g, n) for n in exact if kind_of(n) == kind]):.1e}"
                                          for g in (ours, theirs)) + " |")


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a text file, such as tinyshakespeare.txt")
    parser.add_argument("--program", default="./hetero-train")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tolerance", type=float, default=1e-3,
                        help="largest permitted relative difference of a loss (default 0.001)")
    args = parser.parse_args()
    configuration = pathlib.Path(__file__).resolve().parent.parent / "configs" / "gpt2_shakespeare.toml"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run(args.program, "data", "tokenize", args.data, "-o", folder / "shards", "--tokenizer", "bytes",
            "--val-fraction", "0.1")
        torch.manual_seed(SEED)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=257, n_positions=LENGTH, n_embd=128,
                                                                     n_layer=4, n_head=4, embd_pdrop=0,
                                                                     attn_pdrop=0, resid_pdrop=0, bos_token_id=None,
                                                                     eos_token_id=None)).train()
        model.save_pretrained(folder / "weights")
        settings = {"data.path": folder / "shards", "model.init_from": folder / "weights",
                    "experiment.output_dir": folder,
                    "experiment.seed": SEED, "device.kind": args.device, "train.precision": "f32",
                    "schedule.name": "constant",
                    "schedule.warmup_steps": 0, "schedule.warmup_epochs": 0.0, "data.batch_size": BATCH,
                    "data.sequence_length": LENGTH}

        def train(name, steps):
            changed = {"experiment.name": name, "train.steps": steps}
            run(args.program, "-c", configuration,
                *(part for k, v in (settings | changed).items() for part in ("--set", f"{k}={v}")))
            return folder / name

        ours = [r["loss"] for r in json.loads((train("run", args.steps) / "logs" / "rank_0_metrics.json").read_text())]
        tokens = numpy.fromfile(folder / "shards" / "train-000000.bin", "<u2", offset=256)
        exact_gradients = gradients(copy.deepcopy(model).double(), tokens)
        compared = own_gradients(train("one", 1), exact_gradients), gradients(copy.deepcopy(model),
                                                                              tokens), exact_gradients
        exact = peer(copy.deepcopy(model).double(), tokens, args.steps)
        disturbed = [peer(changed(model, seed), tokens, args.steps) for seed in range(REPEATS)]
        reordered = [peer(copy.deepcopy(model), tokens, args.steps, order) for order in range(REPEATS)]
        theirs = peer(model, tokens, args.steps)
    if len(ours) != len(theirs):
        sys.exit(f"hetero-train recorded {len(ours)} losses, want {len(theirs)}")
    difference = lambda a, b: [abs(x - y) / y for x, y in zip(a, b)]
    columns = difference(ours, theirs), difference(ours, exact), difference(theirs, exact)
    spreads = [[difference(losses, exact) for losses in runs] for runs in (disturbed, reordered)]
    print(f"PyTorch {torch.__version__}; the last five columns are the largest relative differences up to the step.\n")
    print("| Step | hetero-train | PyTorch | hetero-train and PyTorch | hetero-train and PyTorch in f64 | PyTorch and PyTorch in f64 "
          f"| {REPEATS} changed runs and PyTorch in f64 | {REPEATS} reordered runs and PyTorch in f64 |\n|---|---|---|---|---|---|---|---|")
    for step in sorted({1, 10, 50, 100, args.steps} & set(range(1, args.steps + 1))):
        ranges = [sorted(max(c[:step]) for c in spread) for spread in spreads]
        print(f"| {step} | {ours[step - 1]:.6f} | {theirs[step - 1]:.6f} | " + " | ".join(f"{max(c[:step]):.1e}"
                                                                                          for c in columns)
              + " | " + " | ".join(f"{r[0]:.1e} to {r[-1]:.1e}" for r in ranges) + " |")
    compare_gradients(*compared)
    sys.exit(max(columns[0]) > args.tolerance)


if __name__ == "__main__":
    main()
