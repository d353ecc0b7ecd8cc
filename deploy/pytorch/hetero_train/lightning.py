"""Lightning: Trainer(callbacks=[BalancerCallback()])."""
import functools
import warnings
from typing import Any, Callable, Dict, Optional

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from .balancer import Balancer
from .errors import BatchError, SamplerError, SettingsError


class BalancerCallback(Callback):
    """Gives the ranks of a Lightning Trainer balanced shares.

    It replaces the batches of the training loader and weights the loss that training_step returns. The global batch is that
    of the trainer, on all ranks together. arguments: others of Balancer, such as name. count(batch): number of targets over
    which the loss is a mean, for example valid tokens; None: samples. With accumulation, the loss is a mean over samples.
    """

    def __init__(self, count: Optional[Callable[[Any], float]] = None, **arguments: Any) -> None:
        self._count, self._arguments, self._position = count, arguments, None
        self.balancer: Optional[Balancer] = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit" or self.balancer is not None:
            return
        if not pl_module.automatic_optimization:
            raise SettingsError("manual optimization: use hetero_train.Balancer in training_step (docs/pytorch.md)")
        process, step = trainer.strategy.process_dataloader, pl_module.training_step

        def balanced_loader(loader: Any) -> Any:
            return self._open(trainer, process(loader)) if trainer.training else process(loader)

        @functools.wraps(step)
        def balanced_step(batch: Any, *rest: Any, **options: Any) -> Any:
            result = step(batch, *rest, **options)
            loss = result["loss"] if isinstance(result, dict) else result
            if loss is None:
                raise BatchError("training_step returned no loss: all ranks must sum the gradients of each batch")
            scaled = self.balancer.scale(loss, self._count(batch) if self._count else None)
            scaled = scaled * trainer.accumulate_grad_batches  # by which Lightning divides
            return dict(result, loss=scaled) if isinstance(result, dict) else scaled

        trainer.strategy.process_dataloader, pl_module.training_step = balanced_loader, balanced_step

    def _open(self, trainer: Any, loader: Any) -> Any:
        if self.balancer is not None:
            raise SettingsError("the balancer divides one training loader: the module has several, or loads it again")
        self._trainer, n, arguments = trainer, trainer.accumulate_grad_batches, self._arguments
        if "global_batch" not in arguments:
            size = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
            if not size:
                raise SamplerError("the batch size of the training loader is unknown: pass DataLoader(dataset, batch_size=...)")
            arguments["global_batch"] = size * trainer.world_size * n
        self.balancer = b = Balancer(accumulation=n, **arguments)
        b.attach(trainer.strategy.model, trainer.optimizers[0])
        if self._position is not None:
            b.load_state_dict(self._position)
        return b.loader(loader)

    def on_train_batch_start(self, *_: Any) -> None:
        self.balancer.begin_step()

    def on_train_batch_end(self, *_: Any) -> None:
        self.balancer.end_step()

    def on_train_end(self, *_: Any) -> None:
        self.balancer.close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        if self.balancer is not None:
            self.balancer._failed(exception)

    def state_dict(self) -> Dict[str, Any]:
        b = self.balancer
        within = b is not None and bool(b._window.micros or b._current is not None)
        if within:
            warnings.warn("hetero_train: this checkpoint is within an optimizer step, so no run can resume from it: save after "
                          "a whole step, for example with ModelCheckpoint(every_n_train_steps=...), after BalancerCallback")
        position = b.state_dict() if b is not None and not within else None
        if position is not None and position["lists"] and self._trainer.is_last_batch:  # limit_train_batches
            position.update(epoch=position["epoch"] + 1, lists=0)
        return {"position": position, "within_step": within}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        if state.get("within_step"):
            raise SettingsError("the checkpoint was saved within an optimizer step, whose gradients it does not have: "
                                "resume from one that was saved after a whole step, or load its weights into a new run")
        self._position = state["position"]
