"""Descriptions of the model and the device of this rank, and a short measurement of the device."""
import contextlib
import gc
import hashlib
import re
import time
from typing import Any, Dict, Iterator, List, Optional

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_flatten

from .errors import BatchError


def find_model() -> Optional[DistributedDataParallel]:
    """Returns the only DistributedDataParallel of this process, or None if there is none."""
    found: List[DistributedDataParallel] = [o for o in gc.get_objects() if type(o) is DistributedDataParallel]
    if len(found) > 1:
        raise BatchError(f"this process has {len(found)} models in DistributedDataParallel: name the one to balance with balancer.attach(model)")
    return found[0] if found else None


def refuse(model: torch.nn.Module) -> None:
    """Raises BatchError for a model whose gradients or times would be wrong with unequal shares."""
    name = type(model).__name__
    parts = {type(m).__module__.split(".")[0] + "." + type(m).__name__ for m in model.modules()}
    if name == "FullyShardedDataParallel" or "torch.FullyShardedDataParallel" in parts:
        raise BatchError("FullyShardedDataParallel (version 1) is not supported: use fully_shard (FSDP2) or DistributedDataParallel (docs/pytorch.md)")
    if name in ("DeepSpeedEngine", "PipelineEngine"):
        raise BatchError(
            "DeepSpeed divides each loss by its number of micro-batches, and sums gradients in passes of its own, "
            "whose waits for other ranks would count as own time: "
            "use DistributedDataParallel, or fully_shard (FSDP2) for sharded states (docs/pytorch.md)")


def plain_name(text: str, default: str) -> str:
    """Returns a name of letters, digits, _ and -."""
    text = re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")
    return text if re.match(r"[A-Za-z]", text) else default


def describe_model(model: torch.nn.Module) -> Dict[str, Any]:
    """Returns the name of a model, a hash of its parameters' names, shapes and types, and their number."""
    inner = getattr(model, "module", model)
    digest, count = hashlib.sha256(), 0
    for name, p in inner.named_parameters():
        digest.update(f"{name} {tuple(p.shape)} {p.dtype} {p.requires_grad}\n".encode())
        count += p.numel()
    return {"name": plain_name(type(inner).__name__, "Model"), "hash": digest.hexdigest()[:16], "parameters": count}


@contextlib.contextmanager
def watch_inputs(model: torch.nn.Module) -> Iterator[List[torch.Tensor]]:
    """Collects the tensors that the first call of the model gets."""
    seen: List[torch.Tensor] = []

    def note(_: Any, arguments: Any, named: Any) -> None:
        if not seen:
            seen.extend(v for v in tree_flatten((arguments, named))[0] if torch.is_tensor(v))
    inner = model if type(model).__name__ == "OptimizedModule" else getattr(model, "module", model)
    if getattr(inner, "_compiled_call_impl", None) is not None:  # the hook would be compiled, too
        yield seen
        return
    hook = inner.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield seen
    finally:
        hook.remove()


def describe_inputs(model: torch.nn.Module, seen: List[torch.Tensor]) -> str:
    """Returns what a step time depends on besides the parameters: the shape and type of each input for one sample,
    compilation, and gradient checkpointing. Returns "" if no input was seen."""
    if not seen:
        return ""
    words = [f"{list(v.shape[1:])} {str(v.dtype).split('.')[-1]}" for v in seen]
    modules = list(model.modules()) + [model]
    if any(type(m).__name__ == "OptimizedModule" or getattr(m, "_compiled_call_impl", None) for m in modules):
        words.append("compiled")
    if any(getattr(m, "gradient_checkpointing", False) is True for m in modules):
        words.append("gradient checkpointing")
    text = ", ".join(words)
    return text if len(text) <= 200 else hashlib.sha256(text.encode()).hexdigest()[:16]


def has_sync_norm(model: torch.nn.Module) -> bool:
    """Reports whether the model normalises over the samples of all ranks."""
    return any(isinstance(m, torch.nn.SyncBatchNorm) for m in model.modules())


def has_batch_norm(model: torch.nn.Module) -> bool:
    """Reports whether the model, in training mode, normalises over the samples of this rank only."""
    kinds = torch.nn.modules.batchnorm._BatchNorm
    return any(isinstance(m, kinds) and not isinstance(m, torch.nn.SyncBatchNorm) and m.training
               for m in model.modules())


def cpu_name() -> str:
    """Returns the manufacturer's name of the CPU."""
    try:
        with open("/proc/cpuinfo") as f:
            for line in f:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    import platform
    return platform.processor() or platform.machine() or "CPU"


def describe_device(device: torch.device) -> Dict[str, Any]:
    """Returns the description of a device; memory in bytes."""
    d: Dict[str, Any] = {"kind": device.type, "name": "", "index": 0, "uuid": "", "bus_id": "", "threads": 0,
                         "memory_bytes": 0, "free_bytes": 0}
    if device.type != "cuda":
        import os
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
        d.update(kind="cpu", name=cpu_name(), threads=torch.get_num_threads(), memory_bytes=max(memory, 0))
        return d
    index = device.index if device.index is not None else torch.cuda.current_device()
    p = torch.cuda.get_device_properties(index)
    free, total = torch.cuda.mem_get_info(index)
    d.update(name=p.name, index=index, memory_bytes=total, free_bytes=free)
    if getattr(p, "uuid", None):
        uuid = str(p.uuid)
        d["uuid"] = uuid if uuid.startswith(("GPU-", "MIG-")) else "GPU-" + uuid
    if hasattr(p, "pci_bus_id"):
        d["bus_id"] = f"{p.pci_domain_id:08X}:{p.pci_bus_id:02X}:{p.pci_device_id:02X}.0"
    return d


def measure_speed(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> Dict[str, float]:
    """Measures matrix products (TFLOP/s) and copies (GB/s) for about the given time, in s."""
    side = 4096 if device.type == "cuda" else 512
    a = torch.randn(side, side, device=device, dtype=torch.float32).to(dtype)
    c = torch.empty(4 << 20, device=device)
    target = torch.empty_like(c)

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def rate(work: Any, limit: float) -> float:
        with torch.no_grad():
            work()
            wait()
            start, n = time.perf_counter(), 0
            while True:
                work()
                n += 1
                if device.type != "cuda" or n % 8 == 0:
                    wait()
                    took = time.perf_counter() - start
                    if took > limit:
                        return n / took

    products = rate(lambda: torch.mm(a, a), seconds * 0.7)
    copies = rate(lambda: target.copy_(c), seconds * 0.3)
    return {"tflops": products * 2 * side**3 / 1e12, "copy_gbytes_per_second": copies * 2 * c.numel() * 4 / 1e9}
