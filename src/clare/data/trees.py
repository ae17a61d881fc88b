"""Image trees, root/{train,test}/<class>/*, from files to stores."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from clare.data.cache import Contents, StaleCache, cache_folder, fingerprint, open_or_write, read_cache, write_pixels
from clare.data.decode import Decoder, Room, append_all, gpu_decoder, measure, read_images
from clare.data.encoded import EncodedStore, write_files
from clare.data.folders import Files
from clare.data.placement import Machine, Notice, Placement, allocate, choose_placement, place_images
from clare.data.settings import DataSettings
from clare.data.store import ImageStore, LabelledImages, num_store_bytes
from clare.errors import DataError
from clare.sealed import digest_of

# A canvas this much larger than the mean image wastes most of the work on padding.
MAX_PADDING = 4
MAX_WAITING = 1 << 26
"""Bytes of images that are copied at a time."""


class Filler:
    """Fills memory with images, many at a time: a copy to a GPU that other programs use waits for its turn."""

    def __init__(self, flat: Tensor, folder: Path) -> None:
        self.flat, self.folder = flat, folder
        self.waiting: list[Tensor] = []
        self.num_waiting = self.end = 0

    def append(self, image: Tensor) -> None:
        """Take one more image; more of them than there is room for are refused."""
        if self.waiting and self.waiting[0].device != image.device:
            self.flush()
        self.waiting.append(image.reshape(-1))
        self.num_waiting += image.numel()
        if self.end + self.num_waiting > len(self.flat):
            raise DataError(f"an image in '{self.folder}' grew while it was read; try again when nobody writes")
        if self.num_waiting >= MAX_WAITING:
            self.flush()

    def flush(self) -> None:
        """Copy what waits."""
        if self.waiting:
            start, self.end = self.end, self.end + self.num_waiting
            self.flat[start : self.end].copy_(torch.cat(self.waiting))
            self.waiting, self.num_waiting = [], 0


class TreeReader:
    """Reads the parts of a tree in the form and to the place that the settings ask for."""

    def __init__(self, settings: DataSettings, machine: Machine, notice: Notice) -> None:
        self.settings, self.machine, self.notice = settings, machine, notice
        self.decoder: Decoder | None = gpu_decoder(machine.device) if settings.decode == "gpu" else None

    def read(self, parts: tuple[Files, ...]) -> list[tuple[LabelledImages, int]]:
        """Return the labelled images of each part, and how many files were left out."""
        asked = self.settings.store
        # Pixels that an earlier run left are taken wherever they shall go.
        found = [None if asked == "encoded" else self._look_up(files, "mapped") for files in parts]
        rooms = [self._room(files, decoded) for files, decoded in zip(parts, found, strict=True)]
        placement = choose_placement(asked, sum(room.num_bytes for room in rooms), self.machine)
        return [
            self._labelled(files, decoded or self._gather(files, room, placement), placement)
            for files, decoded, room in zip(parts, found, rooms, strict=True)
        ]

    def _look_up(self, files: Files, placement: Placement) -> Contents | None:
        """Return the images of a part if an earlier run left them in a file."""
        path = self._cache_path(files, placement)
        try:
            return read_cache(path, self._fingerprint(files)) if path.exists() else None
        except StaleCache:
            return None

    def _room(self, files: Files, decoded: Contents | None) -> Room:
        """Return the room that the pixels of a part will take; a file grows as it is written, and needs no guess."""
        if decoded is not None:
            return Room(len(decoded.flat), 0)
        if self.settings.store in ("mapped", "encoded"):
            return Room(0, 0)
        encoded = self._look_up(files, "encoded")
        if encoded is None or not len(encoded.sizes):
            return measure(files.paths, self.settings)
        return Room(self.settings.channels * int(encoded.sizes.prod(dim=1).sum()), int(encoded.sizes.max()))

    def _gather(self, files: Files, room: Room, placement: Placement) -> Contents:
        """Bring the files of a part to where they are kept."""

        def fill(file: BinaryIO) -> dict[str, Any]:
            if placement == "encoded":
                return write_files(file, files.paths, self.settings)
            return write_pixels(file, self._images(files), self.settings.channels)

        if placement in ("mapped", "encoded"):
            return open_or_write(self._cache_path(files, placement), self._fingerprint(files), fill, self.notice)
        # Images of different sizes end with a spare row, which is no longer than the longest side.
        flat = allocate(room.num_bytes + room.longest_side, placement, self.machine.device)
        filler = Filler(flat[: room.num_bytes], files.folder)
        sizes, skipped = append_all(self._images(files), filler.append)
        filler.flush()
        return Contents(flat[: num_store_bytes(sizes, self.settings.channels)], sizes, skipped, is_mapped=False)

    def _images(self, files: Files) -> Iterator[Tensor | None]:
        """Decode the files of a part."""
        return read_images(files.paths, self.settings, self.decoder)

    def _labelled(self, files: Files, contents: Contents, placement: Placement) -> tuple[LabelledImages, int]:
        """Label the images of a part; refuse a class of which no image could be read."""
        skipped = set(contents.skipped)
        labels = [label for position, label in enumerate(files.labels) if position not in skipped]
        for label in sorted(set(files.labels) - set(labels)):
            name = files.folder / files.classes[label]
            raise DataError(f"no image in '{name}' can be read; replace them or remove the class")
        store = self._store(files, contents)
        self._warn_of_padding(files, store)
        images = LabelledImages(store, torch.arange(len(store)), torch.tensor(labels, dtype=torch.int64))
        return place_images(images, placement, self.machine.device), len(skipped)

    def _store(self, files: Files, contents: Contents) -> ImageStore:
        """Return a store of the images of a part."""
        if contents.num_bytes is None:
            return ImageStore(contents.flat, contents.sizes, self.settings.channels, contents.is_mapped)
        skipped = set(contents.skipped)
        paths = [path for position, path in enumerate(files.paths) if position not in skipped]
        return EncodedStore(contents, paths, self.settings, self.decoder, self.machine.device)

    def _warn_of_padding(self, files: Files, store: ImageStore) -> None:
        """Tell how to save time where one large image makes every batch large."""
        height, width = store.canvas_size
        if len(store) * height * width > MAX_PADDING * int(store.sizes.prod(dim=1).sum()):
            self.notice(
                f"the images in '{files.folder}' differ much in size and all are padded to {height}x{width}; "
                "set `data.store_size`, or remove the largest, to save time and memory"
            )

    def _cache_path(self, files: Files, placement: Placement) -> Path:
        """Return the file for a part of this tree in this form; changed images are written to the same."""
        settings = self.settings
        folder = cache_folder(settings.cache, os.environ)
        form = (str(files.folder.resolve()), settings.channels, settings.store_size, settings.decode)
        short = digest_of(repr(form).encode())[:12]
        kind = "pixels" if placement == "mapped" else "shrunk" if settings.store == "encoded" else "files"
        return folder / f"{settings.dataset}-{files.folder.name}-{short}.{kind}"

    def _fingerprint(self, files: Files) -> str:
        """Return the mark of the files as they are, and of the form that they are brought to."""
        form = self.settings.model_dump(include={"channels", "store_size", "skip_bad_images", "decode"})
        return fingerprint(files.folder, files.paths, form)
