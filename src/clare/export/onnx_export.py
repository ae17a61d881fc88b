"""The whole classifier as one ONNX file: images in 0..1 go in, logits and probabilities come out."""

import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from clare.backbones.attach import bare_parameter
from clare.data.transforms import darkened
from clare.errors import ModelError
from clare.export.export_check import Agreement, Pictures, compare
from clare.export.export_source import Source
from clare.methods.base import Method, bare_features
from clare.methods.protocols import Deploys
from clare.version import __version__

TOLERANCE = 1e-3
MOST_BYTES = 2**31 - 2**20
"""What one protobuf message holds, less some room for the graph."""
INPUT, OUTPUTS = "images", ("logits", "probabilities")


class Features(nn.Module):
    """What a method's head reads of normalised images, with weights that take the place of the backbone's inside."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        # A copy, since it is changed: the method stays what its export is compared with.
        self.method = deepcopy(method)
        self.is_folded = fold(self.method)

    def forward(self, images: Tensor) -> Tensor:
        """Return features, shape (B, D)."""
        return bare_features(self.method, images) if self.is_folded else self.method.features(images)


class OnnxClassifier(nn.Module):
    """A method with its normalisation inside."""

    mean: Tensor
    std: Tensor

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.features = Features(source.method)
        self.scale, self.inverts = source.scale, source.inverts
        for name, values in zip(("mean", "std"), source.normalisation, strict=True):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32)[:, None, None])

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and probabilities of images in 0..1, shape (B, C, S, S)."""
        seen = darkened(images, 1.0) if self.inverts else images
        logits = self.features.method.classify(self.features((seen - self.mean) / self.std))
        return logits, (self.scale * logits).softmax(1)


def fold(method: Method) -> bool:
    """Put weights that take the place of the backbone's into it, and tell whether there were any."""
    weights = method.deployed().weights if isinstance(method, Deploys) else {}
    for name, weight in weights.items():
        bare_parameter(method.backbone, name).data.copy_(weight)
    return len(weights) > 0


def export_onnx(source: Source, pictures: Pictures) -> tuple[bytes, Agreement]:
    """Return the classifier as the bytes of an ONNX file, set against the original by onnxruntime."""
    packages = onnx_packages()
    original = source.logits(pictures.images)
    alone = source.logits(first_of(pictures).images)
    classifier = OnnxClassifier(source).eval()
    inputs = source.inputs(pictures.images)
    data = _with_facts(packages, converted(packages, classifier, source.method.name, inputs, OUTPUTS), facts_of(source))
    agreement = compare(run_onnx(data, inputs)[0], original, pictures, TOLERANCE, "onnxruntime")
    # The number of images is free in the file: one image alone must come out right as well.
    compare(run_onnx(data, inputs[:1])[0], alone, first_of(pictures), TOLERANCE, "onnxruntime")
    return data, agreement


def first_of(pictures: Pictures) -> Pictures:
    """Return the first of some pictures."""
    store, canvas = pictures.images, pictures.images.batch(torch.arange(1))
    height, width = store.sizes[0].tolist()
    return Pictures(
        type(store).from_array(canvas.pixels[:, :, :height, :width]), f"the first of {pictures.description}"
    )


def onnx_packages() -> dict[str, Any]:
    """Return the packages of the extra `export`, or say that they are missing."""
    try:
        return {name: import_module(name) for name in ("onnx", "onnxruntime", "onnxscript")}
    except ImportError as error:
        raise ModelError(
            f"ONNX needs the package {error.name}, which is missing; run pip install 'clare[export]'"
        ) from error


def check_size(num_bytes: int) -> None:
    """Refuse weights that do not fit into one ONNX file."""
    if num_bytes > MOST_BYTES:
        raise ModelError(
            f"the model has {num_bytes / 2**30:.1f} GiB of weights, and an ONNX file holds 2 GiB; use --format timm"
        )


def facts_of(source: Source) -> dict[str, str]:
    """Return what the file's metadata say."""
    transforms = source.transforms
    return {
        "classes": json.dumps(source.class_names, ensure_ascii=False),
        "image_size": str(transforms.image_size),
        "resize": str(transforms.resize),
        "resample": transforms.test_kernel,
        "channels": str(source.backbone.channels),
        "method": source.method.name,
        "backbone": source.backbone_name,
        "backbone_hash": source.backbone.fingerprint,
        "clare": __version__,
        **({"unknown": json.dumps(curve)} if (curve := source.unknown_curve) else {}),
    }


def converted(packages: Mapping[str, Any], module: nn.Module, name: str, inputs: Tensor, outputs: Sequence[str]) -> Any:
    """Convert what a method computes for any number of images."""
    with _expressible(name):
        # Strict: it follows the number of images through `len`, which would be a constant otherwise.
        example = inputs[:1].expand(3, -1, -1, -1).clone()
        sizes = ({0: torch.export.Dim("batch")},)
        program = torch.export.export(module, (example,), dynamic_shapes=sizes, strict=True)
    signature = program.graph_signature
    used = [*signature.inputs_to_parameters.values(), *signature.inputs_to_buffers.values()]
    check_size(sum(tensor.nbytes for key, tensor in program.state_dict.items() if key in used))
    with _expressible(name):
        translated: Any = torch.onnx.export(
            program,
            (),
            dynamo=True,
            input_names=[INPUT],
            output_names=list(outputs),
            custom_translation_table={torch.ops.aten.sort.stable: _stable_sort(packages["onnxscript"].opset18)},
            verbose=False,
        )
        return translated.model_proto


@contextmanager
def _expressible(name: str) -> Iterator[None]:
    """Turn what tracing or translation fails with into a sentence about the method."""
    try:
        with _quiet(), torch.no_grad():
            yield
    except Exception as error:  # they fail with almost every kind of exception
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(
            f"the method {name} cannot be expressed in ONNX ({reason}); "
            "use it through clare predict or clare serve, without --runtime onnx"
        ) from error


def _stable_sort(operators: Any) -> Any:
    """Return the translation of a stable sort, which torch lacks; ONNX gives ties to the lower index, as it does."""

    def sort(values: Any, stable: bool = True, dim: int = -1, descending: bool = False) -> Any:
        length = operators.Gather(operators.Shape(values), operators.Constant(value_ints=[dim]))
        return operators.TopK(values, length, axis=dim, largest=int(descending), sorted=1)

    return sort


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what the converters say about their own workings."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _with_facts(packages: Mapping[str, Any], model: Any, facts: Mapping[str, str]) -> bytes:
    """Return the file's bytes with the facts, and without the places in source files that the converter notes."""
    for part in [*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, model.graph]:
        del part.metadata_props[:]
        part.doc_string = ""
    packages["onnx"].helper.set_model_props(model, dict(facts))
    data: bytes = model.SerializeToString()
    return data


def run_onnx(data: bytes, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits and probabilities that onnxruntime computes on the CPU."""
    logits, probabilities = session_of(data).run(list(OUTPUTS), {INPUT: inputs.numpy()})
    return torch.from_numpy(logits), torch.from_numpy(probabilities)


def session_of(data: bytes, num_threads: int = 0) -> Any:
    """Return what computes a file on the CPU, on so many threads; 0 leaves onnxruntime its own choice."""
    runtime: Any = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, num_threads
    # Threads that wait for work would take the cores from everybody else.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
