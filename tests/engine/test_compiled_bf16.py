"""Programs compiled for bf16, on a GPU alone: right features, and as good a model as eager single precision gives."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from clare.backbones.vit import Backbone
from clare.engine import capture
from clare.engine.context import Context, Silence
from clare.engine.run import run_experiment
from clare.methods.clare import Clare, ClareSettings
from clare.presets.load import make_experiment
from clare.report.record import read_run


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("batch_size", [64, 250, 256])
def test_on_a_gpu_compiled_bf16_features_are_right(
    batch_size: int, context: Callable[..., Context], tiny_backbone: Callable[..., Backbone]
) -> None:
    backbone = tiny_backbone(embed_dim=192, depth=6, num_heads=3)
    compiled = context(device="cuda", precision="bf16", compile="fused")
    method = Clare(backbone, ClareSettings(), 0).to("cuda").eval()
    method.adapter.values.data.add_(0.02 * torch.randn_like(method.adapter.values))
    for _ in range(10):
        images = torch.randn(batch_size, 1, 28, 28, device="cuda")
        with torch.no_grad(), compiled.ranks.autocast():
            expected = method.features(images)
        # Also where the compiler errs, since its programs are checked.
        assert capture.is_close(compiled.programs.forward(method, method.features, images), expected)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_compiled_bf16_learns_as_well_as_eager_fp32(tmp_path: Path) -> None:
    accuracies = []
    for precision, mode in (("fp32", "off"), ("bf16", "graph"), ("bf16", "fused")):
        words = ["stream.num_classes=10", f"engine.precision={precision}", f"engine.compile={mode}"]
        folder = tmp_path / f"{precision}-{mode}"
        run_experiment(make_experiment("quickdraw", "clare", words), folder, Silence())
        accuracies.append(read_run(folder).tasks[0].seen)
    # 200 test drawings: the standard error of a difference is about 2 points.
    assert max(accuracies) - min(accuracies) < 0.05
