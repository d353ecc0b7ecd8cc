#!/usr/bin/env python3
"""Times PyTorch's training step, for comparison with `hetero-train bench train`.

    python3 scripts/peers/pytorch_step.py --model resnet50 --image-size 32 --batch-size 128 --precision bf16 [--compile]
    python3 scripts/peers/pytorch_step.py --model gpt2 --seq-len 256 --batch-size 4 --precision bf16 [--compile]

The last line on stdout is a JSON object. Fields that `bench train --json` also has have the same names.

A step consists of forward, loss, backward, the optimizer with weight decay (not of biases and normalisation layers), and the
release of gradients. The optimizer is SGD with momentum for images, AdamW for text, as in `bench train`; --optimizer selects
another one. The script makes the batch once, so the time contains no loading.

The models of text are those of the library transformers, with scaled_dot_product_attention and without dropout, which would
prevent PyTorch's fast attention on a CPU. BERT predicts 15 % of the tokens, and computes the logits of these tokens only, as
hetero-train does. BertForMaskedLM of transformers computes the logits of all tokens, which takes longer.

On a CPU, PyTorch gets its best known settings: channels_last, the fused optimizer, autocast for bf16 (weights stay f32),
torch.compile on request, and tcmalloc. glibc's allocator returns large blocks to the system and page-faults them at each step,
which takes up to a third of the step time. If libtcmalloc_minimal.so.4 (Debian: libtcmalloc-minimal4) is installed, the script
therefore restarts itself with this library preloaded. `malloc` in the result names the allocator that was in use.

On a GPU (--device cuda) it gets channels_last, cuDNN's search for the fastest algorithms, the fused optimizer, autocast (with a
scaled loss for fp16), and torch.compile on request. f32 is f32 without TF32, as in hetero-train. A GPU runs asynchronously to
the host, so the script times ten steps together.

--ranks N starts N processes of DistributedDataParallel over Gloo, which divide batch and threads among them. They use
gradient_as_bucket_view, static_graph, and the fastest of several sizes of buckets (--bucket-cap-mb 0). The result is that of
rank 0, with the samples of all ranks. Each rank normalises over its own samples, because PyTorch on a CPU supports nothing else.
"""

import argparse
import ctypes.util
import glob
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True

RESTARTED = "HETERO_PEER_RESTARTED"
BUCKETS = (5, 25, 100)  # MiB


def find_tcmalloc():
    """The library's name or path, or None. find_library needs ldconfig or a compiler, which a container may lack."""
    found = ctypes.util.find_library("tcmalloc_minimal") or ctypes.util.find_library("tcmalloc")
    if found:
        return found
    paths = [p for root in ("/usr/lib", "/usr/lib64", "/usr/local/lib")
             for p in glob.glob(f"{root}/**/libtcmalloc*.so.*", recursive=True)]
    return min(paths, key=len, default=None)


def preload_tcmalloc():
    library = find_tcmalloc()
    if library is None or RESTARTED in os.environ:
        return
    preload = " ".join(filter(None, [library, os.environ.get("LD_PRELOAD")]))
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable] + sys.argv, {**os.environ, "LD_PRELOAD": preload, RESTARTED: "1"})


def loaded_allocator():
    """The allocator that the process has mapped, according to the kernel."""
    with open("/proc/self/maps") as maps:
        text = maps.read()
    return next((name for name in ("tcmalloc", "jemalloc", "mimalloc") if name in text), "system")


