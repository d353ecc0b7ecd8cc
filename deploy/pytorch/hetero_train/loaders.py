"""Loaders of a script, with the batches of the balancer."""
import copy
import time
from typing import TYPE_CHECKING, Any, Iterator, Optional, Tuple

from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from .errors import SamplerError

if TYPE_CHECKING:
    from .balancer import Balancer

KEPT = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
        "prefetch_factor", "persistent_workers", "pin_memory_device", "in_order")


class TimedLoader(DataLoader):
    """A DataLoader that tells the balancer how long the loop waits for a batch."""

    def __init__(self, balancer: "Balancer", dataset: Any, **arguments: Any) -> None:
        self._balancer = balancer
        super().__init__(dataset, **arguments)

    def __iter__(self) -> Iterator[Any]:
        batches = super().__iter__()
        while True:
            start = time.perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self._balancer._waited = (self._balancer._waited or 0.0) + time.perf_counter() - start
            yield batch


def batch_size_of(loader: Any) -> int:
    """Returns the number of samples of a batch of a loader."""
    size = getattr(loader, "batch_size", None) or getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    if not size:
        raise SamplerError("the batch size of the training loader is unknown: pass DataLoader(dataset, batch_size=...)")
    return int(size)


def order_of(loader: DataLoader) -> Tuple[bool, int, bool]:
    """Returns whether a loader shuffles its samples, the seed of their order, and whether it leaves out a last batch."""
    lists = loader.batch_sampler
    lists = getattr(lists, "batch_sampler", lists)  # accelerate divides the lists of the script's sampler
    if type(lists) is not BatchSampler:
        raise SamplerError(f"the loader has the batch sampler {type(lists).__name__}, which the balancer would replace: "
                           "pass DataLoader(..., batch_sampler=balancer.sampler(dataset)) instead")
    chosen = lists.sampler
    if isinstance(chosen, DistributedSampler):
        return chosen.shuffle, chosen.seed, lists.drop_last  # its own drop_last leaves out fewer samples than ranks
    if isinstance(chosen, RandomSampler) and not chosen.replacement and chosen.num_samples == len(chosen.data_source):
        return True, 0, lists.drop_last
    if type(chosen) is SequentialSampler:
        return False, 0, lists.drop_last
    raise SamplerError(f"the loader has the sampler {type(chosen).__name__}, whose order the balancer would replace: "
                       "use shuffle=True, or pass DataLoader(..., batch_sampler=balancer.sampler(dataset)) instead")


def rebatch(balancer: "Balancer", loader: Any, seed: Optional[int]) -> Any:
    """See Balancer.loader."""
    if not isinstance(loader, DataLoader):
        inner = getattr(loader, "loader", None)
        if not isinstance(inner, DataLoader):
            raise SamplerError(f"balancer.loader() got {type(loader).__name__}, want a DataLoader")
        wrapper = copy.copy(loader)
        wrapper.loader = rebatch(balancer, inner, seed)
        return wrapper
    if type(loader).__iter__.__module__.split(".")[0] not in ("torch", "accelerate"):
        raise SamplerError(f"{type(loader).__name__} has batches of its own, which the balancer would replace: "
                           "pass a DataLoader, or DataLoader(..., batch_sampler=balancer.sampler(dataset))")
    if loader.batch_sampler is None:
        raise SamplerError("the loader has no batches of a sampler: the balancer needs a map-style data set, whose samples "
                           "have indices, and a batch size")
    shuffle, own_seed, drop_last = order_of(loader)
    sampler = balancer.sampler(loader.dataset, shuffle, own_seed if seed is None else seed, drop_last)
    kept = {name: getattr(loader, name) for name in KEPT if hasattr(loader, name)}
    if not kept["num_workers"]:
        kept.pop("prefetch_factor", None)
        kept.pop("multiprocessing_context", None)
    if not kept.get("pin_memory_device"):
        kept.pop("pin_memory_device", None)
    return TimedLoader(balancer, loader.dataset, batch_sampler=sampler, **kept)
