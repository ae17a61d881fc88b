"""The way from an image to a feature in steps, for tuners that do more between them than a wrapper can.

Shapes: B images, N tokens, D width of the residual stream, P parts of a feature.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from clare.backbones.families import Model, family_of
from clare.errors import BackboneError


def embed(model: Model, images: Tensor) -> Tensor:
    """Return what enters the first block: tokens of shape (B, N, D), or a map."""
    return family_of(model).start(model, images)[0]


def part_sizes(model: Model, num_read: int, with_patches: bool, from_centre: bool = False) -> list[int]:
    """Return the sizes of the parts of a feature that `read` returns, or say why they cannot be read."""
    family = family_of(model)
    ends, beside, widths = family.ends(model), family.beside(model), family.widths(model)
    if num_read > len(ends):
        raise BackboneError(
            f"`method.features.blocks` is {num_read}, but the backbone has {len(ends)} {family.unit}; "
            "set it to that or less"
        )
    pool = getattr(model, "global_pool", "avg") or "not at all"
    if with_patches and beside == "nothing":
        raise BackboneError(
            "`method.features.patches` puts the mean of the patch tokens beside the class token, but the backbone's "
            f"feature is pooled otherwise ({pool}); set it to false"
        )
    if from_centre and beside == "class":
        raise BackboneError(
            "`method.features.centre` averages the middle patches, but this backbone's feature is a mean of all "
            f"patches already ({pool}), beside which only the class token can stand; set it to false"
        )
    return [widths[end] for end in ends[-num_read:] for _ in range(2 if with_patches else 1)]


def read(model: Model, images: Tensor, num_read: int, with_patches: bool, from_centre: bool = False) -> Tensor:
    """Return the backbone's feature, or parts of length one from several blocks side by side, the usual one last."""
    if num_read == 1 and not with_patches:
        usual: Tensor = model.forward_head(model.forward_features(images), pre_logits=True)
        return usual
    family = family_of(model)
    chosen = family.ends(model)[-num_read:]
    x, steps = family.start(model, images)
    # Prompts come after these tokens and leave again, so that patches are counted before.
    num_tokens = x.shape[1]
    parts = []
    for index, step in enumerate(steps):
        x = step(x)
        if index in chosen:
            is_last = index + 1 == len(steps)
            normal = family.normal(model, x, is_last)
            parts += [_extra(model, normal, num_tokens, from_centre)] if with_patches else []
            parts.append(family.pooled(model, normal, is_last))
    return torch.cat([F.normalize(part.float(), dim=1) for part in parts], 1)


def _extra(model: Model, normal: Tensor, num_tokens: int, from_centre: bool) -> Tensor:
    """Return what stands beside the pooled feature of a block, shape (B, D)."""
    if family_of(model).beside(model) == "class":
        token: Tensor = model.fc_norm(normal[:, 0])
        return token
    patches = normal[:, model.num_prefix_tokens : num_tokens]
    return mean_feature(model, central(model, patches) if from_centre else patches)


def central(model: Model, patches_BND: Tensor) -> Tensor:
    """Return the patches of an image but for a border: a quarter of them, rounded down, on every side."""
    height, width = model.patch_embed.grid_size
    rows, columns = (slice(size // 4, size - size // 4) for size in (height, width))
    num_images, _, size = patches_BND.shape
    return patches_BND.reshape(num_images, height, width, size)[:, rows, columns].flatten(1, 2)


def run_blocks(model: Model, tokens_BND: Tensor) -> Tensor:
    """Return the tokens after all blocks and the final norm, shape (B, N, D)."""
    for block in model.blocks:
        tokens_BND = block(tokens_BND)
    tokens: Tensor = model.norm(tokens_BND)
    return tokens


def mean_feature(model: Model, tokens_BND: Tensor) -> Tensor:
    """Return the mean of some final tokens as a feature, shape (B, D); a ViT that normalises after pooling does so."""
    feature: Tensor = model.fc_norm(tokens_BND.mean(1))
    return feature


def class_position(model: Model) -> Tensor:
    """Return the position embedding of the class token, shape (D,)."""
    if model.pos_embed is None or model.no_embed_class or model.cls_token is None:
        raise BackboneError(
            "the backbone's class token has no position embedding that prompts could take over; "
            "set `method.prompt_position` to none"
        )
    position: Tensor = model.pos_embed[0, 0]
    return position