def parse_arguments():
    p = argparse.ArgumentParser(description="Times PyTorch's training step.")
    p.add_argument("--model", default="resnet50",
                   help="simple_cnn, a ResNet of torchvision, gpt2 or bert_base (default resnet50)")
    p.add_argument("--image-size", type=int, default=32, help="pixels (default 32)")
    p.add_argument("--seq-len", type=int, default=256, help="tokens of a sample of text (default 256)")
    p.add_argument("--batch-size", type=int, default=128, help="samples (default 128)")
    p.add_argument("--classes", type=int, default=1000, help="outputs (default 1000)")
    p.add_argument("--precision", choices=["f32", "bf16", "fp16"], default="f32",
                   help="(default f32; fp16 on a GPU only)")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="(default cpu)")
    p.add_argument("--optimizer", choices=["auto", "sgd", "adamw"], default="auto",
                   help="auto: adamw for text, sgd for images (default auto)")
    p.add_argument("--bucket-cap-mb", type=int, default=0,
                   help="size of DistributedDataParallel's buckets, MiB; 0: the fastest of %s (default 0)" % (BUCKETS,))
    p.add_argument("--compile", action="store_true", help="torch.compile the model")
    p.add_argument("--steps", type=int, default=20, help="timed steps (default 20)")
    p.add_argument("--warmup", type=int, default=3, help="steps before the timed ones (default 3)")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)),
                   help="(default: the CPUs this process may use)")
    p.add_argument("--ranks", type=int, default=1, help="processes that share the batch (default 1)")
    p.add_argument("--check", action="store_true", help="time nothing: print the versions and the allocator")
    p.add_argument("--malloc", choices=["tcmalloc", "system"], default="tcmalloc", help="system: preload nothing")
    a = p.parse_args()
    if a.device == "cpu" and a.precision == "fp16":
        p.error("--precision fp16 needs --device cuda")
    if a.device == "cuda" and a.ranks > 1:
        p.error("--ranks: this script cannot time several ranks with --device cuda")
    if a.optimizer == "auto":
        a.optimizer = "adamw" if a.model in TEXT else "sgd"
    return a


TEXT = ("gpt2", "bert_base")


