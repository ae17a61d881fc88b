"""The features of a classifier that answers, from ONNX Runtime in place of PyTorch; all after them stays as it is."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from clare.classifier.classifier import Classifier
from clare.classifier.parts import Parts
from clare.errors import ModelError
from clare.export.export_check import synthetic
from clare.export.onnx_export import INPUT, TOLERANCE, Features, converted, onnx_packages, session_of
from clare.files import bytes_of
from clare.methods.base import Method
from clare.methods.protocols import CachesFeatures
from clare.methods.state import HEAD, learnt_tensors
from clare.sealed import digest_of

OUTPUT = "features"
NUM_CHECKED = 4
"""Pictures on which both runtimes must agree before one takes the other's place."""


class OnnxFeatures:
    """Lets classifiers that never change in place compute with a graph, which is made anew only for other features."""

    def __init__(self) -> None:
        self.packages = onnx_packages()
        self._key, self._session = "", None

    def serve(self, model: Classifier) -> Classifier:
        """Let a model's features come from ONNX Runtime, checked against PyTorch's."""
        parts = model.parts
        if parts.method.classes:
            key = features_key(parts)
            if key != self._key:
                self._key, self._session = key, self._made(parts)
            compute = partial(run, self._session)
            check(parts, compute)
            parts.compute = compute
        return model

    def _made(self, parts: Parts) -> Any:
        """Make the graph, which is kept in memory, and what computes it on as many threads as PyTorch has."""
        size = parts.transforms.image_size
        inputs = torch.zeros(1, parts.backbone.channels, size, size)
        graph = converted(self.packages, Features(parts.method).eval(), parts.method.name, inputs, [OUTPUT])
        return session_of(graph.SerializeToString(), torch.get_num_threads())


def features_key(parts: Parts) -> str:
    """Return what tells features from others: of frozen ones the head is no part."""
    method = parts.method
    tensors = learnt_tensors(method)
    if is_fixed(method):
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(HEAD)}
    told = [parts.backbone.fingerprint, method.name, method.seed, method.settings.model_dump(mode="json")]
    return digest_of(json.dumps(told).encode() + bytes_of(tensors))


def is_fixed(method: Method) -> bool:
    """Tell whether a lesson leaves the features as they are, but for what else the method has learnt."""
    return isinstance(method, CachesFeatures) and method.features_version is not None


def run(session: Any, images: Tensor) -> Tensor:
    """Return the features of normalised images."""
    return torch.from_numpy(session.run([OUTPUT], {INPUT: images.numpy()})[0])


def check(parts: Parts, compute: Callable[[Tensor], Tensor]) -> None:
    """Refuse features that differ from PyTorch's on a few pictures, several at a time or alone."""
    pictures = list(synthetic(NUM_CHECKED, parts.backbone.channels, parts.transforms.image_size))
    expected = parts.features(pictures)
    for chosen in (slice(None), slice(1)):
        found = parts.features(pictures[chosen], compute)
        difference = float((found - expected[chosen]).abs().max()) / max(1.0, float(expected.abs().max()))
        # Written so that a difference that is no number is refused too.
        if not difference <= TOLERANCE:
            raise ModelError(
                f"ONNX Runtime's features of {parts.method.name} differ by {difference:.1e} from PyTorch's, "
                f"and {TOLERANCE:.0e} is allowed; leave out --runtime onnx, and please report this"
            )
