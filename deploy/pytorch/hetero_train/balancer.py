"""The balancer of a rank."""
import atexit
import os
import sys
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from . import describe, errors, program, sampler as samplers
from .ending import Ending, Pause
from .opening import Opening
from .position import Position
from .ranks import Ranks
from .reports import Reports
from .timing import Clock, GradientHook, MicroTimes

EVERY = 20  # first steps after each of which the balancer may change the shares; later once in a window
WINDOW = 10  # largest number of steps of a window


class Balancer(Opening, Position, Ending):
    """Gives each rank a share of the batch that fits its speed, with the gradient of one process on the whole batch.

    All ranks create it with the same arguments, after init_process_group and before the first step.

    global_batch: samples of an optimizer step on all ranks together.
    accumulation: micro-batches of an optimizer step; it divides global_batch.
    policy: none, proportional, dynamic or hybrid (balance.policy).
    interval: optimizer steps between two decisions (balance.interval).
    fixed_shares: samples of the global batch for each rank, instead of a policy (balance.fixed_shares).
    max_share: largest number of samples of a micro-batch that fits into the memory of this rank; None: no limit.
    name, output_dir: the folder of the run is output_dir/name (experiment.name, experiment.output_dir).
    steps: optimizer steps of the whole run, for the remaining time and for probes that must pay; None: unknown.
    bench_worthless: exclude ranks without which every step is shorter (balance.bench_worthless).
    device: of the model; None: the current CUDA device if the default process group uses NCCL, else the CPU.
    timeout: longest wait for other ranks and for the program, in s; None: that of the default process group.
    log_level: debug, info, warn or error, for the messages of the program on standard error.
    settings: further settings by their keys in TOML, such as {"profile.tensorboard": True} (configs/README.md).
    """

    def __init__(self, global_batch: int, *, accumulation: int = 1, policy: str = "hybrid", interval: int = 10,
                 fixed_shares: Optional[Sequence[int]] = None, max_share: Optional[int] = None,
                 name: Optional[str] = None,
                 output_dir: Optional[str] = None, steps: Optional[int] = None, bench_worthless: bool = False,
                 device: Any = None, timeout: Optional[float] = None, log_level: str = "info",
                 settings: Optional[Dict[str, Any]] = None) -> None:
        self._ranks = Ranks(timeout)
        self.rank, self.world_size = self._ranks.rank, self._ranks.size
        self.global_batch, self.accumulation = global_batch, accumulation
        self._bridge: Optional[program.Bridge] = None
        error: Optional[BaseException] = None
        try:
            for key, value in (("global_batch", global_batch), ("accumulation", accumulation)):
                if isinstance(value, bool) or not hasattr(value, "__index__"):
                    raise errors.SettingsError(f"{key} = {value!r} is not a whole number")
            if accumulation < 1 or global_batch % max(accumulation, 1):
                raise errors.SettingsError(f"global_batch = {global_batch} is not a multiple of accumulation = {accumulation}: choose a multiple")
            if global_batch // accumulation < self.world_size and not bench_worthless:
                raise errors.SettingsError(f"global_batch: a micro-batch has {global_batch // accumulation} samples, want at least one for each of the {self.world_size} ranks: "
                                           "raise global_batch, or lower accumulation or the number of ranks")
            keys: Dict[str, Any] = dict(settings or {})
            keys.update({"data.batch_size": global_batch, "train.grad_accumulation": accumulation,
                         "balance.policy": policy, "balance.interval": interval})
            for key, value in (("balance.fixed_shares", fixed_shares), ("experiment.name", name),
                               ("experiment.output_dir", output_dir),
                               ("balance.bench_worthless", bench_worthless or None)):
                if value is not None:
                    keys[key] = value
            self._bridge = program.Bridge(self._ranks.timeout, log_level)
            from . import __version__
            self._bridge.send("hello", protocol=program.PROTOCOL, package=__version__, rank=self.rank,
                              world_size=self.world_size,
                              local_rank=int(os.environ.get("LOCAL_RANK", -1)),
                              local_world_size=int(os.environ.get("LOCAL_WORLD_SIZE", 0)),
                              settings=program.settings_text(keys))
            welcome = self._bridge.expect("welcome")
            self.program_version, self._measures = welcome["program"], welcome["measures"]
        except Exception as e:  # the other ranks must know, too
            error = e
        try:
            self._ranks.objects("start of the balancer", error=error)
        except BaseException:
            if self._bridge:
                self._bridge.close()
            raise
        self.micro_batch = global_batch // accumulation
        self.policy = policy
        self.device = torch.device(device) if device is not None else self._default_device()
        self._total, self._max_share = steps, max_share
        self._owner = os.getpid()
        self._clock = Clock(self.device)
        self._reports = Reports(self._ranks, self._clock, self._where)
        self._period = max(n for n in range(1, WINDOW + 1) if interval % n == 0)
        self._model: Any = None
        self._hook: Optional[GradientHook] = None
        self._optimizer: Any = None
        self._user_hook: Tuple[Any, Any] = (None, None)
        self._sampler: Optional[samplers.BalancedBatchSampler] = None
        self._queue = samplers.new_queue()
        self._schedule = samplers.Schedule([0])
        self._position = (0, 0)
        self._consumed = 0  # lists that the loop has used, over the whole run
        self._step = self._samples = 0  # optimizer steps done, and their samples on all ranks
        self._decided: Optional[Tuple[Tuple[int, ...], str]] = None  # shares and reason, to apply where all ranks agree
        self._current: Optional[samplers.Micro] = None
        self._times: Optional[MicroTimes] = None
        self._new_epoch = False
        self._last_shares: Optional[Tuple[int, ...]] = None
        self._paused = self._exchange_seconds = 0.0
        self._pausing = False
        self._waited: Optional[float] = None  # s for data since the last step; None: not measured
        self._end = time.perf_counter()
        self._step_seconds = 0.0
        self._curve: List[Dict[str, float]] = []
        self._opened = self._closed = False
        self.folder = ""
        self.share_of_oracle: Optional[float] = None
        self.shares: Tuple[int, ...] = ()
        self.reason = ""
        self._died_before = getattr(sys, "last_value", None)
        atexit.register(self._at_exit)

    def _default_device(self) -> torch.device:
        import torch.distributed as dist
        if "nccl" in str(dist.get_backend()) and torch.cuda.is_available():
            return torch.device("cuda", torch.cuda.current_device())
        return torch.device("cpu")

    # Preparation.

    def attach(self, model: Any, optimizer: Any = None, hook: Any = None, state: Any = None) -> Any:
        """Names the model whose gradients are summed, before the first step, and returns it.

        Without a call, the balancer takes the only DistributedDataParallel of the process. optimizer: its learning rate
        appears in the records. hook, state: the user's own communication hook, which the balancer then calls.
        """
        if self._opened:
            raise errors.BatchError("attach() must come before the first batch")
        describe.refuse(model)
        self._model, self._optimizer, self._user_hook = model, optimizer, (hook, state)
        return model

    # Steps.

    def step(self) -> "Balancer":
        """Returns the context of one micro-batch: forward, scale, backward and, after the last micro-batch, the
        update."""
        return self

    def begin_step(self) -> None:
        """Begins a micro-batch, for a loop or a library in which step() cannot enclose it. end_step() ends it."""
        if self._closed:
            raise errors.BatchError("the balancer is closed: call balancer.close() after the last step")
        self._open()
        if self._current is not None:
            raise errors.BatchError("balancer.step() is active already: end one step before the next")
        if not self._queue:
            raise errors.SamplerError("the loop has a batch that balancer.sampler() did not choose: pass DataLoader(..., batch_sampler=balancer.sampler(dataset)), "
                                      "and keep other libraries from replacing the sampler (docs/pytorch.md)")
        now = time.perf_counter()
        self._current = self._queue.popleft()
        gap = now - self._end - self._paused if self._waited is None else self._waited
        if self._new_epoch:  # an epoch starts workers, after an evaluation
            gap = 0.0
        self._new_epoch, self._paused, self._waited = False, 0.0, None
        self._gap = gap
        self._times = MicroTimes(self._clock.mark(), gap, self._current.own)
        self._times.extra, self._exchange_seconds = self._exchange_seconds, 0.0
        self._entered = now
        if self._hook is not None:
            self._hook.current = self._times

    def __enter__(self) -> "Balancer":
        self.begin_step()
        return self

    @property
    def updates(self) -> bool:
        """True in the last micro-batch of an optimizer step, in which the script updates the parameters."""
        if self._current is None:
            raise errors.BatchError("balancer.updates is known within balancer.step() only")
        return self._current.last

    def no_sync(self, model: Any = None) -> Any:
        """Returns model.no_sync() except in the last micro-batch of an optimizer step."""
        import contextlib
        model = model if model is not None else self._model
        return contextlib.nullcontext() if self.updates or not hasattr(model, "no_sync") else model.no_sync()

    @property
    def own_samples(self) -> int:
        """Samples of this rank in the current micro-batch; 0 for an excluded rank, whose batch has one sample of weight
        0."""
        if self._current is None:
            raise errors.BatchError("balancer.own_samples is known within balancer.step() only")
        return self._current.own

    def total(self, count: float) -> float:
        """Returns the sum of count over all ranks. For an excluded rank, pass 0 for its sample of weight 0."""
        return self._ranks.sum("the number of targets", float(count))

    def scale(self, loss: torch.Tensor, count: Optional[float] = None, total: Optional[float] = None) -> torch.Tensor:
        """Weights the mean loss of this rank's micro-batch, so that the gradient is that of the mean over the global batch.

        count: number of targets over which loss is a mean, for example valid tokens; None: it is a mean over samples.
        total: targets of the optimizer step on all ranks and in all its micro-batches; None: the balancer sums count,
        which is possible without accumulation.
        """
        micro, times = self._current, self._times
        if micro is None or times is None:
            raise errors.BatchError("balancer.scale() was called outside of balancer.step()")
        if times.scaled is not None:
            raise errors.BatchError("balancer.scale() was called twice in one step: scale the sum of the losses")
        if loss.numel() != 1:
            raise errors.BatchError(
                    f"balancer.scale() got a loss of shape {tuple(loss.shape)}, want the mean over the samples of this rank")
        if count is None:
            own, of = float(micro.own), float(micro.step_size)
        else:
            own = float(count) if micro.own else 0.0
            if total is None and self.accumulation > 1:
                raise errors.BatchError("balancer.scale(count=...) with accumulation needs total: the number of targets of all micro-batches of the step on all ranks "
                                        "(balancer.total sums a number over the ranks)")
            of = self._ranks.sum("the number of targets", own) if total is None else float(total)
            if not of > 0 or own < 0 or own > of:
                raise errors.BatchError(
                    f"balancer.scale() got {own:g} of {of:g} targets, want from 0 to the total, which must be above 0")
        times.loss, times.count = self._clock.keep(loss.detach().reshape(())), own
        times.scaled = self._clock.mark()
        if own == 0:
            return torch.nan_to_num(loss) * 0.0
        return loss * (self.world_size * own / of)

    def __exit__(self, kind: Any, e: Optional[BaseException], trace: Any) -> None:
        if e is None:
            self.end_step()
        else:
            self._failed(e)

    def end_step(self) -> None:
        """Ends a micro-batch that begin_step() began."""
        micro, times = self._leave()
        if micro is None or times is None:
            raise errors.BatchError("balancer.end_step() was called without begin_step()")
        try:
            self._finish(micro, times)
        except BaseException as failed:
            self._abort(failed)
            raise

    def _leave(self) -> Tuple[Optional[samplers.Micro], Optional[MicroTimes]]:
        was = self._current, self._times
        self._current = self._times = None
        if self._hook is not None:
            self._hook.current = None
        return was

    def _failed(self, e: BaseException) -> None:
        """Ends the run after an exception of the script. If other ranks caused it, raises one that says so."""
        self._leave()
        better = self._ranks.explain(e)
        self._abort(better or e)
        if better is not None:
            raise better from e

    def _finish(self, micro: samplers.Micro, times: MicroTimes) -> None:
        if times.scaled is None:
            raise errors.BatchError(
                "the step has no balancer.scale(loss): without it the gradient of unequal shares is wrong")
        if micro.last and self._hook is not None and times.buckets == 0 and self.world_size > 1:
            raise errors.BatchError("no gradients were summed in the last micro-batch of the step: call backward() of the scaled loss within balancer.step(), "
                                    "and use no_sync() only while balancer.updates is False")
        times.end = self._clock.mark()
        now = time.perf_counter()
        self._step_seconds += now - self._entered + max(self._gap, 0.0) + times.extra
        self._reports.micro_done(times)
        self._consumed = micro.number + 1
        self._position = (micro.epoch, self._position[1] + 1)
        if micro.last:
            self._step, self._samples = self._step + 1, self._samples + micro.step_size
            changed = self._last_shares is not None and micro.full and micro.shares != self._last_shares
            if micro.full:
                self._last_shares = micro.shares
            rate = self._optimizer.param_groups[0]["lr"] if self._optimizer is not None else None
            start = time.perf_counter()
            self._reports.step_done(self._step_seconds,
                                    {"epoch": micro.epoch, "epoch_step": micro.epoch_step,
                                     "epoch_steps": micro.epoch_steps,
                                     "settling": bool(changed or not micro.full or self._step == 1),
                                     "learning_rate": rate and float(rate), "time": time.time()})
            self._step_seconds = 0.0
            if self._step <= EVERY or self._step % self._period == 0:
                self._agree()
            self._exchange_seconds = time.perf_counter() - start
        self._end = time.perf_counter()

    def _give(self, wait: Optional[float] = None) -> Optional[Dict[str, Any]]:
        """Gives the program of this rank the reports of all steps so far; see Reports.give. Any rank may call it, also
        alone."""
        assert self._bridge is not None
        answer = self._reports.give(self._bridge, wait)
        if answer is not None:
            self.share_of_oracle = answer["share_of_oracle"]
            if answer["shares"] is not None:
                self._decided = tuple(answer["shares"]), answer.get("reason", "")
        return answer

    def _agree(self) -> None:
        """Applies the newest decision. All ranks call it after the same step, so all know the same lists."""
        answer = self._give()
        if answer is not None:
            self._reports.measured(answer["telemetry"] or [])
        if self._decided is not None:
            (self.shares, self.reason), self._decided = self._decided, None
            # No rank has asked for this list yet, however far its workers prefetch.
            self._schedule.change(self._reports.issued, self.shares, self._consumed)

    def _where(self) -> Tuple[int, ...]:
        return self._step, *self._position, self._consumed, self._sampler.issued if self._sampler else 0

    # Between steps.

    def pause(self) -> Any:
        """Returns a context for work between steps that is no training, such as an evaluation or a checkpoint."""
        return Pause(self)

    def evaluated(self, loss: float, samples: int = 0, seconds: float = 0.0) -> None:
        """Adds the result of an evaluation to the records: the mean loss, the number of samples and the time in s.

        Only rank 0's counts, and only rank 0 needs to call it.
        """
        self._ask("evaluated", "evaluation", loss=program.numbers([float(loss)])[0], samples=int(samples),
                  seconds=float(seconds))

    def saved(self, seconds: float = 0.0) -> None:
        """Tells the records that a checkpoint was saved within seconds, so that all records before it are on the disk.

        Only rank 0 needs to call it.
        """
        self._ask("saved", "saved", seconds=float(seconds))

    def _ask(self, name: str, kind: str, **values: Any) -> None:
        if not self._opened or self._closed:
            raise errors.BatchError(f"balancer.{name}() was called before the first batch or after close(): the run has no records then")
        if self.within_step:
            raise errors.BatchError(f"balancer.{name}() was called within an optimizer step: call it between two steps")
        with self.pause():
            self._give()
            self._bridge.send(kind, step=self._step, **values)
            self._bridge.expect("done")
