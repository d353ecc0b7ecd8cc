"""Lightning: Trainer(callbacks=[BalancerCallback(...)], use_distributed_sampler=False), and callback.scale(loss) in training_step."""
from typing import Any, Dict, Optional

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from .balancer import Balancer
from .errors import SettingsError


class BalancerCallback(Callback):
    """Gives the ranks of a Lightning Trainer balanced shares.

    arguments are those of Balancer. The process group exists only once the trainer runs, so the callback creates the
    balancer. The training data come from the module's train_dataloader, with batch_sampler=callback.sampler(dataset), and
    its training_step returns callback.scale(loss).
    """

    def __init__(self, **arguments: Any) -> None:
        self._arguments, self.balancer, self._state, self._times = arguments, None, None, 1

    def _get(self) -> Balancer:
        if self.balancer is None:
            self.balancer = Balancer(**self._arguments)
            if self._state is not None:
                self.balancer.load_state_dict(self._state)
        return self.balancer

    def sampler(self, dataset: Any, **arguments: Any) -> Any:
        """Returns the batch sampler of the training data; see Balancer.sampler."""
        return self._get().sampler(dataset, **arguments)

    def scale(self, loss: Any, count: Optional[float] = None, total: Optional[float] = None) -> Any:
        """Weights the loss; see Balancer.scale. Lightning divides it by accumulate_grad_batches, so it is multiplied first."""
        return self._get().scale(loss, count, total) * self._times

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        if getattr(trainer._accelerator_connector, "use_distributed_sampler", False):
            raise SettingsError("Lightning would replace the sampler: pass use_distributed_sampler=False to the Trainer")
        self._times = trainer.accumulate_grad_batches
        if self._times != self._arguments.get("accumulation", 1):
            raise SettingsError(f"accumulate_grad_batches = {self._times}, accumulation of the balancer = {self._arguments.get('accumulation', 1)}: set both to one value")

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._get().__enter__()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._get().__exit__(None, None, None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.balancer is not None:
            self.balancer._abort(exception)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._get().close()

    def state_dict(self) -> Dict[str, Any]:
        b = self.balancer
        return {"position": b.state_dict() if b is not None and b._current is None and not b._window.micros else None}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self._state = state["position"]
