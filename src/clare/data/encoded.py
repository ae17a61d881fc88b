"""Images whose files lie side by side in one mapped file, and are decoded anew for every batch."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from clare.data.cache import Contents
from clare.data.decode import NUM_AHEAD, Decoder, decode_or_leave, read_file, shrink_images
from clare.data.images import Pixels, decode_image, is_plain_jpeg, shrink_image, size_in, stored_size
from clare.data.prefetch import map_ahead
from clare.data.settings import DataSettings
from clare.data.store import ImageStore

QUALITY = 90
"""Of shrunk images, with full colour resolution: nearer to the pixels than 95 with half of that, in fewer bytes."""
MAX_SIDE = 65_500  # pixels; JPEG knows no longer sides


Kept = tuple[bytes, tuple[int, ...]]
"""What is kept of a file, and the height and width of the image that it gives."""


def write_files(file: BinaryIO, paths: Sequence[Path], form: DataSettings) -> dict[str, Any]:
    """Write what is kept of image files one after another, and return what the index says of them."""
    index: dict[str, list[Any]] = {"skipped": [], "sizes": [], "lengths": []}
    with ThreadPoolExecutor() as pool:
        for position, kept in enumerate(map_ahead(pool, partial(kept_of, form=form), paths, NUM_AHEAD)):
            if kept is None:
                index["skipped"].append(position)
            else:
                index["lengths"].append(file.write(kept[0]))
                index["sizes"].append(kept[1])
    return index


def kept_of(path: Path, form: DataSettings) -> Kept | None:
    """Return a file as it is, or shrunk where that is asked for and saves; nothing for a bad one that is skipped."""
    try:
        content = path.read_bytes()
    except OSError:  # as for decoding, which will tell what is wrong
        content = b""
    size = size_in(content)
    is_small = size is not None and stored_size(*size, form.store_size) == size
    # The header of a whole plain JPEG is enough: Pillow hardly ever refuses the rest. To skip, one must be sure.
    if size and is_small and not form.skip_bad_images and is_plain_jpeg(content):
        return content, size
    image = read_file(path, form)
    if image is None:
        return None
    if form.store == "encoded" and not is_small and max(image.shape) <= MAX_SIDE:
        content = min(content, _as_jpeg(image.numpy()), key=len)
    return content, tuple(image.shape[1:])


def _as_jpeg(image: Pixels) -> bytes:
    """Encode a (channels, height, width) image."""
    file = BytesIO()
    plain = image[0] if len(image) == 1 else np.moveaxis(image, 0, 2)
    Image.fromarray(plain).save(file, "JPEG", quality=QUALITY, subsampling=0)
    return file.getvalue()


class EncodedStore(ImageStore):
    """Images that are decoded by threads, or by a GPU, whenever they are asked for."""

    def __init__(
        self, contents: Contents, paths: Sequence[Path], form: DataSettings, decoder: Decoder | None, home: torch.device
    ) -> None:
        """Take the bytes of all files, where each comes from, and what decodes to which memory if a GPU does."""
        super().__init__(contents.flat, contents.sizes, form.channels, True, home if decoder else None)
        assert contents.num_bytes is not None
        self.starts = [0, *contents.num_bytes.cumsum(0).tolist()]
        self.paths, self.form, self.decoder = paths, form, decoder
        self.pool = ThreadPoolExecutor(thread_name_prefix="clare-decode")

    def to(self, device: torch.device | str) -> EncodedStore:
        """Return the store as it is: of every batch, wherever it goes, the pixels are made when it is asked for."""
        return self

    def rows(self, indices: Tensor, out: Tensor | None = None) -> Tensor:
        """Decode the images of a canvas; what lies outside an image is left as it comes, and is to be blanked."""
        shape = (len(indices), self.channels, *self.canvas_size)
        pixels = torch.empty(shape, dtype=torch.uint8, device=self.device) if out is None else out
        places = indices.tolist()
        list(self.pool.map(self._fill, pixels, places, self._decoded(places)))
        return pixels

    def _decoded(self, places: Sequence[int]) -> list[Tensor | None]:
        """Return the images that the GPU decodes, and nothing for those that are left to Pillow."""
        if self.decoder is None:
            return [None] * len(places)
        contents = {place: content for place in places if is_plain_jpeg(content := self._content(place))}
        images = dict(zip(contents, decode_or_leave(list(contents.values()), self.channels, self.decoder), strict=True))
        return [images.get(place) for place in places]

    def _fill(self, target: Tensor, place: int, image: Tensor | None) -> None:
        """Write an image, which Pillow decodes unless it is there already, into its part of a canvas."""
        size = self.form.store_size
        if image is None:
            decoded = decode_image(self._content(place), self.channels, str(self.paths[place]))
            small = torch.from_numpy(np.require(shrink_image(decoded, size), requirements=["W"]))
        else:
            small = shrink_images([image], size)[0]
        target[:, : small.shape[1], : small.shape[2]] = small

    def _content(self, place: int) -> bytes:
        """Return the bytes of one file."""
        return self.flat[self.starts[place] : self.starts[place + 1]].numpy().tobytes()
