"""Original checkpoints of DINOv2, DINOv3 and CLIP, brought once to timm's names, in a safetensors file beside them."""

import contextlib
import io
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clare.backbones.hub import outline
from clare.backbones.recognise import fitting_model, models_like, shapes_of
from clare.errors import BackboneError
from clare.files import write_tensors

SUFFIXES = (".pth", ".pt", ".bin")
ENVELOPES = ("teacher", "model", "module", "state_dict")
MODEL = "timm"
"""Under which name a converted file tells its timm model."""


def convert(path: Path) -> Path:
    """Write a checkpoint's weights under timm's names to a safetensors file beside it, and return that."""
    state = _read(path)
    shapes = shapes_of(state)
    names = models_like(shapes)
    if "visual.class_embedding" in shapes:
        # OpenAI's own files tell their sizes, and their activation is another one than later towers have.
        is_quick = "input_resolution" in shapes
        names = [name for name in names if ("quickgelu" in name) == is_quick]
    for name in names:
        weights = _renamed(state, name)
        if weights and fitting_model(shapes_of(weights), [name]):
            target = path.with_suffix(".safetensors")
            write_tensors(target, {key: value.contiguous() for key, value in weights.items()}, {MODEL: name})
            return target
    raise BackboneError(
        f"{path} holds the weights of no model that timm can convert; save them under timm's names as safetensors"
    )


def _read(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a checkpoint; nothing but tensors is unpickled."""
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # it fails with almost every kind of exception
        raise BackboneError(
            f"{path} cannot be read as a file of tensors alone ({type(error).__name__}); give one that loads "
            "with weights_only, or safetensors"
        ) from None
    while isinstance(state, dict) and (inner := next((key for key in ENVELOPES if key in state), None)):
        state = state[inner]
    found = state.items() if isinstance(state, dict) else ()
    return {str(key).removeprefix("module."): value for key, value in found if isinstance(value, Tensor)}


def _renamed(state: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return weights as timm itself renames them for one of its models; nothing where it cannot."""
    model = outline(name)
    try:
        # timm prints what it misses while it tries.
        with contextlib.redirect_stdout(io.StringIO()):
            renamed: dict[str, Tensor] = sys.modules[type(model).__module__].checkpoint_filter_fn(dict(state), model)
    except (AttributeError, KeyError, RuntimeError, ValueError):
        return {}
    known = model.state_dict().keys()
    # Classifiers stay out; what is left over otherwise shows that the model is another one.
    return {
        key: value for key, value in renamed.items() if key in known or not key.startswith(("head", "text", "logit"))
    }
