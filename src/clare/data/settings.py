"""Which images to learn from, how they are read, and where they are kept."""

from typing import Literal

from pydantic import Field, field_validator

from clare.errors import nearest
from clare.settings import Settings

DRAWINGS = ("quickdraw", "quickdraw-pretrain")
TREES = ("cifar100", "cub", "imagenet-a", "imagenet-r", "objectnet", "omnibenchmark", "omnibenchmark1k", "vtab")
DATASETS = (*DRAWINGS, *TREES, "folder")

StoreChoice = Literal["auto", "device", "pinned", "mapped"]


class DataSettings(Settings):
    """Which images to learn from, how they are read, and where they are kept."""

    dataset: str = Field(description=f"Name of the data set: {', '.join(DATASETS)}.")
    root: str = Field("data", description="Folder that holds the data sets; for 'folder' the image tree itself.")
    channels: Literal[1, 3] = Field(3, description="3 for RGB, 1 for grey.")
    store_size: int = Field(
        0,
        ge=0,
        le=100_000,
        description="Shorter side to which larger images are resized when read; 0 keeps the original size.",
    )
    skip_bad_images: bool = Field(False, description="Leave out images that cannot be read, and count them.")
    store: StoreChoice = Field(
        "auto",
        description="Where decoded images are kept: device (GPU memory, or plain memory on a CPU run), pinned "
        "(page-locked memory of the host, copied to the GPU in batches ahead of use) or mapped (a file under `cache` "
        "that the next run finds again); auto takes the device if the images fill at most half of its free memory, "
        "else pinned if a GPU is used and they fill at most half of the host's free memory, else mapped.",
    )
    cache: str = Field(
        "",
        max_length=4096,
        description="Folder for the files of mapped stores; empty is `clare` in the user's cache folder, which is "
        "$XDG_CACHE_HOME or ~/.cache.",
    )
    decode: Literal["cpu", "gpu"] = Field(
        "cpu",
        description="What decodes JPEG files; gpu is several times faster and gives slightly other pixels, most of all "
        "where a file stores colours at half the resolution; other files stay on the CPU.",
    )

    @field_validator("dataset")
    @classmethod
    def _is_known(cls, name: str) -> str:
        """Refuse a name that is not in the list."""
        if name not in DATASETS:
            raise ValueError(f"there is no such data set{nearest(name, DATASETS)}; use one of {', '.join(DATASETS)}")
        return name
