"""Hugging Face accelerate: `prepare` wraps the model and the optimizer, and leaves the data to the balancer."""
from typing import Any, Iterator, Tuple

from torch.utils.data import DataLoader

from .balancer import Balancer
from .errors import SettingsError


def prepare(accelerator: Any, balancer: Balancer, model: Any, optimizer: Any, *others: Any) -> Tuple[Any, ...]:
    """Returns the prepared model and optimizer, and others such as a scheduler. Data loaders are refused: see
    loader."""
    if any(isinstance(o, DataLoader) for o in others):
        raise SettingsError("accelerate would divide each batch again: pass training data to hetero_train.accelerate.loader(), and prepare data for evaluation apart")
    if accelerator.gradient_accumulation_steps != 1:
        raise SettingsError("Accelerator(gradient_accumulation_steps=...) divides the loss by a fixed number: leave it at 1, and pass accumulation to the balancer")
    model, optimizer, *rest = accelerator.prepare(model, optimizer, *others)
    balancer.attach(model, optimizer)
    return (model, optimizer, *rest)


class loader:
    """Iterates over the training batches of this rank, on its device. arguments are those of DataLoader."""

    def __init__(self, accelerator: Any, balancer: Balancer, dataset: Any, shuffle: bool = True, seed: int = 0,
                 drop_last: bool = False, **arguments: Any) -> None:
        self._device = accelerator.device
        self._loader = DataLoader(dataset, batch_sampler=balancer.sampler(dataset, shuffle, seed, drop_last),
                                  **arguments)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        from accelerate.utils import send_to_device
        for batch in self._loader:
            yield send_to_device(batch, self._device)
