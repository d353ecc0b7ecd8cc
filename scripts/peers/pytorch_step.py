#!/usr/bin/env python3
"""Times PyTorch's training step, for comparison with `hetero-train bench train`.

    python3 scripts/peers/pytorch_step.py --model resnet50 --image-size 32 --batch-size 128 --precision bf16 [--compile]
    python3 scripts/peers/pytorch_step.py --model gpt2 --seq-len 256 --batch-size 4 --precision bf16 [--compile]

The last line on stdout is a JSON object. Fields that `bench train --json` also has have the same names.

A step consists of forward, loss, backward, the optimizer with weight decay, and the release of gradients. The optimizer is SGD
with momentum for images, AdamW for text. The script makes the batch once, so the time contains no loading.

The models of text are those of the library transformers, with scaled_dot_product_attention and without dropout, which would
prevent PyTorch's fast attention on a CPU. BERT predicts 15 % of the tokens.

On a CPU, PyTorch gets its best known settings: channels_last, the fused optimizer, autocast for bf16 (weights stay f32),
torch.compile on request, and tcmalloc. glibc's allocator returns large blocks to the system and page-faults them at each step,
which takes up to a third of the step time. If libtcmalloc_minimal.so.4 (Debian: libtcmalloc-minimal4) is installed, the script
therefore restarts itself with this library preloaded. `malloc` in the result names the allocator that was in use.

On a GPU (--device cuda) it gets channels_last, cuDNN's search for the fastest algorithms, the fused optimizer, autocast (with a
scaled loss for fp16), and torch.compile on request. f32 is f32 without TF32, as in hetero-train. A GPU runs asynchronously to
the host, so the script times ten steps together.

--ranks N starts N processes of DistributedDataParallel over Gloo, which divide batch and threads among them. The result is that
of rank 0, with the samples of all ranks. Each rank normalises over its own samples, because PyTorch on a CPU supports nothing else.
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


def find_tcmalloc():
    """The library's name or path, or None. find_library needs ldconfig or a compiler, which a container may lack."""
    found = ctypes.util.find_library("tcmalloc_minimal") or ctypes.util.find_library("tcmalloc")
    if found:
        return found
    paths = [p for root in ("/usr/lib", "/usr/lib64", "/usr/local/lib") for p in glob.glob(f"{root}/**/libtcmalloc*.so.*", recursive=True)]
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
    p.add_argument("--model", default="resnet50", help="simple_cnn, a ResNet of torchvision, gpt2 or bert_base (default resnet50)")
    p.add_argument("--image-size", type=int, default=32, help="pixels (default 32)")
    p.add_argument("--seq-len", type=int, default=256, help="tokens of a sample of text (default 256)")
    p.add_argument("--batch-size", type=int, default=128, help="samples (default 128)")
    p.add_argument("--classes", type=int, default=1000, help="outputs (default 1000)")
    p.add_argument("--precision", choices=["f32", "bf16", "fp16"], default="f32", help="(default f32; fp16 on a GPU only)")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="(default cpu)")
    p.add_argument("--compile", action="store_true", help="torch.compile the model")
    p.add_argument("--steps", type=int, default=20, help="timed steps (default 20)")
    p.add_argument("--warmup", type=int, default=3, help="steps before the timed ones (default 3)")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="(default: the CPUs this process may use)")
    p.add_argument("--ranks", type=int, default=1, help="processes that share the batch (default 1)")
    p.add_argument("--check", action="store_true", help="time nothing: print the versions and the allocator")
    p.add_argument("--malloc", choices=["tcmalloc", "system"], default="tcmalloc", help="system: preload nothing")
    a = p.parse_args()
    if a.device == "cpu" and a.precision == "fp16":
        p.error("--precision fp16 needs --device cuda")
    if a.device == "cuda" and a.ranks > 1:
        p.error("--ranks: this script cannot time several ranks with --device cuda")
    return a


TEXT = ("gpt2", "bert_base")


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
    """The model, its optimizer, a function that calls the model with the batch, and one that computes the loss of its output."""
    import torch

    model = make_model(a).to(a.device, memory_format=torch.channels_last).train()
    images = torch.randn(a.batch_size, 3, a.image_size, a.image_size).to(a.device, memory_format=torch.channels_last)
    labels = torch.randint(0, a.classes, (a.batch_size,)).to(a.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, fused=True)
    return model, optimizer, lambda run: run(images), lambda logits: torch.nn.functional.cross_entropy(logits.float(), labels)


def make_text(a):
    """Like make_images, for text."""
    import torch
    import transformers

    if a.model == "gpt2":
        config = transformers.GPT2Config(attn_implementation="sdpa", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.BertConfig(attn_implementation="sdpa", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        model = transformers.BertForMaskedLM(config)
    model = model.to(a.device).train()
    tokens = torch.randint(0, config.vocab_size, (a.batch_size, a.seq_len)).to(a.device)
    labels = tokens.clone()
    if a.model == "bert_base":
        labels[torch.rand(labels.shape).to(a.device) > 0.15] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    return model, optimizer, lambda run: run(input_ids=tokens, labels=labels), lambda output: output.loss


def make_step(a):
    """A function that does one training step and returns its loss."""
    import torch

    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    model, optimizer, call, compute_loss = (make_text if a.model in TEXT else make_images)(a)
    run = torch.compile(model) if a.compile else model
    if a.ranks > 1:
        run = torch.nn.parallel.DistributedDataParallel(run, gradient_as_bucket_view=True, broadcast_buffers=False)

    scaler = torch.amp.GradScaler(a.device, enabled=a.precision == "fp16")
    narrow = {"f32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[a.precision]

    def step():
        with torch.autocast(a.device, dtype=narrow, enabled=a.precision != "f32"):
            output = call(run)
        loss = compute_loss(output)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def start_ranks(ranks):
    """Runs this program once per rank. Rank 0 writes to the standard output of this process."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    processes = []
    for rank in range(ranks):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        processes.append(subprocess.Popen([sys.executable] + sys.argv, env=env, stdout=None if rank == 0 else subprocess.DEVNULL))
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

    identity = {"peer": "pytorch", "version": torch.__version__, "python": sys.version.split()[0], "malloc": loaded_allocator()}
    if a.check:
        print(json.dumps(identity))
        return
    step = make_step(a)
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
        **({"sequence_length": a.seq_len} if a.model in TEXT else {"image_size": a.image_size}),
        "batch_size": samples,
        "ranks": a.ranks,
        "classes": a.classes,
        "compile": a.compile,
        "threads": torch.get_num_threads(),
        "steps": len(seconds) * together,
        "step_seconds_median": median,
        "step_seconds_min": min(seconds),
        "step_seconds_max": max(seconds),
        "samples_per_second": samples / median,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if a.device == "cuda" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "loss": loss.item(),
    }))


if __name__ == "__main__":
    main()
