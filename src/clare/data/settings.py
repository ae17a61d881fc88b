"""Which images to learn from, the tasks they form and what happens to them; without torch."""

from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from clare.errors import nearest
from clare.settings import Acts, Settings

DRAWINGS = ("quickdraw", "quickdraw-pretrain")
TREES = ("cifar100", "cub", "imagenet-a", "imagenet-r", "objectnet", "omnibenchmark", "omnibenchmark1k", "vtab")
DATASETS = (*DRAWINGS, *TREES, "folder")

StoreChoice = Literal["auto", "device", "pinned", "mapped", "encoded"]
Kernel = Literal["bilinear", "bicubic"]


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
        description="Where images are kept: decoded on the device (GPU memory, or plain memory on a CPU run), pinned "
        "(page-locked memory of the host, copied to the GPU in batches ahead of use) or mapped (a file under `cache` "
        "that the next run finds again), or encoded (such a file of JPEGs and the like, decoded anew for each batch, "
        "in which images that `store_size` shrinks are JPEGs of quality 90 where that takes less room); auto takes the "
        "device if the images fill at most half of its free memory, else pinned if a GPU is used and they fill at most "
        "half of the host's free memory, else encoded, but with all files as they are: pixels are the same everywhere.",
    )
    cache: str = Field(
        "",
        max_length=4096,
        description="Folder for the files of mapped and encoded stores; empty is `clare` in the user's cache folder, "
        "which is $XDG_CACHE_HOME or ~/.cache.",
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


class StreamSettings(Settings):
    """How the classes of a data set become a stream of tasks."""

    first: int | None = Field(
        None, ge=1, le=1_000_000, description="Classes of the first task; the increment when left out."
    )
    increment: int = Field(ge=1, le=1_000_000, description="Classes of each later task; the last takes what is left.")
    num_classes: int | None = Field(
        None, ge=1, le=1_000_000, description="Use only so many classes of the order; all when left out."
    )
    validation_share: float = Field(0.2, ge=0, le=0.5, description="Share of each class's training images to hold out.")
    evaluate_on: Literal["test", "validation"] = Field(
        "test", description="Images that accuracies are measured on; 'validation' takes them out of training."
    )
    train_per_class: int | None = Field(
        None, ge=1, le=1_000_000_000, description="Train on at most so many images of each class; all when left out."
    )

    @model_validator(mode="after")
    def _validation_has_images(self) -> "StreamSettings":
        """Refuse to evaluate on a validation share of nothing."""
        if self.evaluate_on == "validation" and self.validation_share == 0:
            raise ValueError("evaluate_on 'validation' needs a validation_share above 0; raise it or choose 'test'")
        return self


class TransformSettings(Settings):
    """Size, augmentation and normalisation of images."""

    acts: ClassVar[Acts] = {
        **{key: {"train": ("crop",)} for key in ("crop_scale", "crop_ratio", "train_kernel")},
        **{key: {"train": ("affine",)} for key in ("rotation", "zoom", "shift", "shear")},
        "flip": {"train": ("crop", "affine")},
    }

    image_size: int = Field(224, ge=1, le=4096, description="Side of the square that the backbone sees.")
    resize: int = Field(
        256, ge=1, le=8192, description="Shorter side before the centre crop; equal to `image_size`, it cuts no border."
    )
    train: Literal["crop", "affine", "none"] = Field(
        "crop", description="Augmentation: random crops, random affine maps, or the test transform."
    )
    crop_scale: tuple[float, float] = Field((0.05, 1.0), description="Least and greatest share of the area in a crop.")
    crop_ratio: tuple[float, float] = Field((3 / 4, 4 / 3), description="Least and greatest width by height of a crop.")
    flip: float = Field(0.5, ge=0, le=1, description="Probability of mirroring left and right.")
    rotation: float = Field(15.0, ge=0, le=180, description="Greatest rotation in degrees.")
    zoom: float = Field(0.15, ge=0, lt=1, description="Greatest change of size as a share.")
    shift: float = Field(0.1, ge=0, le=1, description="Greatest shift as a share of the side.")
    shear: float = Field(10.0, ge=0, lt=90, description="Greatest horizontal shear in degrees.")
    train_kernel: Kernel = Field("bilinear", description="Filter that resizes random crops.")
    test_kernel: Kernel = Field("bicubic", description="Filter that resizes before the centre crop.")
    normalise: Literal["none", "backbone"] = Field(
        "none", description="Whether pixels in 0..1 are normalised as in the backbone's pretraining."
    )
    invert: Literal["never", "bright-border"] = Field(
        "never",
        description="Whether an image whose border is bright is turned into its negative: dark ink on white, for a "
        "backbone that knows bright ink on dark.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "TransformSettings":
        """Refuse ranges that are upside down and a crop that is larger than the image."""
        if self.resize < self.image_size:
            raise ValueError(f"resize {self.resize} is less than image_size {self.image_size}; raise resize")
        if not 0 < self.crop_scale[0] <= self.crop_scale[1] <= 1:
            raise ValueError(f"crop_scale {self.crop_scale} must rise within 0..1")
        if not 0 < self.crop_ratio[0] <= self.crop_ratio[1]:
            raise ValueError(f"crop_ratio {self.crop_ratio} must be positive and rise")
        return self
