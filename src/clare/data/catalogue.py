"""What is known of each data set: where it comes from, what may be done with it, and how many images it has."""

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

from pydantic import TypeAdapter

from clare.hub import HubFile

SUBSETS = "https://github.com/zhoudw-zdw/RevisitingCIL#dataset"
"""The page with the subsets, split into train and test, that PILOT and the field's tables use."""


class Archive(NamedTuple):
    """The one file that holds a data set, and how to tell that it is the right one."""

    name: str
    address: str
    md5: str | None = None
    hub: HubFile | None = None
    num_bytes: int | None = None
    """Its size, where a program can fetch it from the address."""

    @property
    def where(self) -> str:
        """Where a person finds the file; one on a drive could move, the page that leads to it hardly does."""
        is_lasting = self.address == SUBSETS or self.num_bytes is not None
        return self.address if is_lasting else f"{self.address} (found on {SUBSETS})"


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


CATALOGUE = TypeAdapter(dict[str, Facts]).validate_python(
    tomllib.loads((files("clare.data") / "catalogue.toml").read_text(encoding="utf-8"))
)
"""Every data set that has a name; `folder` is the user's own."""
