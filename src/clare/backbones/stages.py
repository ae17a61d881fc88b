"""The stages of a plain timm ViT from image to feature, for tuners that do more between them than a wrapper can.

Shapes: B images, N tokens, D width of the residual stream, P parts of a feature.
"""

import torch
import torch.nn.functional as F
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor

from clare.errors import BackboneError


def embed(vit: VisionTransformer, images: Tensor) -> Tensor:
    """Return the tokens that enter the first block, shape (B, N, D)."""
    tokens: Tensor = vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(images))))
    return tokens


def attended(block: Block, tokens: Tensor) -> Tensor:
    """Return the residual stream after a block's attention."""
    update: Tensor = block.drop_path1(block.ls1(block.attn(block.norm1(tokens))))
    return tokens + update


def mlp_update(block: Block, tokens: Tensor) -> Tensor:
    """Return what a block's MLP adds to the residual stream after the attention."""
    update: Tensor = block.drop_path2(block.ls2(block.mlp(block.norm2(tokens))))
    return update


def pooled(vit: VisionTransformer, tokens: Tensor) -> Tensor:
    """Return the features of the tokens that leave the last block, shape (B, D)."""
    features: Tensor = vit.forward_head(vit.norm(tokens), pre_logits=True)
    return features


def num_read(vit: VisionTransformer, num_blocks: int, with_patches: bool) -> int:
    """Return the size of the features that `read` returns, or say why these blocks cannot be read."""
    if num_blocks > len(vit.blocks):
        raise BackboneError(
            f"`method.features.blocks` is {num_blocks}, but the backbone has {len(vit.blocks)} blocks; "
            "set it to that or less"
        )
    if with_patches and vit.global_pool != "token":
        raise BackboneError(
            "`method.features.patches` puts the mean of the patch tokens beside the class token, but the backbone's "
            f"feature is pooled otherwise ({vit.global_pool or 'not at all'}); set it to false"
        )
    return int(vit.num_features) * num_blocks * (2 if with_patches else 1)


def read(
    vit: VisionTransformer, images: Tensor, num_blocks: int, with_patches: bool, from_centre: bool = False
) -> Tensor:
    """Return the backbone's feature, or parts of length one from several blocks side by side, the usual one last."""
    if num_blocks == 1 and not with_patches:
        usual: Tensor = vit.forward_head(vit.forward_features(images), pre_logits=True)
        return usual
    tokens, parts = embed(vit, images), []
    # Prompts come after these tokens and leave again, so that patches are counted before.
    patches = slice(vit.num_prefix_tokens, tokens.shape[1])
    for index, block in enumerate(vit.blocks):
        tokens = block(tokens)
        if index >= len(vit.blocks) - num_blocks:
            normal = vit.norm(tokens)
            if with_patches:
                read_BND = central(vit, normal[:, patches]) if from_centre else normal[:, patches]
                parts.append(mean_feature(vit, read_BND))
            parts.append(vit.forward_head(normal, pre_logits=True))
    return torch.cat([F.normalize(part.float(), dim=1) for part in parts], 1)


def central(vit: VisionTransformer, patches_BND: Tensor) -> Tensor:
    """Return the patches of an image but for a border: a quarter of them, rounded down, on every side."""
    height, width = vit.patch_embed.grid_size
    rows, columns = (slice(size // 4, size - size // 4) for size in (height, width))
    num_images, _, size = patches_BND.shape
    return patches_BND.reshape(num_images, height, width, size)[:, rows, columns].flatten(1, 2)


def run_blocks(vit: VisionTransformer, tokens_BND: Tensor) -> Tensor:
    """Return the tokens after all blocks and the final norm, shape (B, N, D)."""
    tokens: Tensor = vit.norm(vit.blocks(tokens_BND))
    return tokens


def mean_feature(vit: VisionTransformer, tokens_BND: Tensor) -> Tensor:
    """Return the mean of some final tokens as a feature, shape (B, D); a ViT that normalises after pooling does so."""
    feature: Tensor = vit.fc_norm(tokens_BND.mean(1))
    return feature


def class_position(vit: VisionTransformer) -> Tensor:
    """Return the position embedding of the class token, shape (D,)."""
    if vit.pos_embed is None or vit.no_embed_class or not vit.has_class_token:
        raise BackboneError(
            "the backbone's class token has no position embedding that prompts could take over; "
            "set `method.prompt_position` to none"
        )
    position: Tensor = vit.pos_embed[0, 0]
    return position
