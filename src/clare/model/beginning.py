"""A model that is made for its first lesson, and goes again where that is refused."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clare.errors import ClareError
from clare.model.folder import KEPT, MANIFEST, TENSORS, read_manifest
from clare.model.lock import writing


@contextmanager
def no_model_without_lesson(folder: Path) -> Iterator[None]:
    """Remove a model that was made within the block if it knows no classes when the block fails."""
    missing = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
    is_new = not (folder / MANIFEST).exists()
    try:
        yield
    except BaseException:
        if is_new:
            # Another process may be teaching it by now; then it is a model.
            with suppress(ClareError, OSError):
                _remove_empty(folder)
            with suppress(OSError):
                for path in missing:
                    path.rmdir()
        raise


def _remove_empty(folder: Path) -> None:
    """Remove a model that knows no classes."""
    with writing(folder, wait=False):
        if read_manifest(folder).state["classes"]:
            return
        # The manifest first: without it the rest counts as nothing.
        (folder / MANIFEST).unlink()
        for pattern in (TENSORS, KEPT):
            for path in folder.glob(pattern):
                path.unlink()
