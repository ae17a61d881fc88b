"""Where a backbone's weights are: in the package, in a file, in the Hub's cache, or still on the Hub."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from clare.backbones.settings import EMBEDDED, EMBEDDED_WEIGHTS, BackboneSettings
from clare.disk import check_space, free_space
from clare.errors import BackboneError
from clare.hub import (
    HubError,
    HubFile,
    cache_folder,
    cached_file,
    download,
    file_size,
    why_unreachable,
    without_connection,
)
from clare.index import IndexedWeights, read_index


@dataclass(frozen=True)
class Weights:
    """What kind of weights a backbone gets, their file if it is here, and what to fetch if they are on the Hub."""

    kind: Literal["package", "random", "file", "hub", "elsewhere"]
    path: Path | None = None
    hub: HubFile | None = None

    @property
    def are_here(self) -> bool:
        """Whether the backbone can be built without a connection."""
        return self.kind == "random" or (self.path is not None and self.path.is_file())


def find_weights(settings: BackboneSettings) -> Weights:
    """Find the weights that the settings name; a name that timm does not know is refused."""
    file = None if settings.name == EMBEDDED else hub_file(settings.name)
    if settings.weights == "random":
        return Weights("random")
    if settings.weights != "pretrained":
        return Weights("file", Path(settings.weights).expanduser())
    if settings.name == EMBEDDED:
        return Weights("package", Path(str(files("clare") / EMBEDDED_WEIGHTS)))
    return Weights("elsewhere") if file is None else Weights("hub", cached_file(file), file)


def check_reach(settings: BackboneSettings) -> None:
    """Refuse weights that are neither here nor to be had from the Hub."""
    found = find_weights(settings)
    reason = why_unreachable() if found.hub is not None and found.path is None else None
    if reason is not None:
        raise unfetched(f"of '{settings.name}'", reason, found.hub)


def unfetched(whose: str, reason: object, file: HubFile | None) -> BackboneError:
    """Return what is said where weights do not come from the Hub."""
    remedy = (
        f"connect once, or {without_connection(file)}" if file else "set `backbone.weights` to a local safetensors file"
    )
    return BackboneError(f"the weights {whose} could not be fetched ({reason}); {remedy}")


def hub_file(name: str) -> HubFile | None:
    """Return the file on the Hub with a timm model's weights; a few models have none there."""
    known = _published(name)
    return None if known["repository"] is None else HubFile(known["repository"], known["file"])


def weights_size(name: str) -> int:
    """Return how many bytes a timm model's weights have in full precision, classifier included."""
    return _published(name)["num_bytes"]


def _published(name: str) -> IndexedWeights:
    """Return what is known of a timm model's weights; of a model that no preset names, timm is asked."""
    known = read_index()["weights"].get(name)
    if known is None:
        # timm brings torch.
        from clare.backbones.hub import check_name, published

        check_name(name)
        known = published(name)
    return known


def fetch_weights(file: HubFile, endpoint: str | None = None, free_bytes: Callable[[Path], int] = free_space) -> Path:
    """Fetch weights to the Hub's cache, where timm finds them with and without a connection."""
    try:
        check_space(cache_folder(), file_size(file, endpoint) or 0, free_bytes, BackboneError)
        return download(file, endpoint=endpoint)
    except HubError as reason:
        raise unfetched(file.repository, reason, file) from reason
