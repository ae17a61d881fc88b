"""A zip of class folders becomes numbered files; no name in it ever becomes a path, and no size is believed."""

import errno
import stat
import unicodedata
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from clare.classifier.pictures import check_name
from clare.errors import ClareError
from clare.serve.limits import MIB, Limits, Refusal
from clare.serve.pictures import check_image, check_pixels

CHUNK = 1 << 16
ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")
SMALLEST_SUSPECT = MIB
"""Archives that unpack to less than this may be packed as tightly as they like."""
PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Of the others a few bytes become gigabytes in one step, before anything can be counted."""
MOST_PARTS = 3
"""Path of an image: an optional folder around all, the class, the file."""


@dataclass(frozen=True)
class StoredImage:
    """An image of a request to learn: its class, the name the user knows it by, and where its bytes are."""

    label: str
    name: str
    path: Path


def unpack(archive: Path, folder: Path, limits: Limits) -> list[StoredImage]:
    """Check an archive and write its images into a folder, numbered."""
    try:
        with zipfile.ZipFile(archive) as opened:
            members = _members(opened, limits)
            packed = archive.stat().st_size
            _check_total(sum(member.file_size for member in members), packed, limits)
            return _extract(opened, packed, list(zip(members, _labels(members), strict=True)), folder, limits)
    except ClareError:
        raise
    except Exception as error:  # damaged archives fail with almost every kind of exception
        # A place that no file has is the archive's fault; every other number comes from the disk.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise Refusal(422, f"the archive cannot be read as a zip ({error}); pack the class folders again") from None


def clean_label(label: str) -> str:
    """Return a class name in one spelling; a name that nobody could read or type is refused."""
    cleaned = unicodedata.normalize("NFC", label).strip()
    check_name(cleaned)
    return cleaned


def _members(opened: zipfile.ZipFile, limits: Limits) -> list[zipfile.ZipInfo]:
    """Return the files of an archive, without folders and what operating systems add, each with a harmless name."""
    members = []
    for member in opened.infolist():
        _check_name(member.orig_filename)
        path = PurePosixPath(member.filename)
        is_clutter = path.name == "Thumbs.db" or any(part == "__MACOSX" or part.startswith(".") for part in path.parts)
        if member.is_dir() or is_clutter:
            continue
        _check_kind(member)
        members.append(member)
        if len(members) > limits.learn_images:
            raise Refusal(413, f"the archive has more than {limits.learn_images} images; send fewer at a time")
    if not members:
        raise Refusal(422, "the archive has no images; pack one folder of images for each class")
    return members


def _check_name(name: str) -> None:
    """Refuse names that lead out of the archive's own folder."""
    if name.startswith("/") or "\\" in name or ":" in name[:2] or ".." in name.split("/") or "\0" in name:
        raise Refusal(422, f"the archive has the name {name[:200]!r}, which leads outside it; pack plain folders")


def _check_kind(member: zipfile.ZipInfo) -> None:
    """Refuse links, encrypted files and unusual packings."""
    name = member.filename[:200]
    if stat.S_ISLNK(member.external_attr >> 16):
        raise Refusal(422, f"'{name}' in the archive is a link; pack the image itself")
    if member.flag_bits & 0x1:
        raise Refusal(422, f"'{name}' in the archive is encrypted; pack it without a password")
    if member.compress_type not in PACKINGS:
        raise Refusal(422, f"'{name}' in the archive is packed in an unusual way; pack it with plain zip (deflate)")


def _check_total(total: int, packed: int, limits: Limits) -> None:
    """Refuse an archive that becomes too large."""
    if total > limits.unpacked_bytes:
        raise Refusal(
            413, f"the archive unpacks to more than {limits.unpacked_bytes} bytes; send fewer images at a time"
        )
    if total > max(SMALLEST_SUSPECT, limits.unpacked_ratio * packed):
        raise Refusal(
            413,
            f"the archive unpacks to more than {limits.unpacked_ratio} times its size; pack images that are compressed",
        )


def _labels(members: list[zipfile.ZipInfo]) -> list[str]:
    """Return the class of each file: the folder it lies in, within one optional folder around all."""
    paths = [PurePosixPath(member.filename).parts for member in members]
    has_wrapper = all(len(parts) == MOST_PARTS for parts in paths) and len({parts[0] for parts in paths}) == 1
    for parts in paths:
        if len(parts) != MOST_PARTS - (not has_wrapper):
            raise Refusal(
                422,
                f"'{'/'.join(parts)[:200]}' in the archive does not lie in a class folder; pack CLASS/IMAGE for each",
            )
    return [clean_label(parts[-2]) for parts in paths]


def _extract(
    opened: zipfile.ZipFile, packed: int, members: list[tuple[zipfile.ZipInfo, str]], folder: Path, limits: Limits
) -> list[StoredImage]:
    """Write each file under a number and make sure that it is an image."""
    images, total, num_pixels = [], 0, 0
    for number, (member, label) in enumerate(members):
        name = member.filename[:200]
        content = bytearray()
        with opened.open(member) as file:
            while chunk := file.read(CHUNK):
                content += chunk
                total += len(chunk)
                # Counted, since an archive may say anything about its sizes.
                if len(content) > limits.image_bytes:
                    raise Refusal(413, f"'{name}' unpacks to more than {limits.image_bytes} bytes; make it smaller")
                _check_total(total, packed, limits)
        if content.startswith(ZIP_STARTS):
            raise Refusal(422, f"'{name}' in the archive is itself an archive; pack the images directly")
        num_pixels += check_image(bytes(content), name, limits)
        check_pixels(num_pixels, limits.learn_pixels)
        path = folder / f"unpacked-{number:06d}"
        path.write_bytes(content)
        images.append(StoredImage(label, name, path))
    return images
