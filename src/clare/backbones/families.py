"""What each family of timm models does between an image and a feature; all other code asks this and never a class.

Shapes: B images, N tokens, D width of the residual stream; the stream of a hierarchical model is a map, (B, H, W, D) or
(B, D, H, W), whose width grows from stage to stage.
"""

from itertools import accumulate
from math import log
from typing import Any, Literal, NamedTuple

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
Context = dict[str, Tensor | None]
"""What timm hands a block beside the stream."""


class Step(NamedTuple):
    """One block, what changes the stream before it, and what timm hands it beside the stream."""

    block: nn.Module
    transition: nn.Module | None
    context: Context

    def entered(self, x: Tensor) -> Tensor:
        """Return the stream that the block reads."""
        return x if self.transition is None else self.transition(x)

    def halves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the last branch of the bare block reads, and what the block returns."""
        return halves_of(self.block)(self.block, self.entered(x), **self.context)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the stream after the block and what is attached to it."""
        after: Tensor = self.block(self.entered(x), **self.context)
        return after


class Family:
    """Tokens of one width through a list of blocks, with nothing but the tokens themselves: timm's plain ViT."""

    unit = "blocks"
    """What can be read one by one, counted from the last."""
    sizes_by_name = True
    """Whether timm takes `img_size`; other models take images of any size."""
    is_open = True
    """Whether further tokens can join, since no attention knows how many there are."""
    last_norm = "norm"

    def groups(self, model: Model) -> list[tuple[str, Any, nn.Module | None, int]]:
        """Return runs of blocks: their dotted name, the blocks, what changes the stream before them, and its width."""
        return [("blocks", model.blocks, None, int(model.embed_dim))]

    def begin(self, model: Model, images: Tensor) -> tuple[Tensor, list[Context]]:
        """Return what enters the first block, and what each block gets beside the stream; an empty list is nothing."""
        return model.norm_pre(model.patch_drop(model._pos_embed(model.patch_embed(images)))), []

    def start(self, model: Model, images: Tensor) -> tuple[Tensor, list[Step]]:
        """Return the stream that enters the first block, and the blocks."""
        x, contexts = self.begin(model, images)
        ahead = [
            (block, before if index == 0 else None)
            for _, blocks, before, _ in self.groups(model)
            for index, block in enumerate(blocks)
        ]
        contexts = contexts or [{}] * len(ahead)
        return x, [Step(*block, context) for block, context in zip(ahead, contexts, strict=True)]

    def block_names(self, model: Model) -> list[str]:
        """Return the dotted names of the blocks."""
        return [f"{name}.{index}" for name, blocks, _, _ in self.groups(model) for index in range(len(blocks))]

    def widths(self, model: Model) -> list[int]:
        """Return the width of the residual stream in each block."""
        return [width for _, blocks, _, width in self.groups(model) for _ in blocks]

    def ends(self, model: Model) -> list[int]:
        """Return the blocks after which the stream can be read: all, or the last of each stage."""
        if self.unit == "blocks":
            return list(range(len(self.widths(model))))
        return [end - 1 for end in accumulate(len(blocks) for _, blocks, _, _ in self.groups(model))]

    def tokens(self, x: Tensor) -> Tensor:
        """Return a stream as tokens, shape (B, N, D)."""
        return x.flatten(1, -2)

    def joined(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Return a stream with tokens added to it."""
        return x + tokens.view_as(x)

    def beside(self, model: Model) -> Literal["patches", "class", "nothing"]:
        """Return what can be read beside the feature: the mean of the patches, or where that is it, the class token."""
        pool = getattr(model, "global_pool", None)
        if pool in ("token", "map"):
            return "patches"
        return "class" if pool == "avg" and getattr(model, "cls_token", None) is not None else "nothing"

    def normal(self, model: Model, x: Tensor, is_last: bool) -> Tensor:
        """Return the stream after a block as the last norm leaves it; the maps of earlier stages have none."""
        if self.unit == "stages" and not is_last:
            return x
        normal: Tensor = getattr(model, self.last_norm)(x)
        return normal

    def pooled(self, model: Model, normal: Tensor, is_last: bool) -> Tensor:
        """Return the feature that is made of the stream after a block, shape (B, D): of earlier stages, the mean."""
        if self.unit == "stages" and not is_last:
            return self.tokens(normal).mean(1)
        feature: Tensor = model.forward_head(normal, pre_logits=True)
        return feature

    def takes_tokens(self, model: Model) -> bool:
        """Tell whether further tokens can join: there are no rotary positions either."""
        return self.is_open and getattr(model, "rope", None) is None

    def heads(self, model: Model) -> str:
        """Return what no shape of a weight tells, for the fingerprint: heads of attentions, and the model's class."""
        if isinstance(model, VisionTransformer):
            # It came first, when there was no class to tell and the first block spoke for all.
            return str(next(part.num_heads for part in model.blocks[0].modules() if hasattr(part, "num_heads")))
        return " ".join(
            [type(model).__name__, *(str(part.num_heads) for part in model.modules() if hasattr(part, "num_heads"))]
        )


class _Eva(Family):
    """EVA-02 and DINOv3: rotary positions, which the blocks get beside the tokens."""

    def begin(self, model: Model, images: Tensor) -> tuple[Tensor, list[Context]]:
        """Return the tokens that enter the first block, and the positions of each block."""
        x, rope = model._pos_embed(model.patch_embed(images))
        ropes = rope if model.rope_mixed and rope is not None else [rope] * len(model.blocks)
        return model.norm_pre(x), [{"rope": rope} for rope in ropes]


class _Beit(Family):
    """BEiT: a bias in every attention for each pair of positions."""

    is_open = False

    def begin(self, model: Model, images: Tensor) -> tuple[Tensor, list[Context]]:
        """Return the tokens that enter the first block, and the bias that the blocks share, if any."""
        x = model.patch_embed(images)
        x = torch.cat((model.cls_token.expand(x.shape[0], -1, -1), x), dim=1)
        x = model.pos_drop(x if model.pos_embed is None else x + model.pos_embed)
        bias = None if model.rel_pos_bias is None else model.rel_pos_bias()
        return x, [{"shared_rel_pos_bias": bias}] * len(model.blocks)


class _Staged(Family):
    """Swin: maps that grow coarser and wider from stage to stage; a stage is read after its last block."""

    unit = "stages"
    is_open = False
    stages, stem = "layers", "patch_embed"

    def groups(self, model: Model) -> list[tuple[str, Any, nn.Module | None, int]]:
        """Return the stages; each begins with what makes the map coarser."""
        pairs = enumerate(zip(getattr(model, self.stages), model.feature_info, strict=True))
        return [
            (f"{self.stages}.{place}.blocks", stage.blocks, stage.downsample, int(info["num_chs"]))
            for place, (stage, info) in pairs
        ]

    def begin(self, model: Model, images: Tensor) -> tuple[Tensor, list[Context]]:
        """Return the map that enters the first stage."""
        return getattr(model, self.stem)(images), []


class _ConvNeXt(_Staged):
    """ConvNeXt: maps whose channels come first, of images of any size."""

    stages, stem, last_norm = "stages", "stem", "norm_pre"
    sizes_by_name = False

    def tokens(self, x: Tensor) -> Tensor:
        """Return the positions of a map as tokens."""
        return x.flatten(2).mT

    def joined(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Return a map with tokens added to its positions."""
        return x + tokens.mT.view_as(x)


FAMILIES: tuple[tuple[type[nn.Module], Family], ...] = (
    (VisionTransformer, Family()),
    (Eva, _Eva()),
    (Beit, _Beit()),
    (SwinTransformer, _Staged()),
    (SwinTransformerV2, _Staged()),
    (ConvNeXt, _ConvNeXt()),
)


NEAREST = {
    "plain": {"vit_tiny_patch16_224": 6, "vit_small_patch16_224": 22, "vit_base_patch16_224": 86},
    "windows": {"swin_tiny_patch4_window7_224": 28, "swin_base_patch4_window7_224": 88},
    "convolutions": {"convnext_atto": 4, "convnext_tiny": 29, "convnext_base": 89},
}
"""Models that work with their millions of parameters, for who named one that does not."""


def family_of(model: Model) -> Family:
    """Return the family of a timm model; one of no family is refused with the nearest that works."""
    for kind, family in FAMILIES:
        if isinstance(model, kind):
            return family
    raise BackboneError(_refusal(model, f"is a {type(model).__name__}"))


def check_model(model: Model) -> None:
    """Refuse a model of no family, one that is a family's but not throughout, and blocks that nothing can join."""
    family = family_of(model)
    if type(getattr(model, "patch_embed", None)).__name__ == "HybridEmbed":
        raise BackboneError(_refusal(model, "is a hybrid, a ViT on the maps of another network", "plain"))
    for name in family.block_names(model):
        halves_of(model.get_submodule(name))


def _refusal(model: Model, what: str, likest: str | None = None) -> str:
    """Say that a model is none that works, and which is nearest."""
    parts = [type(part).__name__ for part in model.modules()] if isinstance(model, nn.Module) else []
    attends, windows = any("Att" in name for name in parts), any("Window" in name or "Stage" in name for name in parts)
    kind = likest or ("convolutions" if not attends else "windows" if windows else "plain")
    size = sum(parameter.numel() for parameter in model.parameters()) / 1e6 if parts else 0
    nearest = min(NEAREST[kind], key=lambda name: abs(log(NEAREST[kind][name] / (size or 22))))
    known = ", ".join(kind.__name__ for kind, _ in FAMILIES)
    return f"the backbone {what}, not a model that adapters can join ({known}); the nearest that works is {nearest}"
