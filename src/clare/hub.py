"""Files on the Hugging Face Hub: how large they are, whether its cache has them, and how they come here.

The Hub's client is imported where it is asked, since most who name a file of the Hub never fetch it.
"""

import errno
from pathlib import Path
from typing import Literal, NamedTuple

SITE = "https://huggingface.co"
PATIENCE = 5
"""Seconds that the Hub has for its first answer."""


class HubError(Exception):
    """A file that could not be looked up or fetched, with the reason as a clause."""


class HubFile(NamedTuple):
    """A file of a repository on the Hub."""

    repository: str
    name: str
    kind: Literal["model", "dataset"] = "model"

    @property
    def page(self) -> str:
        """Where a person finds the repository."""
        return f"{SITE}/{'datasets/' if self.kind == 'dataset' else ''}{self.repository}"

    @property
    def address(self) -> str:
        """Where a browser downloads the file."""
        return f"{self.page}/resolve/main/{self.name}"


def cache_folder() -> Path:
    """Return the folder of the Hub's cache on this machine."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def cached_file(file: HubFile) -> Path | None:
    """Return where the Hub's cache on this machine has the file, if it does."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(file.repository, file.name, repo_type=file.kind)
    return Path(found) if isinstance(found, str) else None


def file_size(file: HubFile, endpoint: str | None = None) -> int | None:
    """Ask the Hub how many bytes a file has; it may not say."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    try:
        url = hf_hub_url(file.repository, file.name, repo_type=file.kind, endpoint=endpoint)
        return get_hf_file_metadata(url).size
    except Exception as error:  # the Hub's client passes on every kind of exception of the libraries beneath it
        raise HubError(_reason(error)) from error


def list_files(repository: str, revision: str | None = None) -> list[str]:
    """Return the files of a data set on the Hub, or of what the cache has of it where the Hub cannot be reached."""
    from huggingface_hub import HfApi, constants, snapshot_download

    try:
        if constants.HF_HUB_OFFLINE or why_unreachable() is not None:
            folder = Path(snapshot_download(repository, repo_type="dataset", revision=revision, local_files_only=True))
            return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        return sorted(HfApi().list_repo_files(repository, repo_type="dataset", revision=revision))
    except Exception as error:  # as above
        raise HubError(_reason(error)) from error


def download(
    file: HubFile, folder: Path | None = None, endpoint: str | None = None, revision: str | None = None
) -> Path:
    """Fetch a file to a folder, or else to the Hub's cache; what was cut short is gone on with and never seen whole."""
    from huggingface_hub import hf_hub_download

    try:
        path = hf_hub_download(
            file.repository,
            file.name,
            repo_type=file.kind,
            revision=revision,
            local_dir=folder,
            endpoint=endpoint,
            etag_timeout=10,
        )
    except Exception as error:  # as above
        raise HubError(_reason(error)) from error
    return Path(str(path))


def why_unreachable() -> str | None:
    """Ask the Hub once, where its client would try again for a minute, and say in a clause why it does not answer."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception as error:  # as above
        return _reason(error)
    return None


def without_connection(file: HubFile) -> str:
    """Say in a clause how weights come to a machine without a connection."""
    return (
        f"download {file.address} elsewhere and name the file (--backbone FILE, or the setting `backbone.weights`), "
        "or copy the Hub's cache from a machine that has them"
    )


def _reason(error: Exception) -> str:
    """Say in a clause why the Hub did not give a file."""
    from huggingface_hub import errors

    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE forbids to look beyond the cache"
    if isinstance(error, errors.GatedRepoError):
        return "its owners ask to accept their conditions on its page first"
    if isinstance(error, errors.LocalEntryNotFoundError):
        return "the Hub cannot be reached and the cache does not have it"
    if isinstance(error, errors.RepositoryNotFoundError | errors.EntryNotFoundError):
        return "the Hub does not have it"
    first_line = str(error).strip().splitlines()[:1]
    return f"{type(error).__name__}{': ' + first_line[0] if first_line else ''}"
