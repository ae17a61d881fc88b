"""What is known of each data set: where it comes from, what may be done with it, and how many images it has."""

from dataclasses import dataclass
from typing import NamedTuple

from clare.hub import HubFile

SUBSETS = "https://github.com/zhoudw-zdw/RevisitingCIL#dataset"
"""The page with the subsets, split into train and test, that PILOT and the field's tables use."""
_DRIVE = "https://drive.google.com/file/d"


class Archive(NamedTuple):
    """The one file that holds a data set, and how to tell that it is the right one."""

    name: str
    address: str
    md5: str | None = None
    hub: HubFile | None = None

    @property
    def where(self) -> str:
        """Where a person finds the file; one on a drive could move, the page that leads to it hardly does."""
        return self.address if self.address == SUBSETS else f"{self.address} (found on {SUBSETS})"


@dataclass(frozen=True)
class Facts:
    """A data set as its authors and users describe it; what nobody says is none."""

    title: str
    page: str
    licence: str
    num_classes: int | None = None
    num_train: int | None = None
    num_test: int | None = None
    num_images: int | None = None
    """Training and test images together."""
    is_quoted: bool = False
    """Whether the numbers of images are taken from papers or from others' counts, so that they may be off."""
    num_bytes: int | None = None
    """Room that the images take."""
    archive: Archive | None = None
    remark: str = ""


CATALOGUE: dict[str, Facts] = {
    "quickdraw": Facts(
        "Quick, Draw! (200 classes to learn)",
        "https://quickdraw.withgoogle.com/data",
        "CC BY 4.0",
        num_classes=200,
        num_train=16_000,
        num_test=4_000,
    ),
    "quickdraw-pretrain": Facts(
        "Quick, Draw! (145 classes to pretrain on)",
        "https://quickdraw.withgoogle.com/data",
        "CC BY 4.0",
        num_classes=145,
        num_train=11_600,
        num_test=2_900,
    ),
    "cifar100": Facts(
        "CIFAR-100",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "none is stated; the page asks to cite its authors",
        num_classes=100,
        num_train=50_000,
        num_test=10_000,
        num_bytes=187_000_000,
    ),
    "cub": Facts(
        "CUB-200-2011",
        "https://www.vision.caltech.edu/datasets/cub_200_2011/",
        "see the page; those who split it say that they have no right to distribute it",
        num_classes=200,
        num_images=11_788,
        num_bytes=1_150_000_000,
        archive=Archive(
            "cub.zip", f"{_DRIVE}/1XbUpnWpJPnItt5zQ6sHJnsjPncnNLvWb/view", "85e342a2d5f941e740193602057df7a5"
        ),
    ),
    "imagenet-r": Facts(
        "ImageNet-R",
        "https://github.com/hendrycks/imagenet-r",
        "see the page; those who split it say that they have no right to distribute it",
        num_classes=200,
        num_images=30_000,
        num_bytes=2_200_000_000,
        archive=Archive(
            "imagenet-r.zip", f"{_DRIVE}/1SG4TbiL8_DooekztyCVK8mPmfhMo8fkR/view", "730aa3fb9c7d2ec0b6381c6b23040681"
        ),
        remark="papers give the split as 24,000 and 6,000; others counted 24,076 training images",
    ),
    "imagenet-a": Facts(
        "ImageNet-A",
        "https://github.com/hendrycks/natural-adv-examples",
        "see the page; those who split it say that they have no right to distribute it",
        num_classes=200,
        num_train=5_981,
        num_test=1_519,
        is_quoted=True,
        archive=Archive(
            "ina.zip", f"{_DRIVE}/19l52ua_vvTtttgVRziCZJjal0TPE9f2p/view", "7f4aaf0b1532b7a0bd670822c152d3c5"
        ),
    ),
    "objectnet": Facts(
        "ObjectNet",
        "https://huggingface.co/datasets/timm/objectnet",
        "derived from CC BY 4.0, and it forbids to tune the parameters of any model on ObjectNet",
        num_classes=200,
        num_train=26_509,
        num_test=6_628,
        is_quoted=True,
        archive=Archive("objnet.tgz", SUBSETS, "63ff7443a47bd682016a8ec59b8cc1bc"),
        remark="the field trains on it all the same: decide for yourself whether you may",
    ),
    "omnibenchmark": Facts(
        "OmniBenchmark (300 classes)",
        "https://zhangyuanhan-ai.github.io/OmniBenchmark",
        "CC BY-NC-ND 4.0; those who split it say that they have no right to distribute it",
        num_classes=300,
        num_train=89_697,
        num_test=5_985,
        is_quoted=True,
        archive=Archive(
            "omnibenchmark.zip", f"{_DRIVE}/1AbCP3zBMtv_TDXJypOCnOgX8hJmvJm3u/view", "f1c30808a707f9197c6c811ea52e5cbb"
        ),
    ),
    "omnibenchmark1k": Facts(
        "OmniBenchmark-1K",
        "https://github.com/LMMMEng/CaRE",
        "made with the permission of the author of OmniBenchmark, which is under CC BY-NC-ND 4.0",
        num_classes=1_000,
        num_train=168_718,
        num_images=190_000,
        is_quoted=True,
        archive=Archive(
            "omnibenchmark1k.tar.gz",
            "https://huggingface.co/datasets/LMMM2025/OmniBenchmark-1K",
            hub=HubFile("LMMM2025/OmniBenchmark-1K", "omnibenchmark1k.tar.gz", is_dataset=True),
        ),
    ),
    "vtab": Facts(
        "VTAB (a subset)",
        SUBSETS,
        "see the page; those who made the subset say that they have no right to distribute it",
        archive=Archive(
            "vtab.zip", f"{_DRIVE}/1xUiwlnx4k0oDhYi26KL5KwrCAya-mvJ_/view", "a9c37bde6105a2516c900b0c33a437c1"
        ),
    ),
}
"""Every data set that has a name; `folder` is the user's own.

Sums of the archives: https://github.com/LAMDA-CL/RevisitingCIL/issues/5.
"""
