"""The batches of a rank: slices of batches that do not depend on the split."""
import bisect
import os
from collections import deque
from typing import TYPE_CHECKING, Deque, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.utils.data import Sampler

from .errors import SamplerError

if TYPE_CHECKING:
    from .balancer import Balancer


class Micro(NamedTuple):
    """This rank's part of a micro-batch. Sizes are numbers of samples."""

    number: int  # of the list, from 0 over the whole run
    own: int  # samples of this rank; 0 for an excluded rank, which computes one sample with weight 0
    size: int  # of the micro-batch on all ranks
    step_size: int  # of all micro-batches of the optimizer step, on all ranks
    first: bool  # first micro-batch of its optimizer step
    last: bool  # last micro-batch of its optimizer step
    full: bool  # the optimizer step has the whole global batch
    shares: Tuple[int, ...]  # samples of the micro-batch by rank
    epoch: int  # from 0
    epoch_step: int  # optimizer steps of the epoch up to this one
    epoch_steps: int


def divide(size: int, shares: Sequence[int]) -> List[int]:
    """Divides a micro-batch of size samples in proportion to shares. Remainders go to the largest fractions, ties to lower ranks.

    >>> divide(10, [3, 3, 2])
    [4, 4, 2]
    """
    total = sum(shares)
    if size == total:
        return list(shares)
    parts = [size * share // total for share in shares]
    order = sorted(range(len(shares)), key=lambda r: (-(size * shares[r] % total), r))
    for rank in order[:size - sum(parts)]:
        parts[rank] += 1
    return parts


class Schedule:
    """The shares by number of the list. A change names the first list that has the new shares."""

    def __init__(self, shares: Sequence[int]) -> None:
        self._from = [0]
        self._shares: List[Tuple[int, ...]] = [tuple(shares)]

    def at(self, number: int) -> Tuple[int, ...]:
        """Returns the shares of a list."""
        return self._shares[bisect.bisect_right(self._from, number) - 1]

    def change(self, number: int, shares: Sequence[int], done: int) -> None:
        """Adds shares from a list on. Lists before done are never asked for again."""
        while len(self._from) > 1 and self._from[1] <= done:
            del self._from[0], self._shares[0]
        if number < self._from[-1]:
            raise SamplerError(f"shares change from list {number} on, before the last change at list {self._from[-1]}")
        self._from.append(number)
        self._shares.append(tuple(shares))


class BalancedBatchSampler(Sampler):
    """Lists of indices of this rank, for the argument batch_sampler of DataLoader.

    The order of the samples depends on seed and epoch only. Each optimizer step has the next global_batch samples of this
    order, on all ranks together, and each rank gets a contiguous slice. So the samples of a step do not depend on the
    shares, every sample appears once in an epoch, and a run may resume with another number of ranks.
    """

    def __init__(self, balancer: "Balancer", dataset, shuffle: bool, seed: int, drop_last: bool) -> None:
        try:
            self.length = len(dataset)
        except TypeError:
            raise SamplerError(
                "the data set has no length: the balancer needs a map-style data set, whose samples have indices") from None
        if self.length == 0 or drop_last and self.length < balancer.global_batch:
            raise SamplerError(f"the data set has {self.length} samples, want at least {'global_batch = %d' % balancer.global_batch if drop_last else '1'}")
        self._balancer, self._dataset = balancer, dataset
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0  # of the next iteration
        self.skip = 0  # lists of the next epoch that a resumed run has already done
        self.pads = False  # a library drops these lists: empty lists stand for them
        self.issued = 0  # number of the next list, over the whole run
        # epoch, lists to skip, lists used before; of the last iteration
        self._began: Optional[Tuple[int, int, int]] = None
        self._order: Tuple[Optional[int], List[int]] = (None, [])

    @property
    def epoch_steps(self) -> int:
        """Optimizer steps of an epoch."""
        batch = self._balancer.global_batch
        return self.length // batch if self.drop_last else -(-self.length // batch)

    def __len__(self) -> int:
        """Micro-batches of an epoch."""
        b = self._balancer
        whole, rest = divmod(self.length, b.global_batch)
        return whole * b.accumulation + (0 if self.drop_last else -(-rest // b.micro_batch))

    def set_epoch(self, epoch: int) -> None:
        """Sets the number of the next epoch, as with DistributedSampler. Without a call, the epochs count up."""
        if epoch != self.epoch:
            self.skip = 0
        self.epoch, self._began = epoch, None

    def order(self, epoch: int) -> List[int]:
        """Returns the indices of all samples in the order of an epoch."""
        if not self.shuffle:
            return list(range(self.length))
        if self._order[0] != epoch:
            random = torch.Generator()
            random.manual_seed((self.seed * 1_000_003 + epoch) % 2**63)
            self._order = (epoch, torch.randperm(self.length, generator=random).tolist())
        return self._order[1]

    def __iter__(self) -> Iterator[List[int]]:
        b = self._balancer
        if b._sampler is not self:
            raise SamplerError(
                "this sampler was replaced by a later call of balancer.sampler(): use one sampler for training")
        if os.getpid() != b._owner:
            raise SamplerError("the sampler runs in a data worker: pass it as batch_sampler of a map-style data set")
        if len(self._dataset) != self.length:
            raise SamplerError(f"the data set had {self.length} samples and now has {len(self._dataset)}: create a new sampler with balancer.sampler() after each change, on all ranks")
        b._open()
        return self._lists(*self._begin())

    def _begin(self) -> Tuple[int, int, int]:
        b = self._balancer
        if self._began is not None and self._began[2] == b._consumed:  # DataLoader asks twice for one epoch
            epoch, skip, _ = self._began
        else:
            epoch, skip = self.epoch, self.skip
            self.epoch, self.skip = epoch + 1, 0
        self._began = (epoch, skip, b._consumed)
        b._queue.clear()
        self.issued = b._consumed  # lists that were prefetched and not used are issued again
        b._position = (epoch, skip)
        b._new_epoch = True
        return epoch, skip, self.issued - skip

    def _lists(self, epoch: int, skip: int, base: int) -> Iterator[List[int]]:
        b, order = self._balancer, self.order(epoch)
        for _ in range(skip if self.pads else 0):
            yield []
        for i in range(skip, len(self)):
            step, micro = divmod(i, b.accumulation)
            start = step * b.global_batch + micro * b.micro_batch
            step_size = min(b.global_batch, self.length - step * b.global_batch)
            size = min(b.micro_batch, self.length - start)
            shares = divide(size, b._schedule.at(base + i - micro))
            first = start + sum(shares[:b.rank])
            own = shares[b.rank]
            b._queue.append(Micro(base + i, own, size, step_size, micro == 0, start + size == step * b.global_batch +
                                  step_size,
                                  step_size == b.global_batch, tuple(shares), epoch, step + 1, self.epoch_steps))
            self.issued = base + i + 1
            yield order[first:first + own] if own else [order[start]]


Queue = Deque[Micro]


def new_queue() -> Queue:
    """Returns an empty queue of lists that the loader has asked for and the loop has not used."""
    return deque()


def epoch_state(sampler: Optional[BalancedBatchSampler], position: Tuple[int, int]) -> Dict[str, int]:
    """Returns the position of a run in its epochs, and the settings on which the order depends."""
    state = {"epoch": position[0], "lists": position[1]}
    if sampler is not None:
        state.update(seed=sampler.seed, length=sampler.length, shuffle=int(sampler.shuffle),
                     drop_last=int(sampler.drop_last))
    return state
