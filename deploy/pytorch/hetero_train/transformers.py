"""Hugging Face Trainer: `hetero_train.transformers.balance(trainer, balancer)` before `trainer.train()`."""
import json
import os
from typing import Any, Optional

from torch.utils.data import DataLoader
from transformers import TrainerCallback

from .balancer import Balancer
from .errors import SettingsError


def targets(model: Any, inputs: Any) -> Optional[int]:
    """Returns the number of targets over which the loss of a model is a mean; None: it is a mean over samples."""
    labels = inputs.get("labels")
    if labels is None or labels.dim() < 2:
        return None
    name = type(getattr(model, "module", model)).__name__
    return int(((labels[:, 1:] if "CausalLM" in name or name.endswith("LMHeadModel") else labels) != -100).sum())


class _Steps(TrainerCallback):
    def __init__(self, balancer: Balancer) -> None:
        self.balancer = balancer

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.balancer.__exit__(None, None, None)

    on_substep_end = on_step_end

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        if state.is_world_process_zero and os.path.isdir(folder):
            with open(os.path.join(folder, "hetero_train.json"), "w") as f:
                json.dump(self.balancer.state_dict(), f)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        if metrics and "eval_loss" in metrics:
            self.balancer._paused += metrics.get("eval_runtime", 0.0)
            self.balancer.evaluated(metrics["eval_loss"], seconds=metrics.get("eval_runtime", 0.0))

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.balancer.close()


def balance(trainer: Any, balancer: Balancer, seed: int = 0) -> Any:
    """Gives the ranks of a Trainer balanced shares, and returns the trainer. The batch sizes of its arguments have no effect."""
    args = trainer.args
    if args.gradient_accumulation_steps != balancer.accumulation:
        raise SettingsError(f"gradient_accumulation_steps = {args.gradient_accumulation_steps}, accumulation of the balancer = {balancer.accumulation}: set both to one value")
    args.ignore_data_skip = True  # the balancer resumes the data: balancer.load_state_dict(json of hetero_train.json)
    loader = DataLoader(trainer.train_dataset, batch_sampler=balancer.sampler(trainer.train_dataset, seed=seed, drop_last=args.dataloader_drop_last),
                        collate_fn=trainer.data_collator, num_workers=args.dataloader_num_workers, pin_memory=args.dataloader_pin_memory and balancer._clock.cuda)
    trainer.get_train_dataloader = lambda: loader
    totals = [None]

    def get_batch_samples(iterator: Any, count: int, device: Any) -> Any:
        batches = [b for b, _ in zip(iterator, range(count))] if count > 1 else [b for b in [next(iterator, None)] if b is not None]
        counts = [targets(trainer.model, b) for b in batches]
        counted = [(n or 0) if micro.own else 0 for n, micro in zip(counts, balancer._queue)]
        totals[0] = balancer.total(sum(counted)) if counts and counts[0] is not None else None
        return batches, None

    def training_step(model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        balancer.__enter__()
        try:
            model.train()
            inputs = trainer._prepare_inputs(inputs)
            with trainer.compute_loss_context_manager():
                loss = trainer.compute_loss(model, inputs)
            scaled = balancer.scale(loss, targets(model, inputs) if totals[0] is not None else None, totals[0])
            trainer.accelerator.backward(scaled * trainer.accelerator.gradient_accumulation_steps)  # which backward divides by
        except BaseException as e:
            balancer.__exit__(type(e), e, e.__traceback__)
            raise
        return scaled.detach()

    trainer.get_batch_samples, trainer.training_step = get_batch_samples, training_step
    trainer.add_callback(_Steps(balancer))
    return trainer
