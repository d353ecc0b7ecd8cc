"""The start of a balancer: descriptions, measurements, and the agreement of the ranks."""
import time
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from . import describe, errors, sampler as samplers
from .timing import GradientHook


class Opening:
    """The part of Balancer before the first batch."""

    # Set by Balancer.
    rank: int
    world_size: int
    global_batch: int
    accumulation: int
    micro_batch: int
    policy: str
    device: torch.device
    _ranks: Any
    _bridge: Any
    _clock: Any
    _model: Any
    _optimizer: Any
    _hook: Optional[GradientHook]
    _user_hook: Tuple[Any, Any]
    _sampler: Optional[samplers.BalancedBatchSampler]
    _position: Tuple[int, int]
    _step: int
    _samples: int
    _reports: Any
    _total: Optional[int]
    _max_share: Optional[int]
    _measures: bool
    _opened: bool
    _closed: bool
    _abort: Any  # of Ending
    _inputs: str = ""  # of the model in profile()

    def profile(self, step: Callable[[int], Any], budget: float = 10.0, shares: Optional[Sequence[int]] = None) -> List[
            Tuple[int, float]]:
        """Measures the step time of this rank at several shares before the first step, and keeps the curve in the cache.

        step(n) computes forward and backward of n samples without communication, for example with model.no_sync().
        budget: s. shares: numbers of samples; None: about eight from 1 to the micro-batch. Returns (samples, s) pairs.
        The first call of step shows the inputs of the model. Without shares, if the cache has the curve of this model
        with these inputs on this device, it returns that curve. settings={"balance.curve_cache": "off"} always measures.
        """
        if self._opened or self._sampler is None:
            raise errors.BatchError("profile() must come after sampler() and attach(), and before the first batch")
        bridge, chosen, model = self._bridge, shares is not None, self._need_model()
        assert bridge is not None
        most = min(self._max_share or self.micro_batch, self.micro_batch)
        if shares is None:
            shares = [max(1, round(most * f)) for f in (0.06, 0.12, 0.25, 0.37, 0.5, 0.62, 0.75, 1.0)]
        shares = sorted(set(shares))
        end = time.perf_counter() + budget
        times: Dict[int, List[float]] = {}

        def once(n: int) -> float:
            self._synchronize()
            start = time.perf_counter()
            step(n)
            self._synchronize()
            return time.perf_counter() - start

        def fits(n: int, calls: int) -> bool:
            last = max(times) if times else n  # a share takes at most as long per sample as a smaller one
            return not times or time.perf_counter() + calls * times[last][0] * max(1.0, n / last) <= end

        with describe.watch_inputs(model) as seen:
            once(shares[0])
        self._inputs = describe.describe_inputs(model, seen)
        if self._inputs and not chosen:
            bridge.send("lookup", **self._description(model), tflops=0, copy_gbytes_per_second=0, curve=[])
            kept = bridge.expect("curve")["points"]
            if kept:
                return [(p["samples"], p["seconds"]) for p in kept]
        for n in shares:
            if not fits(n, 2):
                warnings.warn(f"hetero_train: the budget of {budget} s ended the profile after {len(times)} of {len(shares)} shares")
                break
            if n > shares[0]:
                once(n)  # allocates and compiles
            times[n] = [once(n)]
        for n in [n for _ in range(4) for n in times]:
            if time.perf_counter() + max(times[n]) <= end:
                times[n].append(once(n))
        found = [(n, sorted(t)[len(t) // 2]) for n, t in times.items()]
        self._curve = [{"samples": n, "seconds": s} for n, s in found]
        return found

    def _synchronize(self) -> None:
        if self._clock.cuda:
            torch.cuda.synchronize(self.device)

    def _open(self) -> None:
        """Starts the balancer of all ranks, before the first batch."""
        if self._opened:
            return
        if self._closed:
            raise errors.BatchError("the balancer is closed")
        self._opened = True
        error: Optional[BaseException] = None
        try:
            self._start()
        except Exception as e:
            error = e
        if error is not None and isinstance(error, errors.RankLostError):
            self._abort(error)
            raise error
        try:
            words = self._ranks.objects("start", self._order_of_samples(), error=error)
            for rank, word in enumerate(words):
                if word != words[0]:
                    raise errors.SamplerError(f"rank {rank} has the sampler {word}, rank 0 {words[0]}: pass the same arguments to balancer.sampler() on all ranks")
        except BaseException as e:
            self._abort(e)
            raise
        self._end = time.perf_counter()

    def _order_of_samples(self) -> Optional[Dict[str, int]]:
        return None if self._sampler is None else dict(samplers.epoch_state(self._sampler, self._position),
                                                       step=self._step)

    def _need_model(self) -> torch.nn.Module:
        if self._model is None:
            self._model = describe.find_model()
        if self._model is None and self.world_size > 1:
            raise errors.BatchError("no model: wrap the model in DistributedDataParallel before the first batch, or name it with balancer.attach(model)")
        return self._model if self._model is not None else torch.nn.Module()

    def _description(self, model: torch.nn.Module) -> Dict[str, Any]:
        """Returns what this rank computes, for the messages start and lookup."""
        first, data, optimizer = next(model.parameters(), torch.zeros(())), self._sampler, self._optimizer
        dtype = torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() and self._clock.cuda else first.dtype
        names = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
        name = describe.plain_name(type(data._dataset).__name__, "Dataset") if data else "none"
        return {"model": describe.describe_model(model), "inputs": self._inputs,
                "dataset": {"name": name, "samples": data.length if data else 0},
                "device": describe.describe_device(self.device), "dtype": names.get(dtype, "float32"),
                "torch": torch.__version__.split("+")[0],
                "optimizer": describe.plain_name(type(optimizer).__name__, "optimizer") if optimizer is not None else "",
                "workers": 0, "max_share": self._max_share or 0, "sync_norm": describe.has_sync_norm(model),
                "step": self._step, "samples": self._samples, "steps": self._total or 0, "epoch_steps": data.epoch_steps if data else 0}

    def _start(self) -> None:
        model = self._need_model()
        describe.refuse(model)
        if self.world_size > 1 and not hasattr(model, "register_comm_hook") and self._measures:
            raise errors.BatchError(f"policy {self.policy} needs the own time of each rank, and the passes of {type(model).__name__} wait for other ranks: "
                                    "pass fixed_shares or policy=\"proportional\" to the balancer, or use DistributedDataParallel (docs/pytorch.md)")
        data = self._sampler
        if (self.world_size > 1 and describe.has_sync_norm(model) and data is not None and not data.drop_last
                and data.length % self.global_batch):
            raise errors.SettingsError("the last batch of an epoch may leave a rank without samples, which then computes one with weight 0, "
                                       "and this sample would change the statistics of SyncBatchNorm: pass drop_last=True to balancer.sampler()")
        if hasattr(model, "register_comm_hook"):
            self._hook = GradientHook(model, self._clock, *self._user_hook)
        if self.rank == 0 and self.world_size > 1 and describe.has_batch_norm(model):
            warnings.warn("hetero_train: BatchNorm normalises with the samples of each rank only, so the result depends on the shares: "
                          "use SyncBatchNorm, GroupNorm, or eval mode for a result that does not")
        what = self._description(model)
        speed = describe.measure_speed(self.device, getattr(torch, what["dtype"]))
        bridge = self._bridge
        assert bridge is not None
        bridge.send("start", **what, **speed, curve=self._curve)
        while True:
            m = bridge.receive()
            if m["type"] == "started":
                break
            if m["type"] != "gather":
                raise errors.BridgeError(f"hetero-train answered {m['type']!r} to a start: install the package and the program from one release")
            bridge.send("gathered", values=self._ranks.objects(m["what"], m["value"]))
        self.shares, self.folder = tuple(m["shares"]), m["folder"]
        self._reports.measured(m["telemetry"] or [])
        self.policy, self.cached = m["policy"], m["cached"]
        self._schedule = samplers.Schedule(self.shares)
