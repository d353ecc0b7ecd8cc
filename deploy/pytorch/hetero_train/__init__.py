"""Shares of the batch that fit the speed of each rank, for PyTorch's DistributedDataParallel.

    balancer = hetero_train.Balancer(global_batch=256)
    loader = DataLoader(dataset, batch_sampler=balancer.sampler(dataset), num_workers=4)
    for x, y in loader:
        with balancer.step():
            balancer.scale(criterion(model(x), y)).backward()
            optimizer.step()
            optimizer.zero_grad()

docs/pytorch.md describes the package. All times are in seconds unless their name states another unit.
"""
from .balancer import Balancer
from .errors import (BatchError, BridgeError, HeteroTrainError, OutOfStepError, ProgramNotFoundError, RankLostError,
                     SamplerError, SettingsError)
from .sampler import BalancedBatchSampler

__version__ = "0.1.0"
__all__ = ["Balancer", "BalancedBatchSampler", "BatchError", "BridgeError", "HeteroTrainError", "OutOfStepError",
           "ProgramNotFoundError", "RankLostError", "SamplerError", "SettingsError", "__version__"]
