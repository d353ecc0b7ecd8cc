"""The exchange of the ranks' reports about their steps. It goes on while the next step runs."""
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple

import torch

from . import errors, program
from .ranks import Ranks
from .timing import COLUMNS, Clock, MicroTimes, Window

SENSORS = 64  # room for the telemetry of a rank
HEAD = 6  # step, epoch, lists of the epoch used, lists used, lists asked for, sensors
POLL = 0.0005  # s between two looks for a report


class _Report(NamedTuple):
    """The reports of all ranks about one step, which may still be on their way."""

    work: Any  # of the exchange; None: done
    rows: List[torch.Tensor]  # by rank
    facts: Dict[str, Any]  # equal on all ranks

    def arrives(self, wait: Optional[float]) -> bool:
        """Waits for the exchange, at most wait s. None: until the time-out of the ranks, after which it fails."""
        if wait is None or self.work is None:
            return True
        end = time.monotonic() + wait
        while not self.work.is_completed():
            if time.monotonic() >= end:
                return False
            time.sleep(POLL)
        return True


class Reports:
    """The reports of the ranks.

    The exchange of a step begins at its end, so a rank that needs the reports waits for no later step. position returns
    the step, lists of the epoch used, and so on, as in HEAD; all but the last value must be equal on all ranks.
    """

    def __init__(self, ranks: Ranks, clock: Clock, position: Callable[[], Tuple[int, ...]]) -> None:
        self._ranks, self._window, self._position = ranks, Window(clock), position
        self._lag = 1 if clock.cuda else 0  # steps whose events may not have passed
        self._under_way: Deque[_Report] = deque()
        self._telemetry: List[Optional[float]] = []  # of this rank, for the next report
        self._sensors: List[List[Optional[float]]] = []  # of all ranks
        self._given = 0  # steps of the run whose reports the program has
        self.issued = 0  # most lists that a rank has asked for, at the newest report

    def resume(self, step: int) -> None:
        """Continues after a step."""
        self._given = step

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

    def step_done(self, seconds: float, facts: Dict[str, Any]) -> None:
        """Begins the exchange of the step that ends, or of the step before it on a GPU. facts are equal on all ranks."""
        self._window.step_done(seconds, facts)
        self._begin(self._lag)

    def finish(self) -> None:
        """Begins the exchange of the last step, on all ranks."""
        self._begin(0)

    def _begin(self, lag: int) -> None:
        position = self._position()
        for row, facts in zip(*self._window.take(lag)):
            sensors = [float("nan") if v is None else v for v in self._telemetry]
            own = torch.tensor([*position, len(sensors), *sensors, *[0.0] * (SENSORS - len(sensors)), *row],
                               dtype=torch.float64, device="cpu")
            self._telemetry = []
            work, rows = self._ranks.begin_rows(f"the reports of step {position[0]}", own)
            self._under_way.append(_Report(work, rows, facts))

    def give(self, bridge: program.Bridge, wait: Optional[float] = None) -> Optional[Dict[str, Any]]:
        """Gives the program the reports of all ranks that arrive within wait s, and returns its answer.

        None: wait until the time-out of the ranks, and fail if a report does not arrive. The answer is None if there
        are no reports.
        """
        steps: List[Dict[str, Any]] = []
        failed: Optional[errors.HeteroTrainError] = None
        while self._under_way and self._under_way[0].arrives(wait):
            try:
                words = self._words(self._under_way[0])
            except errors.HeteroTrainError as e:
                failed = e
                break
            steps.append(self._step(words, self._under_way.popleft().facts))
        answer = None
        if steps:
            bridge.send("steps", first=self._given + 1, steps=steps, telemetry=self._sensors)
            self._given += len(steps)
            answer = bridge.expect("decided")
        if failed is not None and wait is None:
            raise failed
        return answer

    def _words(self, report: _Report) -> List[List[float]]:
        self._ranks.finish_rows(report.work, "the reports of the ranks")
        words = [w.tolist() for w in report.rows]
        own = words[self._ranks.rank]
        for rank, w in enumerate(words):
            if w[:4] != own[:4]:
                raise errors.OutOfStepError(f"rank {rank} is at step {w[0]:.0f}, batch {w[2]:.0f} of epoch {w[1]:.0f}, this rank at step {own[0]:.0f}, batch {own[2]:.0f} of epoch {own[1]:.0f}: "
                                            "all ranks must do the same steps and end their epochs together")
        return words

    def _step(self, words: List[List[float]], facts: Dict[str, Any]) -> Dict[str, Any]:
        self.issued = int(max(w[HEAD - 2] for w in words))
        if any(w[HEAD - 1] for w in words):
            self._sensors = [program.numbers(w[HEAD:HEAD + int(w[HEAD - 1])]) for w in words]
        step: Dict[str, Any] = dict(facts, grad_norm=None, skipped=False, loss_scale=1.0)
        for c, name in enumerate(COLUMNS, HEAD + SENSORS):
            values = [w[c] for w in words]
            step[name] = [int(v) for v in values] if name in ("samples", "buckets") else program.numbers(values)
        return step

    def measured(self, telemetry: List[Optional[float]]) -> None:
        """Sends the telemetry of this rank with the next report."""
        self._telemetry = telemetry
