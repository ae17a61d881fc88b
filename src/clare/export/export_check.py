"""Pictures on which an exported model is set against the original, and how near it must come."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clare.data.images import IMAGE_SUFFIXES, decode_image, shrink_image
from clare.data.sources import DataSettings, load_dataset
from clare.data.store import ImageStore
from clare.errors import DataError, ModelError
from clare.export.export_source import Source
from clare.seeds import generator_at

NUM_PICTURES = 32
TIE = 1e-5
"""Classes whose logits are nearer than this are equally good answers."""


@dataclass(frozen=True)
class Pictures:
    """Some pictures, and what they are."""

    images: ImageStore
    description: str
    are_real: bool = True


@dataclass(frozen=True)
class Agreement:
    """How near an exported model came to the original."""

    pictures: Pictures
    difference: float
    tolerance: float
    compared_with: str
    num_other: int = 0
    """Pictures that an export of rounded rows gives another class."""

    def sentence(self) -> str:
        """Say what was compared, and what came out."""
        same = f"{self.num_other} of them get another class" if self.num_other else "every picture gets the same class"
        return (
            f"checked with {self.compared_with} on {self.pictures.description}: the logits differ by at most "
            f"{self.difference:.1e} ({self.tolerance:.0e} is allowed) and {same}"
        )


def find_pictures(source: Source, folder: Path | None) -> Pictures:
    """Return pictures of a folder, else embedded drawings for a drawing model, else synthetic ones."""
    if folder is not None:
        return _pictures_of(folder, source)
    channels = source.backbone.channels
    if source.is_drawing_model:
        drawings = load_dataset(DataSettings(dataset="quickdraw", channels=channels)).test
        chosen = drawings.store.batch(drawings.indices[evenly(len(drawings))])
        return Pictures(ImageStore.from_array(chosen.pixels), f"{NUM_PICTURES} embedded drawings")
    images = ImageStore.from_array(synthetic(NUM_PICTURES, channels, source.transforms.image_size))
    return Pictures(images, f"{NUM_PICTURES} synthetic pictures", are_real=False)


def _pictures_of(folder: Path, source: Source) -> Pictures:
    """Decode some pictures of a folder and the folders in it, spread evenly over their names."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder} to check with; give --check a folder with pictures")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    if not found:
        raise DataError(f"{folder} has no pictures to check with; give --check a folder with pictures")
    chosen = [found[place] for place in evenly(len(found)).tolist()]
    channels, side = source.backbone.channels, source.transforms.resize
    # No larger than the model sees them: large photos side by side would fill the memory.
    images = ImageStore.from_images([shrink_image(decode_image(path, channels), side) for path in chosen])
    return Pictures(images, f"{len(chosen)} {'picture' if len(chosen) == 1 else 'pictures'} of {folder.name}")


def evenly(num_found: int) -> Tensor:
    """Return the places of at most `NUM_PICTURES` things, spread evenly over all."""
    num_chosen = min(num_found, NUM_PICTURES)
    return torch.arange(num_chosen) * num_found // num_chosen


def synthetic(num_images: int, channels: int, size: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Draw smooth random blobs as uint8 (N, C, S, S), always the same."""
    coarse = torch.rand(num_images, channels, 5, 5, generator=generator_at(0, "export"))
    smooth = F.interpolate(coarse, size=(size, size), mode="bilinear", align_corners=False)
    return (255 * smooth).to(torch.uint8).numpy()


def compare(
    exported: Tensor,
    original: Tensor,
    pictures: Pictures,
    tolerance: float,
    compared_with: str,
    is_rounded: bool = False,
) -> Agreement:
    """Return how far logits are from the original's; refuse an export that is too far away or answers otherwise.

    One whose numbers were rounded may answer otherwise: then it is counted how often.
    """
    if exported.shape != original.shape:
        raise ModelError(
            f"the export gives logits of shape {tuple(exported.shape)} where the model gives {tuple(original.shape)}; "
            "it was not written: please report this"
        )
    # The scores of some heads are log posteriors in the hundreds, of which single precision keeps so many digits.
    size = max(1.0, float(original.abs().max()))
    difference = float((exported - original).abs().max()) / size
    # Written so that a difference that is no number is refused too.
    if not difference <= tolerance:
        raise ModelError(
            f"the export's logits differ by {difference:.1e} from the model's on {pictures.description}, "
            f"and {tolerance:.0e} is allowed; it was not written: please report this"
        )
    answers = original.gather(1, exported.argmax(1, keepdim=True)).squeeze(1)
    num_other = int((answers < original.amax(1) - TIE * size).sum())
    if num_other and not is_rounded:
        raise ModelError(
            f"the export names another class than the model for {num_other} of {pictures.description}; "
            "it was not written: please report this"
        )
    return Agreement(pictures, difference, tolerance, compared_with, num_other)
