"""The samples of a run, and its position in them."""
import warnings
from typing import Any, Dict, Optional, Tuple

from . import errors, loaders, sampler as samplers

FLUSH = 2.0  # s: longest wait for the reports of other ranks before a checkpoint


class Position:
    """The part of Balancer that owns the samples."""

    # Set by Balancer.
    global_batch: int
    accumulation: int
    _opened: bool
    _current: Optional[samplers.Micro]
    _reports: Any
    _sampler: Optional[samplers.BalancedBatchSampler]
    _position: Tuple[int, int]
    _step: int
    _samples: int
    _closed: bool
    _give: Any  # of Balancer
    pause: Any
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

    @property
    def within_step(self) -> bool:
        """True between the first and the last micro-batch of an optimizer step."""
        return self._current is not None or self._reports.within_step

    def state_dict(self) -> Dict[str, Any]:
        """Returns the position of the run, for a checkpoint between two optimizer steps. It is equal on all ranks.

        Any rank may call it, also alone. The records of the steps before it then outlive the script.
        """
        if self.within_step:
            raise errors.BatchError("state_dict() is possible between optimizer steps only")
        state: Dict[str, Any] = samplers.epoch_state(self._sampler, self._position)
        if self._sampler is not None and state["lists"] >= len(self._sampler):
            state.update(epoch=state["epoch"] + 1, lists=0)
        if self._opened and not self._closed:
            with self.pause():
                try:
                    self._give(wait=FLUSH)
                except errors.HeteroTrainError as e:  # no reason to lose a checkpoint; the next step raises it
                    warnings.warn(f"hetero_train: the records may lack steps before this checkpoint: {e}")
        state.update(version=1, step=self._step, samples=self._samples, global_batch=self.global_batch,
                     accumulation=self.accumulation)
        return state

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Continues from a position, before the first step. The number of ranks may differ."""
        if self._opened:
            raise errors.BatchError("load_state_dict() must come before the first batch")
        if "samples" not in state:
            raise errors.SettingsError("the position in the checkpoint has no samples: it is of another release of hetero_train")
        for key in ("global_batch", "accumulation"):
            if state[key] != getattr(self, key):
                raise errors.SettingsError(f"{key}: the checkpoint has {state[key]}, the balancer {getattr(self, key)}: a resumed run needs the same")
        self._resume = dict(state)
        self._step = int(state["step"])
        self._reports.resume(self._step)
        self._samples = int(state["samples"])
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


def library_state(balancer: Optional[Position], ended: bool) -> Dict[str, Any]:
    """Returns the state of a library's checkpoint, which may be saved at any time. ended: the library ends the epoch here.

    A checkpoint within an optimizer step lacks its gradients, so position_in refuses it.
    """
    within = balancer is not None and balancer.within_step
    if within:
        warnings.warn("hetero_train: this checkpoint is within an optimizer step, so no run can resume from it: save after "
                      "a whole step, for example with ModelCheckpoint(every_n_train_steps=...), after BalancerCallback")
    position = None if balancer is None or within else balancer.state_dict()
    if position is not None and position["lists"] and ended:
        position.update(epoch=position["epoch"] + 1, lists=0)
    return {"position": position, "within_step": within}


def position_in(state: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """Returns the position in a state of library_state, for load_state_dict; None: the run had not begun."""
    if state.get("within_step"):
        raise errors.SettingsError("the checkpoint was saved within an optimizer step, whose gradients it does not have: "
                                   "resume from one that was saved after a whole step, or load its weights into a new run")
    position: Optional[Dict[str, Any]] = state["position"]
    return position


def refuse_part(batches: int, accumulation: int) -> None:
    """Refuses an epoch of Lightning that ends within an optimizer step: Lightning would update with a part of the gradient."""
    if batches % accumulation:
        raise errors.SettingsError(f"the epoch has {batches} batches (limit_train_batches or fast_dev_run), which is no "
                                   f"multiple of accumulate_grad_batches = {accumulation}: choose a multiple")