def make_optimizer(a, model):
    """The update rule of `bench train`: the same rates, momenta and weight decay, of the same parameters."""
    import torch

    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]  # biases and normalisation layers
    if a.optimizer == "adamw":
        groups = [{"params": weights, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, fused=True)
    groups = [{"params": weights, "weight_decay": 1e-4}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=0.01, momentum=0.9, fused=True)


def describe_optimizer(optimizer):
    """The fields of `optimizer` in the output of bench train."""
    weights, others = optimizer.param_groups
    about = {"weight_decay": weights["weight_decay"], "decay_norms_and_biases": others["weight_decay"] != 0,
             "clip_norm": 0.0}
    if "betas" in weights:
        return {"name": "adamw", "betas": list(weights["betas"]), "eps": weights["eps"]} | about
    return {"name": "sgd", "momentum": weights["momentum"], "nesterov": weights["nesterov"]} | about


def make_model(a):
    import torchvision

    if a.model == "simple_cnn":
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        from simple_cnn import SimpleCNN

        return SimpleCNN(a.classes)
    if not a.model.startswith("resnet"):
        raise SystemExit(f"unknown model: got {a.model!r}, want simple_cnn, resnet18, resnet34, resnet50, resnet101, resnet152, gpt2 or bert_base")
    return getattr(torchvision.models, a.model)(num_classes=a.classes)


def make_images(a):
    """The model, a function that calls the model with the batch, and one that computes the loss of its output."""
    import torch

    model = make_model(a).to(a.device, memory_format=torch.channels_last).train()
    images = torch.randn(a.batch_size, 3, a.image_size, a.image_size).to(a.device, memory_format=torch.channels_last)
    labels = torch.randint(0, a.classes, (a.batch_size,)).to(a.device)
    return model, lambda run: run(images), lambda logits: torch.nn.functional.cross_entropy(logits.float(), labels)


def make_masked_model(config, tokens):
    """BERT with its masked tokens. forward returns the mean loss of these tokens."""
    import torch
    import transformers

    masked = (torch.rand(tokens.numel(), device=tokens.device) < 0.15).nonzero().flatten()

    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = transformers.BertForMaskedLM(config)

        def forward(self, tokens):
            hidden = self.net.bert(tokens).last_hidden_state.flatten(0, 1)[masked]
            return torch.nn.functional.cross_entropy(self.net.cls(hidden).float(), tokens.flatten()[masked])

    return Masked()


def make_text(a):
    """Like make_images, for text."""
    import torch
    import transformers

    if a.model == "gpt2":
        config = transformers.GPT2Config(attn_implementation="sdpa", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                                         use_cache=False)
    else:
        config = transformers.BertConfig(attn_implementation="sdpa", hidden_dropout_prob=0.0,
                                         attention_probs_dropout_prob=0.0)
    a.vocabulary = config.vocab_size
    tokens = torch.randint(0, config.vocab_size, (a.batch_size, a.seq_len)).to(a.device)
    if a.model == "gpt2":
        model = transformers.GPT2LMHeadModel(config).to(a.device).train()
        return model, lambda run: run(input_ids=tokens, labels=tokens), lambda output: output.loss
    return make_masked_model(config, tokens).to(a.device).train(), lambda run: run(tokens), lambda loss: loss


def make_step(a):
    """A function that does one training step and returns its loss, and the optimizer."""
    import torch

    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    model, call, compute_loss = (make_text if a.model in TEXT else make_images)(a)
    optimizer = make_optimizer(a, model)
    run = torch.compile(model) if a.compile else model
    scaler = torch.amp.GradScaler(a.device, enabled=a.precision == "fp16")
    narrow = {"f32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[a.precision]

    def step(run=run):
        with torch.autocast(a.device, dtype=narrow, enabled=a.precision != "f32"):
            output = call(run)
        loss = compute_loss(output)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return loss

    if a.ranks > 1:
        replicas = fastest_buckets(a, run, step)
        return lambda: step(replicas), optimizer
    return step, optimizer


def fastest_buckets(a, model, step):
    """The model in DistributedDataParallel, with the size of buckets whose steps are fastest on rank 0."""
    import torch

    def wrapped(cap):
        return torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=cap, gradient_as_bucket_view=True,
                                                         static_graph=True, broadcast_buffers=False)

    if not a.bucket_cap_mb:
        seconds = []
        for cap in BUCKETS:
            replicas, times = wrapped(cap), []
            for _ in range(4):
                start = time.perf_counter()
                step(replicas)
                times.append(time.perf_counter() - start)
            seconds.append(min(times[2:]))
            del replicas
        best = torch.tensor(seconds.index(min(seconds)))
        torch.distributed.broadcast(best, 0)
        a.bucket_cap_mb = BUCKETS[best]
    return wrapped(a.bucket_cap_mb)


def start_ranks(ranks):
    """Runs this program once per rank. Rank 0 writes to the standard output of this process."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    processes = []
    for rank in range(ranks):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(port)}
        processes.append(subprocess.Popen([sys.executable] + sys.argv, env=env, stdout=None if rank == 0
                                          else subprocess.DEVNULL))
    raise SystemExit(max(p.wait() for p in processes))


def main():
    a = parse_arguments()
    if a.malloc == "tcmalloc":
        preload_tcmalloc()
    if a.ranks > 1 and "RANK" not in os.environ:
        start_ranks(a.ranks)
    import torch

    samples = a.batch_size
    if a.ranks > 1:
        torch.distributed.init_process_group("gloo")
        a.batch_size, a.threads = a.batch_size // a.ranks, max(a.threads // a.ranks, 1)

    identity = {"peer": "pytorch", "version": torch.__version__, "python": sys.version.split()[0],
                "malloc": loaded_allocator()}
    if a.check:
        print(json.dumps(identity))
        return
    step, optimizer = make_step(a)
    together, wait = (10, torch.cuda.synchronize) if a.device == "cuda" else (1, lambda: None)
    for _ in range(a.warmup * together):
        step()
    seconds = []
    for _ in range(-(-a.steps // together)):
        wait()
        start = time.perf_counter()
        for _ in range(together):
            loss = step()
        wait()
        seconds.append((time.perf_counter() - start) / together)
    median = statistics.median(seconds)
    print(json.dumps({
        **identity,
        "model": a.model,
        "device": a.device,
        "device_name": torch.cuda.get_device_name() if a.device == "cuda" else "",
        "precision": a.precision,
        **({"sequence_length": a.seq_len, "vocabulary": a.vocabulary, "dropout": 0.0} if a.model in TEXT
           else {"image_size": a.image_size, "classes": a.classes}),
        "batch_size": samples,
        "grad_accumulation": 1,
        "optimizer": describe_optimizer(optimizer),
        "ranks": a.ranks,
        **({"bucket_cap_mb": a.bucket_cap_mb, "batch_norm": "local"} if a.ranks > 1 else {}),
        "compile": a.compile,
        "threads": torch.get_num_threads(),
        "steps": len(seconds) * together,
        "step_seconds_median": median,
        "step_seconds_min": min(seconds),
        "step_seconds_max": max(seconds),
        "samples_per_second": samples / median,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if a.device == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "loss": loss.item(),
    }))


if __name__ == "__main__":
    main()
