"""Lightning: Trainer(callbacks=[BalancerCallback()])."""
import functools
from typing import Any, Callable, Dict, Optional

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from . import loaders, position
from .balancer import Balancer
from .errors import BatchError, SettingsError


class BalancerCallback(Callback):
    """Gives the ranks of a Lightning Trainer balanced shares.

    It replaces the batches of the training loader and weights the loss of training_step. The global batch is the trainer's.
    arguments: others of Balancer. count(batch): targets over which the loss is a mean; None or accumulation: samples.
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

        @functools.wraps(step)
        def balanced_step(batch: Any, *rest: Any, **options: Any) -> Any:
            result = step(batch, *rest, **options)
            loss = result["loss"] if isinstance(result, dict) else result
            if loss is None:
                raise BatchError("training_step returned no loss: all ranks must sum the gradients of each batch")
            scaled = self.balancer.scale(loss, self._count(batch) if self._count else None)
            scaled = scaled * trainer.accumulate_grad_batches  # by which Lightning divides
            return dict(result, loss=scaled) if isinstance(result, dict) else scaled

        trainer.strategy.process_dataloader = lambda loader: self._open(trainer, process(loader))
        pl_module.training_step = balanced_step

    def _open(self, trainer: Any, loader: Any) -> Any:
        if not trainer.training:
            return loader
        if self.balancer is not None:
            raise SettingsError("the balancer divides one training loader: the module has several, or loads it again")
        self._trainer, n, arguments = trainer, trainer.accumulate_grad_batches, self._arguments
        if "global_batch" not in arguments:
            arguments["global_batch"] = loaders.batch_size_of(loader) * trainer.world_size * n
        self.balancer = b = Balancer(accumulation=n, **arguments)
        b.attach(trainer.strategy.model, trainer.optimizers[0])
        if self._position is not None:
            b.load_state_dict(self._position)
        return b.loader(loader)

    def on_train_start(self, trainer: Any, *_: Any) -> None:
        position.refuse_part(trainer.num_training_batches, trainer.accumulate_grad_batches)

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
        return position.library_state(self.balancer, self.balancer is not None and self._trainer.is_last_batch)

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self._position = position.position_in(state)
