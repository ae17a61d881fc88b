"""Which backbone is frozen; without torch, so that what only reads settings starts at once."""

from pydantic import Field

from clare.settings import Settings

EMBEDDED = "quickdraw-vit"
EMBEDDED_WEIGHTS = "backbones/embedded/quickdraw_vit.safetensors"


class BackboneSettings(Settings):
    """Which pretrained model to freeze."""

    name: str = Field(
        EMBEDDED, description=f"A timm name with its tag, or '{EMBEDDED}' for the drawing model in the package."
    )
    weights: str = Field(
        "pretrained", description="'pretrained' (timm's or the package's), 'random', or a safetensors file."
    )
    image_size: int | None = Field(None, ge=8, le=1024, description="Side of the input; none keeps the model's own.")
    architecture: dict[str, int | tuple[int, ...]] = Field(
        {}, description="Sizes given to timm when the weights are random or a file, such as depth, embed_dim or depths."
    )
