"""Multipart bodies, cut into parts while they arrive, so that no limit is noticed too late."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from clare.serve.limits import MIB, Refusal

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks


@dataclass
class Part:
    """One field of a form: its name, the file's name as the client gave it, and where its bytes are kept."""

    field: str
    filename: str
    file: BinaryIO
    path: Path | None
    size: int = 0

    @property
    def content(self) -> bytes:
        """The bytes, once all have come."""
        if self.path is not None:
            return self.path.read_bytes()
        self.file.seek(0)
        return self.file.read()


@dataclass(frozen=True)
class FormLimits:
    """The fields that a form may have with the bytes of each, and bounds on the whole."""

    fields: Mapping[str, int]
    total_bytes: int
    num_parts: int


async def read_form(
    headers: Mapping[str, str],
    stream: AsyncIterator[bytes],
    limits: FormLimits,
    folder: Path | None = None,
    take: Callable[[int], None] = lambda num_bytes: None,
) -> list[Part]:
    """Read all parts of a multipart body, into files of a folder if there is one; `take` counts bytes."""
    kind, options = parse_options_header(headers.get("content-type", ""))
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise Refusal(415, "the body is not multipart/form-data with a boundary; send the images as a form's files")
    declared = headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limits.total_bytes:
        raise _too_large(limits.total_bytes)
    receiver = _Receiver(limits, folder)
    num_bytes = 0
    try:
        parser = MultipartParser(options[b"boundary"], receiver.callbacks())
        async for chunk in stream:
            num_bytes += len(chunk)
            if num_bytes > limits.total_bytes:
                raise _too_large(limits.total_bytes)
            # Counted as they come, since a client may declare anything and send nothing.
            take(len(chunk))
            if folder is not None:
                await run_in_threadpool(parser.write, chunk)
            else:
                parser.write(chunk)
        parser.finalize()
    except FormParserError as error:
        raise Refusal(400, f"the multipart body is damaged ({error}); send it again") from None
    except ClientDisconnect:
        raise Refusal(400, "the connection ended before the whole body had come; send it again") from None
    finally:
        receiver.close_unless_kept()
    if not receiver.has_ended:
        raise Refusal(400, "the multipart body ends before its last boundary; send it again")
    return receiver.parts


def _too_large(limit: int) -> Refusal:
    """Say that a whole request is too large."""
    return Refusal(413, f"the request is larger than {_shown(limit)}; send fewer or smaller images at a time")


def _shown(num_bytes: int) -> str:
    """Return a size as a person reads it."""
    return f"{num_bytes / MIB:.3g} MiB" if num_bytes >= MIB else f"{num_bytes} bytes"


class _Receiver:
    """Takes what the parser finds and refuses what is too much or unknown."""

    def __init__(self, limits: FormLimits, folder: Path | None) -> None:
        self.limits, self.folder = limits, folder
        self.parts: list[Part] = []
        self.has_ended = False
        self._name, self._value = bytearray(), bytearray()
        self._headers: dict[bytes, bytes] = {}

    def callbacks(self) -> "MultipartCallbacks":
        """Return the functions under the names by which the parser calls them."""
        return {
            "on_part_begin": self._headers.clear,
            "on_header_field": lambda data, start, end: self._name.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._begin_part,
            "on_part_data": self._add,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }

    def close_unless_kept(self) -> None:
        """Close the files of a form that was refused."""
        if not self.has_ended:
            for part in self.parts:
                part.file.close()

    def _end_header(self) -> None:
        """Keep one header of a part."""
        self._headers[bytes(self._name).lower()] = bytes(self._value)
        self._name.clear()
        self._value.clear()

    def _begin_part(self) -> None:
        """Open a place for a part, if the form may have it."""
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        field = options.get(b"name", b"").decode(errors="replace")
        if field not in self.limits.fields:
            allowed = " and ".join(f"'{name}'" for name in self.limits.fields)
            raise Refusal(422, f"the form has a field '{field[:100]}'; the fields here are {allowed}")
        if len(self.parts) == self.limits.num_parts:
            raise Refusal(413, f"the form has more than {self.limits.num_parts} parts; send fewer images at a time")
        filename = options.get(b"filename", b"").decode(errors="replace")[:200]
        path = None if self.folder is None else self.folder / f"part-{len(self.parts):06d}"
        self.parts.append(Part(field, filename, BytesIO() if path is None else path.open("wb"), path))

    def _add(self, data: bytes, start: int, end: int) -> None:
        """Add bytes to the part that is arriving."""
        part = self.parts[-1]
        part.size += end - start
        if part.size > self.limits.fields[part.field]:
            shown = part.filename or f"part {len(self.parts)}"
            limit = _shown(self.limits.fields[part.field])
            raise Refusal(413, f"'{shown}' in the field '{part.field}' is larger than {limit}; send a smaller one")
        part.file.write(data[start:end])

    def _end_part(self) -> None:
        """Close a part's file: a form may have more parts than a process may have open files."""
        if self.parts[-1].path is not None:
            self.parts[-1].file.close()

    def _end(self) -> None:
        """Note that the last boundary has come."""
        self.has_ended = True
