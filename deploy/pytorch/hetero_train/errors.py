"""The exceptions of the package. Each message says what to do."""


class HeteroTrainError(RuntimeError):
    """The base of all exceptions of this package."""


class ProgramNotFoundError(HeteroTrainError):
    """The program hetero-train is missing."""


class BridgeError(HeteroTrainError):
    """The program hetero-train has ended, does not answer, or is of another version."""


class SettingsError(HeteroTrainError):
    """A setting is invalid, or the ranks compute different things."""


class BatchError(HeteroTrainError):
    """A step, its loss or its batch does not follow the rules of docs/pytorch.md."""


class SamplerError(HeteroTrainError):
    """The batches of the loop are not those of the balancer's sampler."""


class OutOfStepError(HeteroTrainError):
    """The ranks have done different numbers of steps."""


class RankLostError(HeteroTrainError):
    """Another rank has failed, has ended early, or does not answer."""
