"""Hugging Face Trainer: call hetero_train.transformers.balance(trainer) before trainer.train()."""
import functools
import inspect
import itertools
from typing import Any, Callable, Optional

import torch
from transformers import Trainer, TrainerCallback
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.models.auto import modeling_auto as auto

from .balancer import Balancer
from .errors import SettingsError


ASK = "pass count=FUNCTION to balance(), which returns the number of targets (or samples) of a batch"

UNSHIFTED = {name for mapping in (
    auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES, auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES)
    for names in mapping.values() for name in ([names] if isinstance(names, str) else names)}


def shifts(model: Any) -> Optional[bool]:
    """Reports whether a model predicts the next token, so that its first label has no loss. None: the loss is unknown."""
    code = getattr(inspect.unwrap(type(model).forward), "__code__", None)
    name, common = type(model).__name__, code is not None and "loss_function" in code.co_names
    encodes = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    if common and model.loss_function is ForCausalLMLoss:
        return not encodes
    if name in auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES.values() or name in UNSHIFTED and (
            encodes or name in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values()):
        return False
    return None


def targets(model: Any, inputs: Any) -> Optional[int]:
    """Returns the number of targets over which the loss of a model is a mean; None: it is a mean over samples."""
    labels = inputs.get("shift_labels", inputs.get("labels"))
    model = model.get_base_model() if hasattr(model, "get_base_model") else model  # of peft
    name = type(model).__name__
    if labels is None and name in auto.MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES.values():
        return None
    if torch.is_tensor(labels) and (labels.dim() < 2 or labels.dim() == 2 and labels.is_floating_point()):
        return None
    shift = shifts(model) if torch.is_tensor(labels) and not labels.is_floating_point() else None
    if shift is None:
        what = f"{list(labels.shape)} labels" if torch.is_tensor(labels) else f"the inputs {', '.join(inputs)}"
        raise SettingsError(f"the loss of {name} with {what} is unknown: {ASK}")
    if shift and "shift_labels" not in inputs:
        labels = labels[..., 1:]
    return int((labels != -100).sum())


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

    class Steps(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            b.attach(trainer.model_wrapped, trainer.optimizer)
            if state.global_step > 0:  # resumed
                epoch, steps = divmod(state.global_step, b._sampler.epoch_steps)
                lists = 0 if args.ignore_data_skip else steps * b.accumulation
                b.load_state_dict(dict(b.state_dict(), step=state.global_step, epoch=epoch, lists=lists))
                b._sampler.pads = True  # the trainer drops the lists before its position

        def on_step_end(self, *_: Any, **__: Any) -> None:
            b.end_step()
        on_substep_end = on_step_end
        def on_evaluate(self, *_: Any, metrics: Any = None, **__: Any) -> None:
            if b._opened and not b._closed and "eval_loss" in (metrics or {}):
                b.evaluated(metrics["eval_loss"], seconds=metrics.get("eval_runtime", 0.0))

    trainer.get_train_dataloader, trainer.get_batch_samples = lambda: loader, balanced_batches
    trainer.training_step, trainer.compute_loss = balanced_step, balanced_loss
    trainer.train = functools.partial(b._whole, trainer.train)
    trainer.add_callback(Steps())
    return b
