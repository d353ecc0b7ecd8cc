"""Hugging Face Trainer: call hetero_train.transformers.balance(trainer) before trainer.train()."""
import functools
import itertools
from typing import Any, Callable, Optional

from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState

from .balancer import Balancer
from .errors import SettingsError
from .losses import ASK, targets


def balance(trainer: Any, count: Optional[Callable[[Any], float]] = None, **arguments: Any) -> Balancer:
    """Gives the ranks of a transformers.Trainer balanced shares, and returns their balancer.

    The global batch is that of the trainer, on all ranks together. arguments: others of Balancer. count(inputs): number of
    targets over which the loss is a mean; None: labels that are not -100 if each token has one, else samples, and a loss
    that is unknown is refused.
    """
    args, n, counts, total = trainer.args, trainer.args.gradient_accumulation_steps, [], [None]
    if args.n_gpu > 1 or args.auto_find_batch_size:
        raise SettingsError("start a process for each GPU, without auto_find_batch_size: max_share limits a rank's samples")
    if count is None and (trainer.compute_loss_func is not None
                          or type(trainer).compute_loss is not Trainer.compute_loss):
        raise SettingsError(f"the trainer has a loss of its own: {ASK}")
    b = Balancer(args.per_device_train_batch_size * args.world_size * n, accumulation=n, **arguments)
    loader = b.loader(trainer.get_train_dataloader(), seed=args.seed if args.data_seed is None else args.data_seed)
    training_step, compute_loss = trainer.training_step, trainer.compute_loss

    def balanced_batches(batches: Any, n: int, *_: Any) -> Any:
        taken = list(itertools.islice(batches, n))
        counts[:] = [count(x) if count else targets(trainer.model, x) for x in taken]
        total[0] = None if None in counts else b.total(sum(c for c, m in zip(counts, b._queue) if m.own))
        return taken, None

    def balanced_step(model: Any, inputs: Any, *_: Any) -> Any:
        trainer.current_gradient_accumulation_steps = 1  # b.scale divides by the targets of all micro-batches
        b.begin_step()
        return training_step(model, inputs)

    def balanced_loss(*a: Any, **k: Any) -> Any:
        if b._current is None:  # an evaluation
            return compute_loss(*a, **k)
        return b.scale(compute_loss(*a, **k), counts.pop(0), total[0])

    class Balance(TrainerCallback, ExportableState):
        def state(self) -> Any:  # in each checkpoint
            return {"args": {}, "attributes": {"position": b.state_dict()}}

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            b.attach(trainer.model_wrapped, trainer.optimizer)
            if state.global_step > 0:  # resumed
                saved = state.stateful_callbacks.get("Balance", {}).get("attributes", {}).get("position")
                if saved is None:
                    raise SettingsError("the checkpoint is of a run without the balancer: load its weights into a new run")
                b.load_state_dict(dict(saved, lists=0) if args.ignore_data_skip else saved)
                b._sampler.pads = True  # the trainer drops the lists before its position

        def on_step_end(self, *_: Any, **__: Any) -> None:
            b.end_step()
        on_substep_end = on_step_end
        def on_evaluate(self, *_: Any, metrics: Any = None, **__: Any) -> None:
            if b._opened and not b._closed and "eval_loss" in (metrics or {}):
                b.evaluated(metrics["eval_loss"], seconds=metrics.get("eval_runtime", 0.0))

        def on_save(self, *_: Any, **__: Any) -> None:
            if b._opened and not b._closed:
                b.saved()

    trainer.get_train_dataloader, trainer.get_batch_samples = lambda: loader, balanced_batches
    trainer.training_step, trainer.compute_loss = balanced_step, balanced_loss
    trainer.train = functools.partial(b._whole, trainer.train)
    trainer.add_callback(Balance())
    return b
