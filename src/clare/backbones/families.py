"""What each family of timm models does between an image and a feature; all other code asks this and never a class.

Shapes: B images, N tokens, D width of the residual stream; the stream of a hierarchical model is a map, (B, H, W, D) or
(B, D, H, W), whose width grows from stage to stage.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from timm.models.beit import Beit
from timm.models.convnext import ConvNeXt
from timm.models.eva import Eva
from timm.models.swin_transformer import SwinTransformer
from timm.models.swin_transformer_v2 import SwinTransformerV2
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from clare.backbones.residuals import halves_of
from clare.errors import BackboneError

Model = Any
"""A timm model of one of these families: they share names of methods and no base class."""


@dataclass(frozen=True)
class Step:
    """One block, what changes the stream before it, and what timm hands it beside the stream."""

    block: nn.Module
    transition: nn.Module | None = None
    context: dict[str, Tensor | None] | None = None

    def entered(self, x: Tensor) -> Tensor:
        """Return the stream that the block reads."""
        return x if self.transition is None else self.transition(x)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the stream after the block and what is attached to it."""
        after: Tensor = self.block(self.entered(x), **(self.context or {}))
        return after


class Family:
    """Tokens of one width through a list of blocks, with nothing but the tokens themselves: timm's plain ViT."""

    unit = "blocks"
    """What can be read one by one, counted from the last."""
    sizes_by_name = True
    """Whether timm takes `img_size`."""

    def block_names(self, model: Model) -> list[str]:
        """Return the dotted names of the blocks."""
        return [f"blocks.{index}" for index in range(len(model.blocks))]

    def widths(self, model: Model) -> list[int]:
        """Return the width of the residual stream in each block."""
        return [int(model.embed_dim)] * len(model.blocks)

    def start(self, model: Model, images: Tensor) -> tuple[Tensor, list[Step]]:
        """Return the stream that enters the first block, and the blocks."""
        x = model.norm_pre(model.patch_drop(model._pos_embed(model.patch_embed(images))))
        return x, [Step(block) for block in model.blocks]

    def tokens(self, x: Tensor) -> Tensor:
        """Return a stream as tokens, shape (B, N, D)."""
        return x

    def joined(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Return a stream with tokens added to it."""
        return x + tokens

    def ends(self, model: Model) -> list[int]:
        """Return the blocks after which the stream can be read."""
        return list(range(len(model.blocks)))

    def beside(self, model: Model) -> Literal["patches", "class", "nothing"]:
        """Return what can be read beside the feature: the mean of the patches, or where that is it, the class token."""
        if model.global_pool in ("token", "map"):
            return "patches"
        return "class" if model.global_pool == "avg" and getattr(model, "cls_token", None) is not None else "nothing"

    def normal(self, model: Model, x: Tensor, is_last: bool) -> Tensor:
        """Return the stream after a block as the last norm leaves it."""
        normal: Tensor = model.norm(x)
        return normal

    def pooled(self, model: Model, normal: Tensor, is_last: bool) -> Tensor:
        """Return the feature that is made of the stream after a block, shape (B, D)."""
        feature: Tensor = model.forward_head(normal, pre_logits=True)
        return feature

    def takes_tokens(self, model: Model) -> bool:
        """Tell whether further tokens can join: no attention knows how many there are, or where each of them lies."""
        return True

    def heads(self, model: Model) -> str:
        """Return what no shape of a weight tells, for the fingerprint: the heads of the first block's attention."""
        heads = str(next(part.num_heads for part in model.blocks[0].modules() if hasattr(part, "num_heads")))
        # The plain ViT came first, when there was no class to tell.
        return heads if isinstance(model, VisionTransformer) else f"{type(model).__name__} {heads}"

    def least_side(self, model: Model) -> int:
        """Return the side of the smallest image."""
        return 1

    def side(self, model: Model) -> int | None:
        """Return the side of the images that the model takes; none where any side will do."""
        return int(model.patch_embed.img_size[0])


class _Eva(Family):
    """EVA-02 and DINOv3: rotary positions, which the blocks get beside the tokens."""

    def start(self, model: Model, images: Tensor) -> tuple[Tensor, list[Step]]:
        """Return the tokens that enter the first block, and the blocks with their positions."""
        x, rope = model._pos_embed(model.patch_embed(images))
        ropes = rope if model.rope_mixed and rope is not None else [rope] * len(model.blocks)
        steps = [Step(block, context={"rope": rope}) for block, rope in zip(model.blocks, ropes, strict=True)]
        return model.norm_pre(x), steps

    def takes_tokens(self, model: Model) -> bool:
        """Tell whether there are no rotary positions, as in the first EVA."""
        return bool(model.rope is None)


class _Beit(Family):
    """BEiT: a bias in every attention for each pair of places."""

    def start(self, model: Model, images: Tensor) -> tuple[Tensor, list[Step]]:
        """Return the tokens that enter the first block, and the blocks with the bias that they share, if any."""
        x = model.patch_embed(images)
        x = torch.cat((model.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        x = model.pos_drop(x if model.pos_embed is None else x + model.pos_embed)
        bias = None if model.rel_pos_bias is None else model.rel_pos_bias()
        return x, [Step(block, context={"shared_rel_pos_bias": bias}) for block in model.blocks]

    def takes_tokens(self, model: Model) -> bool:
        """Tell that the biases have no rows for further tokens."""
        return False


class _Staged(Family):
    """Maps that grow coarser and wider from stage to stage; a stage is read after its last block."""

    unit = "stages"
    stages, stem = "layers", "patch_embed"

    def block_names(self, model: Model) -> list[str]:
        """Return the dotted names of the blocks of all stages."""
        stages = enumerate(getattr(model, self.stages))
        return [
            f"{self.stages}.{place}.blocks.{index}" for place, stage in stages for index in range(len(stage.blocks))
        ]

    def widths(self, model: Model) -> list[int]:
        """Return the width of the residual stream in each block."""
        pairs = zip(model.feature_info, getattr(model, self.stages), strict=True)
        return [int(info["num_chs"]) for info, stage in pairs for _ in stage.blocks]

    def start(self, model: Model, images: Tensor) -> tuple[Tensor, list[Step]]:
        """Return the map that enters the first stage, and the blocks; a stage begins with what makes it coarser."""
        steps = [
            Step(block, stage.downsample if index == 0 else None)
            for stage in getattr(model, self.stages)
            for index, block in enumerate(stage.blocks)
        ]
        return getattr(model, self.stem)(images), steps

    def tokens(self, x: Tensor) -> Tensor:
        """Return the places of a map as tokens."""
        return x.flatten(1, 2)

    def joined(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Return a map with tokens added to its places."""
        return x + tokens.view_as(x)

    def ends(self, model: Model) -> list[int]:
        """Return the last block of each stage."""
        sizes = [len(stage.blocks) for stage in getattr(model, self.stages)]
        return [sum(sizes[: place + 1]) - 1 for place in range(len(sizes))]

    def beside(self, model: Model) -> Literal["patches", "class", "nothing"]:
        """Return nothing: the mean over the map is the feature."""
        return "nothing"

    def takes_tokens(self, model: Model) -> bool:
        """Tell that a map has no room for tokens."""
        return False

    def normal(self, model: Model, x: Tensor, is_last: bool) -> Tensor:
        """Return the last map after the last norm, and one before it as it is, since its width has no norm."""
        return super().normal(model, x, is_last) if is_last else x

    def pooled(self, model: Model, normal: Tensor, is_last: bool) -> Tensor:
        """Return the feature of the last map, or the mean over one before it."""
        return super().pooled(model, normal, is_last) if is_last else self.tokens(normal).mean(1)

    def heads(self, model: Model) -> str:
        """Return the model's class and the heads of every attention."""
        counts = [part.num_heads for part in model.modules() if hasattr(part, "num_heads")]
        return " ".join(map(str, [type(model).__name__, *counts]))

    def least_side(self, model: Model) -> int:
        """Return the side of which the coarsest map has one place."""
        return int(model.feature_info[-1]["reduction"])


class _ConvNeXt(_Staged):
    """ConvNeXt: maps whose channels come first, of images of any size."""

    stages, stem = "stages", "stem"
    sizes_by_name = False

    def tokens(self, x: Tensor) -> Tensor:
        """Return the places of a map as tokens."""
        return x.flatten(2).mT

    def joined(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Return a map with tokens added to its places."""
        return x + tokens.mT.view_as(x)

    def normal(self, model: Model, x: Tensor, is_last: bool) -> Tensor:
        """Return the last map as the head takes it, and one before it as it is."""
        normal: Tensor = model.norm_pre(x) if is_last else x
        return normal

    def side(self, model: Model) -> int | None:
        """Return none: a convolution takes any side."""
        return None


FAMILIES: tuple[tuple[type[nn.Module], Family], ...] = (
    (VisionTransformer, Family()),
    (Eva, _Eva()),
    (Beit, _Beit()),
    (SwinTransformer, _Staged()),
    (SwinTransformerV2, _Staged()),
    (ConvNeXt, _ConvNeXt()),
)


LADDERS: dict[str, dict[str, float]] = {
    "plain": {
        "vit_tiny_patch16_224": 5.7,
        "vit_small_patch16_224": 22,
        "vit_base_patch16_224": 86,
        "vit_large_patch16_224": 304,
    },
    "windows": {
        "swin_tiny_patch4_window7_224": 28,
        "swin_small_patch4_window7_224": 50,
        "swin_base_patch4_window7_224": 88,
        "swin_large_patch4_window7_224": 197,
    },
    "convolutions": {
        "convnext_atto": 3.7,
        "convnext_nano": 16,
        "convnext_tiny": 29,
        "convnext_base": 89,
        "convnext_large": 198,
    },
}
"""Models that work, with their millions of parameters, for who named one that does not."""


def family_of(model: Model) -> Family:
    """Return the family of a timm model; one of no family is refused with the nearest that works."""
    for kind, family in FAMILIES:
        if isinstance(model, kind):
            return family
    raise BackboneError(_refusal(model, f"is a {type(model).__name__}"))


def check_model(model: Model) -> None:
    """Refuse a model of no family, one that is a family's but not throughout, and blocks that nothing can join."""
    family = family_of(model)
    embedding = type(getattr(model, "patch_embed", None)).__name__
    if embedding == "HybridEmbed":
        raise BackboneError(_refusal(model, "is a hybrid, a ViT on the maps of another network", "plain"))
    for name in family.block_names(model):
        halves_of(model.get_submodule(name))


def _refusal(model: Model, what: str, ladder_name: str | None = None) -> str:
    """Say that a model is none that works, and which is nearest."""
    parts = [type(part).__name__ for part in model.modules()] if isinstance(model, nn.Module) else []
    attends, windows = any("Att" in name for name in parts), any("Window" in name or "Stage" in name for name in parts)
    ladder = LADDERS[ladder_name or ("convolutions" if not attends else "windows" if windows else "plain")]
    size = sum(parameter.numel() for parameter in model.parameters()) / 1e6 if parts else 22
    nearest = min(ladder, key=lambda name: abs(ladder[name] - size))
    known = ", ".join(kind.__name__ for kind, _ in FAMILIES)
    return f"the backbone {what}, not a model that adapters can join ({known}); the nearest that works is {nearest}"
