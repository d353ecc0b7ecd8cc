"""The samples of a run, and its position in them."""
from typing import Any, Dict, Optional, Tuple

from . import errors, loaders, sampler as samplers


class Position:
    """The part of Balancer that owns the samples."""

    # Set by Balancer.
    global_batch: int
    accumulation: int
    _opened: bool
    _current: Optional[samplers.Micro]
    _window: Any
    _sampler: Optional[samplers.BalancedBatchSampler]
    _position: Tuple[int, int]
    _step: int
    _reported: int
    _resume: Optional[Dict[str, Any]] = None

    def sampler(self, dataset: Any, shuffle: bool = True, seed: int = 0,
                drop_last: bool = False) -> samplers.BalancedBatchSampler:
        """Returns the batch sampler of the training data, for DataLoader(dataset, batch_sampler=...)."""
        self._sampler = samplers.BalancedBatchSampler(self, dataset, shuffle, seed, drop_last)
        if self._resume is not None:
            self._apply_resume()
        return self._sampler

    def loader(self, loader: Any, seed: Optional[int] = None) -> Any:
        """Returns a loader with the data set and the arguments of a DataLoader, and with the batches of the balancer.

        It shuffles if loader does. seed: of the order of samples; None: that of a DistributedSampler, else 0. loader may
        also be an object that has a DataLoader as its attribute loader, such as timm's PrefetchLoader.
        """
        return loaders.rebatch(self, loader, seed)

    def state_dict(self) -> Dict[str, Any]:
        """Returns the position of the run, for a checkpoint between two optimizer steps. It is equal on all ranks."""
        if self._current is not None or self._window.micros:
            raise errors.BatchError("state_dict() is possible between optimizer steps only")
        state: Dict[str, Any] = samplers.epoch_state(self._sampler, self._position)
        if self._sampler is not None and state["lists"] >= len(self._sampler):
            state.update(epoch=state["epoch"] + 1, lists=0)
        state.update(version=1, step=self._step, global_batch=self.global_batch, accumulation=self.accumulation)
        return state

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Continues from a position, before the first step. The number of ranks may differ."""
        if self._opened:
            raise errors.BatchError("load_state_dict() must come before the first batch")
        for key in ("global_batch", "accumulation"):
            if state[key] != getattr(self, key):
                raise errors.SettingsError(f"{key}: the checkpoint has {state[key]}, the balancer {getattr(self, key)}: a resumed run needs the same")
        self._resume = dict(state)
        self._step = self._reported = int(state["step"])
        if self._sampler is not None:
            self._apply_resume()

    def _apply_resume(self) -> None:
        s, data = self._resume, self._sampler
        assert s is not None and data is not None
        for key, got in (("seed", data.seed), ("length", data.length), ("shuffle", int(data.shuffle)),
                         ("drop_last", int(data.drop_last))):
            if key in s and s[key] != got:
                raise errors.SamplerError(f"{key} of the sampler: the checkpoint has {s[key]}, the sampler {got}: a resumed run needs the same")
        data.epoch, data.skip = int(s["epoch"]), int(s["lists"])
        self._position = (data.epoch, data.skip)
        self._resume = None
