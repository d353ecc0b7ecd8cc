"""The exchange of small values between the ranks, over a process group of their own."""
from datetime import timedelta
from typing import Any, List, Optional, Tuple

import torch
import torch.distributed as dist

from .errors import HeteroTrainError, OutOfStepError, RankLostError, SettingsError

LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
"""Parts of the errors after which a rank has ended."""
REASON = "hetero_train_reason"
"""Key of the reason of the first rank that fails, in the store of the process group."""


def default_timeout() -> timedelta:
    """Returns the time-out of the default process group."""
    try:
        group = dist.distributed_c10d._get_default_group()
        for kind in ("cpu", "cuda"):
            try:
                return group._get_backend(torch.device(kind)).options._timeout
            except (RuntimeError, AttributeError):
                continue
    except (RuntimeError, AttributeError):
        pass
    return timedelta(minutes=30)


class Ranks:
    """The ranks of the default process group. A call fails if a rank fails or does not answer within timeout, in s."""

    def __init__(self, timeout: Optional[float]) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise SettingsError("torch.distributed is not initialized: call torch.distributed.init_process_group() before hetero_train.Balancer()")
        limit = timedelta(seconds=timeout) if timeout else default_timeout()
        self.timeout = limit.total_seconds()
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.group = dist.new_group(backend="gloo", timeout=limit)

    def _lost(self, what: str, e: Exception) -> RankLostError:
        text = str(e)
        if any(sign in text for sign in ("Timed out", "timed out", "Application timeout", "Watchdog")):
            cause = f"another rank has not answered for {self.timeout:.0f} s"
        else:
            said = self._said()
            cause = (f"another rank has failed: {said}" if said
                     else "another rank has failed, or has ended its loop early")
            if not any(sign in text for sign in LOST):
                cause += f" ({(text.splitlines() or [''])[0][:300]})"
        return RankLostError(f"rank {self.rank}: {what}: {cause}; look for the first error of the other ranks, "
                             "and check that all ranks do the same number of steps")

    def leave(self, reason: str) -> None:
        """Leaves the reason why this rank fails for the other ranks, which then lose their connections to it."""
        try:
            store = dist.distributed_c10d._get_default_store()
            if not store.check([REASON]):
                store.set(REASON, reason[:1000])
        except Exception:  # the store has ended with its rank; the reason only improves a message
            pass

    def _said(self) -> str:
        """Returns the reason that a failed rank has left."""
        try:
            store = dist.distributed_c10d._get_default_store()
            return store.get(REASON).decode() if store.check([REASON]) else ""
        except Exception:
            return ""

    def objects(self, what: str, own: Any = None, error: Optional[BaseException] = None) -> List[Any]:
        """Exchanges one object of each rank. If a rank passes an error, all ranks raise."""
        if self.size == 1:
            if error is not None:
                raise error
            return [own]
        words: List[Any] = [None] * self.size
        said = None if error is None else f"{type(error).__name__}: {error}"
        try:
            dist.all_gather_object(words, (what, own, said), group=self.group)
        except Exception as e:
            if error is not None:
                raise error
            raise self._lost(what, e) from e
        if error is not None:
            raise error
        for rank, (_, _, reason) in enumerate(words):
            if reason is not None:
                raise RankLostError(f"rank {rank} has failed ({what}): {reason}")
        for rank, (other, _, _) in enumerate(words):
            if other != words[0][0]:
                raise OutOfStepError(f"rank {rank} is at {other!r} and rank 0 at {words[0][0]!r}: all ranks must call the balancer in the same order")
        return [value for _, value, _ in words]

    def begin_rows(self, what: str, own: torch.Tensor) -> Tuple[Any, List[torch.Tensor]]:
        """Begins to exchange one tensor of each rank. All have the same length, and are complete after finish_rows."""
        if self.size == 1:
            return None, [own]
        all_rows = [torch.empty_like(own) for _ in range(self.size)]
        try:
            return dist.all_gather(all_rows, own, group=self.group, async_op=True), all_rows
        except Exception as e:
            raise self._lost(what, e) from e

    def finish_rows(self, work: Any, what: str) -> None:
        """Waits for the tensors of begin_rows."""
        try:
            if work is not None:
                work.wait()
        except Exception as e:
            raise self._lost(what, e) from e

    def sum(self, what: str, value: float) -> float:
        """Returns the sum of a value over the ranks."""
        if self.size == 1:
            return value
        t = torch.tensor([value], dtype=torch.float64, device="cpu")
        try:
            dist.all_reduce(t, group=self.group)
        except Exception as e:
            raise self._lost(what, e) from e
        return float(t.item())

    def explain(self, e: BaseException) -> Optional[HeteroTrainError]:
        """Returns an exception with advice if e is a failed communication, else None."""
        text = str(e)
        if isinstance(e, getattr(dist, "DistError", ())) or isinstance(e, RuntimeError) and any(
                sign in text for sign in (*LOST, "Timed out", "timed out", "Watchdog caught", "NCCL error")):
            return self._lost("the sum of gradients", e)  # type: ignore[arg-type]
        return None
