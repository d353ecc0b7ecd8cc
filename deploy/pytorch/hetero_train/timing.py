"""Times of a rank's own work, without waits for other ranks: by the clock on CPUs, by CUDA events on GPUs."""
import time
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist

from .errors import BatchError

COLUMNS = ("seconds", "samples", "count", "loss", "data", "forward", "backward", "exposed", "hidden", "optimizer",
           "other", "bytes", "buckets")
"""The values of a report of a step: times in s, bytes in bytes, see docs/pytorch.md."""


class Clock:
    """Marks points in time. On a GPU, a mark is an event in the current stream, so the host does not wait."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"

    def mark(self) -> Any:
        """Returns a mark of now."""
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, a: Any, b: Any) -> float:
        """Returns the time from mark a to mark b, in s."""
        return a.elapsed_time(b) / 1000 if self.cuda else b - a

    def keep(self, value: torch.Tensor) -> torch.Tensor:
        """Returns a number on the host. From a GPU, it has arrived when a later mark has passed, so the host does not
        wait."""
        if not self.cuda:
            return value
        host = torch.empty((), dtype=torch.float32, device="cpu", pin_memory=True)
        return host.copy_(value, non_blocking=True)


class MicroTimes:
    """The marks of one micro-batch."""

    __slots__ = ("begin", "scaled", "ready", "summed", "first", "end", "data", "own", "count", "loss", "bytes",
                 "buckets", "extra")

    def __init__(self, begin: Any, data: float, own: int) -> None:
        self.begin, self.data, self.own = begin, data, own
        self.scaled = self.ready = self.summed = self.first = self.end = None
        self.count, self.loss, self.bytes, self.buckets, self.extra = 0.0, None, 0, 0, 0.0

    def add(self, clock: Clock, row: Dict[str, float]) -> None:
        """Adds the times to the row of the step. On a GPU, end must have passed."""
        between = clock.between
        row["samples"] += self.own
        row["count"] += self.count
        row["data"] += max(self.data, 0.0)
        if not clock.cuda:  # a GPU computes while the host waits for reports
            row["exposed"] += max(self.extra, 0.0)
        row["bytes"] += self.bytes
        row["buckets"] += self.buckets
        row["forward"] += between(self.begin, self.scaled)
        if self.ready is None:  # no gradients were summed: no_sync, or one rank
            row["backward"] += between(self.scaled, self.end)
            return
        row["backward"] += max(between(self.scaled, self.ready), 0.0)
        summed = self.summed if self.summed is not None else self.end
        exposed = max(between(self.ready, summed), 0.0)
        row["exposed"] += exposed
        row["hidden"] += max(between(self.first, self.ready), 0.0) if self.buckets > 1 else 0.0
        row["optimizer"] += max(between(self.ready, self.end) - exposed, 0.0)


class GradientHook:
    """The communication hook of DistributedDataParallel: it sums gradients as without it, and marks when they are ready.

    hook and state are the user's own communication hook; None: the default all-reduce.
    """

    def __init__(self, model: Any, clock: Clock, hook: Any = None, state: Any = None) -> None:
        self.clock, self.hook, self.state = clock, hook, state
        self.group = model.process_group
        self.world = dist.get_world_size(self.group)
        self.current: Optional[MicroTimes] = None  # None outside of a step
        try:
            model.register_comm_hook(None, self.sum)
        except RuntimeError as e:
            raise BatchError("the model has a communication hook already: pass it to the balancer, balancer.attach(model, hook=..., state=...), "
                             "instead of model.register_comm_hook()") from e

    def sum(self, _: Any, bucket: dist.GradBucket):  # PyTorch compares the annotations
        """Sums one bucket of gradients over the ranks."""
        times, clock = self.current, self.clock
        if times is not None:
            times.ready = clock.mark()
            if times.first is None:
                times.first = times.ready
            buffer = bucket.buffer()
            times.bytes += buffer.numel() * buffer.element_size()
            times.buckets += 1
        if self.hook is not None:
            future = self.hook(self.state, bucket)
        else:
            tensor = bucket.buffer()
            tensor.div_(self.world)
            future = dist.all_reduce(tensor, group=self.group, async_op=True).get_future().then(lambda f: f.value()[0])
        if times is None:
            return future

        def summed(f: "torch.futures.Future[torch.Tensor]") -> torch.Tensor:
            value = f.value()
            times.summed = clock.mark()
            return value

        return future.then(summed)


class Window:
    """The reports of the steps since the last exchange."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.micros: List[MicroTimes] = []  # of the step that is in progress
        self.steps: List[Tuple[List[MicroTimes], float, Dict[str, Any]]] = []

    def step_done(self, seconds: float, facts: Dict[str, Any]) -> None:
        """Ends a step that took seconds. facts are equal on all ranks."""
        self.steps.append((self.micros, seconds, facts))
        self.micros = []

    def take(self, lag: int) -> Tuple[List[List[float]], List[Dict[str, Any]]]:
        """Returns the rows and facts of the steps, except for the last lag ones, whose events may not have passed."""
        n = len(self.steps) - lag
        done, self.steps = self.steps[:n], self.steps[n:]
        if self.clock.cuda and done:
            done[-1][0][-1].end.synchronize()
        rows = []
        for micros, seconds, _ in done:
            row = dict.fromkeys(COLUMNS, 0.0)
            row["seconds"] = seconds
            for m in micros:
                m.add(self.clock, row)
                row["loss"] += float(m.loss) * m.count if m.count else 0.0
            rows.append([row[c] for c in COLUMNS])
        return rows, [facts for _, _, facts in done]
