"""The end of a run, in order or after an error."""
import atexit
import os
import sys
import time
from typing import Any, Callable

from . import errors


class Ending:
    """The part of Balancer that ends the run."""

    # Set by Balancer.
    rank: int
    _bridge: Any
    _reports: Any
    _step: int
    _owner: int
    _opened: bool
    _current: Any
    _ranks: Any
    _closed: bool
    _give: Any  # of Balancer
    _failed: Any
    _died_before: Any  # the last exception of a notebook before this run

    def close(self) -> None:
        """Ends the run, on all ranks after the same step. Without a call, the last steps are missing from the
        records."""
        if self._closed:
            return
        if self._current is not None:
            raise errors.BatchError("balancer.close() was called within balancer.step()")
        if self._opened:
            try:
                self._reports.finish()
                self._give()
            except BaseException as e:
                self._abort(e)
                raise
        self._finish_run(error="", stopped=False, closed=True)

    def _whole(self, train: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Calls a function that trains the whole run, and ends the run with it."""
        try:
            result = train(*arguments, **options)
        except BaseException as e:
            self._failed(e)
            raise
        self.close()
        return result

    def _finish_run(self, error: str, stopped: bool, closed: bool = False) -> None:
        self._closed = True
        atexit.unregister(self._at_exit)
        bridge = self._bridge
        if bridge is None or bridge.ended or os.getpid() != self._owner:
            if bridge is not None and os.getpid() == self._owner:
                bridge.close()
            return
        try:
            if self._opened:
                if error or stopped:
                    self._give(wait=0.0)
                bridge.send("end", step=self._step, error=error, stopped=stopped, closed=closed)
                if not error and not stopped:
                    answer = bridge.expect("ended")
                    self.share_of_oracle = answer["share_of_oracle"]
                else:
                    bridge.receive()
        except errors.HeteroTrainError:
            if not error and not stopped:
                raise
        finally:
            bridge.close()

    def _abort(self, e: BaseException) -> None:
        """Ends the run on this rank after an error, without other ranks."""
        if self._closed:
            return
        stopped = isinstance(e, (KeyboardInterrupt, GeneratorExit)) or isinstance(e, SystemExit) and not e.code
        text = f"rank {self.rank}: {type(e).__name__}"
        if str(e):
            text += ": " + str(e).removeprefix(f"rank {self.rank}: ")
        if not stopped:
            self._ranks.leave(text)
        self._finish_run(error="" if stopped else text[:4000], stopped=stopped)

    def _at_exit(self) -> None:
        if os.getpid() != self._owner or self._closed:
            return
        died = getattr(sys, "last_value", None)  # of an exception that ended the script between two steps
        if died is not None and died is not self._died_before:
            self._abort(died)
            return
        bridge = self._bridge
        if self._opened and bridge is not None and not bridge.ended:
            try:
                self._give(wait=0.0)
            except errors.HeteroTrainError:
                pass
        missing = self._reports.missing
        if missing and self.rank == 0:
            print(
                f"hetero_train: steps {self._step - missing + 1} to {self._step} are not in the records: call balancer.close() on all ranks before the process group ends",
                file=sys.stderr)
        self._finish_run(error="", stopped=False)


class Pause:
    """A pause between two steps, which is no training."""

    def __init__(self, balancer: Any) -> None:
        self._balancer = balancer

    def __enter__(self) -> None:
        b = self._balancer
        if b._current is not None:
            raise errors.BatchError("balancer.pause() was called within balancer.step()")
        self._outer, b._pausing = not b._pausing, True
        self._start = time.perf_counter()

    def __exit__(self, *_: Any) -> None:
        if self._outer:
            self._balancer._pausing = False
            self._balancer._paused += time.perf_counter() - self._start
