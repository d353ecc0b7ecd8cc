"""The exchange of the ranks' reports about their steps. It goes on behind the next step."""
from collections import deque
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

import torch

from . import errors, program
from .ranks import Ranks
from .timing import COLUMNS, Clock, MicroTimes, Window

SENSORS = 64  # room for the telemetry of a rank
HEAD = 6  # step, epoch, step of the epoch, lists used, lists asked for, sensors


class _Report(NamedTuple):
    """The reports of all ranks about one step, which may still be on their way."""

    work: Any  # of the exchange; None: done
    rows: List[torch.Tensor]  # by rank
    facts: Dict[str, Any]  # equal on all ranks


class Reports:
    """The reports of the ranks. The exchange of a step begins at its end, so a rank that needs them waits for no later step."""

    def __init__(self, ranks: Ranks, clock: Clock) -> None:
        self._ranks, self._window = ranks, Window(clock)
        self._lag = 1 if clock.cuda else 0  # steps whose events may not have passed
        self._under_way: Deque[_Report] = deque()
        self._telemetry: List[Optional[float]] = []  # of this rank, for the next report
        self._sensors: List[List[Optional[float]]] = []  # of all ranks
        self.given = 0  # steps of the run whose reports the program has
        self.issued = 0  # most lists that a rank has asked for, at the newest report

    def micro_done(self, times: MicroTimes) -> None:
        """Adds the times of a micro-batch to the step that is in progress."""
        self._window.micros.append(times)

    @property
    def within_step(self) -> bool:
        """True between the first and the last micro-batch of an optimizer step."""
        return bool(self._window.micros)

    @property
    def missing(self) -> int:
        """Steps that this rank has done and whose reports the program does not have."""
        return len(self._window.steps) + len(self._under_way)

    def step_done(self, seconds: float, facts: Dict[str, Any], position: Tuple[int, ...], issued: int) -> None:
        """Begins the exchange of the step that ends, or of the step before it on a GPU.

        position: step, epoch, step of the epoch and lists used, which must be equal on all ranks. issued: lists that this
        rank has asked for.
        """
        self._window.step_done(seconds, facts)
        self._send(self._lag, position, issued)

    def _send(self, lag: int, position: Tuple[int, ...], issued: int) -> None:
        rows, facts = self._window.take(lag)
        for row, fact in zip(rows, facts):
            sensors = [float("nan") if v is None else v for v in self._telemetry]
            own = torch.tensor([*position, issued, len(sensors), *sensors, *[0.0] * (SENSORS - len(sensors)), *row],
                               dtype=torch.float64)
            self._telemetry = []
            work, all_rows = self._ranks.begin_rows(f"the reports of step {position[0]}", own)
            self._under_way.append(_Report(work, all_rows, fact))

    def finish(self, position: Tuple[int, ...], issued: int) -> None:
        """Begins the exchange of the last step, on all ranks."""
        self._send(0, position, issued)

    def give(self, bridge: program.Bridge, wait: bool = True) -> Optional[Dict[str, Any]]:
        """Gives the program the reports of all ranks, and returns its answer; None: it has them. It waits for other
        ranks to end the same step. wait: False gives it those that are here, and raises no exception of another rank."""
        steps: List[Dict[str, Any]] = []
        while self._under_way:
            report = self._under_way[0]
            try:
                if report.work is not None and not wait and not report.work.is_completed():
                    break
                words = self._words(report)
            except errors.HeteroTrainError:
                if wait:
                    raise
                break
            self._under_way.popleft()
            if any(w[HEAD - 1] for w in words):
                self._sensors = [program.numbers(w[HEAD:HEAD + int(w[HEAD - 1])]) for w in words]
            step: Dict[str, Any] = dict(report.facts, grad_norm=None, skipped=False, loss_scale=1.0)
            for c, name in enumerate(COLUMNS, HEAD + SENSORS):
                values = [w[c] for w in words]
                step[name] = [int(v) for v in values] if name in ("samples", "buckets") else program.numbers(values)
            steps.append(step)
        if not steps:
            return None
        bridge.send("steps", first=self.given + 1, steps=steps, telemetry=self._sensors)
        self.given += len(steps)
        return bridge.expect("decided")

    def _words(self, report: _Report) -> List[List[float]]:
        self._ranks.finish_rows(report.work, "the reports of the ranks")
        words = [w.tolist() for w in report.rows]
        own = words[self._ranks.rank]
        for rank, w in enumerate(words):
            if w[:4] != own[:4]:
                raise errors.OutOfStepError(f"rank {rank} is at step {w[0]:.0f}, batch {w[2]:.0f} of epoch {w[1]:.0f}, this rank at step {own[0]:.0f}, batch {own[2]:.0f} of epoch {own[1]:.0f}: "
                                            "all ranks must do the same steps and end their epochs together")
        self.issued = int(max(w[4] for w in words))
        return words

    def measured(self, telemetry: List[Optional[float]]) -> None:
        """Sends the telemetry of this rank with the next report."""
        self._telemetry = telemetry
