"""The number of targets over which a model of Hugging Face's transformers takes the mean of its loss."""
import inspect
from typing import Any, Optional

import torch
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.models.auto import modeling_auto as auto

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
