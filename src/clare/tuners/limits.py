"""What cannot be tuned on a backbone is refused before anything is learnt, with the methods that can be."""

from torch import nn

from clare.backbones.attach import bare_blocks
from clare.backbones.families import Model, family_of
from clare.errors import BackboneError

ON_EVERY_BACKBONE = (
    "agem, aper-adapter, clare, clare-plus, derpp, dst, ease, er, ewc, expert-gate, fecam, finetune, full-finetune, "
    "gem, hat, icarl, joint, linear, lwf, magmax, moal, mos, ogd, packnet, pgm, piggyback, ranpac, sema, simplecil, "
    "slca, sparcl, ssiat, tuna, wsn"
)
"""Methods whose tuners join every backbone, or that tune nothing; a test tries all of them."""


def one_width(model: Model, what: str) -> int:
    """Return the width of the residual stream, or refuse a hierarchical model."""
    widths = set(family_of(model).widths(model))
    if len(widths) > 1:
        raise unfit(model, what, "whose stages differ in width")
    return widths.pop()


def require_token_room(model: Model, what: str) -> int:
    """Return the width of tokens, or refuse a model that no further tokens can join."""
    if not family_of(model).takes_tokens(model):
        raise unfit(model, what, "whose blocks take no tokens but those of the image")
    return one_width(model, what)


def fused_projections(model: Model, what: str) -> list[str]:
    """Return the names of the layers to q, k and v, or refuse a model where each is not one layer of one width."""
    width = one_width(model, what)
    for block in bare_blocks(model):
        attention = getattr(block, "attn", None)
        layer = getattr(attention, "qkv", None)
        layer = getattr(layer, "inner", layer)
        # timm adds a bias of q and v by itself, past the layer.
        is_plain = isinstance(layer, nn.Linear) and layer.out_features == 3 * width
        if not is_plain or getattr(attention, "q_bias", None) is not None:
            raise unfit(model, what, "whose blocks do not project to q, k and v by one linear layer")
    return [f"{name}.attn.qkv" for name in family_of(model).block_names(model)]


def unfit(model: Model, what: str, why: str) -> BackboneError:
    """Say what cannot join a backbone, and which methods can."""
    return BackboneError(
        f"{what} cannot join a {type(model).__name__} {why}; choose a plain ViT, or one of the methods that work on "
        f"every backbone: {ON_EVERY_BACKBONE}"
    )
