"""A process alone computes where and as Fabric would, without importing it."""

import pytest
import torch

from clare.engine.ranks import Ranks
from clare.engine.settings import EngineSettings

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("precision", ["auto", "fp32", "bf16"])
def test_alone_is_as_with_fabric(device: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    ranks = Ranks(EngineSettings.model_validate({"device": device, "precision": precision}))
    ones = torch.ones(2, 2, device=ranks.device)
    with ranks.autocast():
        alone = (ones @ ones).dtype
    assert "fabric" not in vars(ranks)
    with ranks.fabric.autocast():
        assert (ones @ ones).dtype is alone
    fabric = ranks.fabric
    assert (ranks.device, ranks.rank, ranks.world_size) == (fabric.device, fabric.global_rank, fabric.world_size)
