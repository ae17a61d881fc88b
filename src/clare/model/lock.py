"""One writer at a time in a model folder, and no model that its first lesson was refused."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from clare.errors import ClareError, ModelError
from clare.files import no_empty_folder
from clare.locks import LOCK, holding
from clare.model.folder import KEPT, MANIFEST, read_manifest
from clare.model.tensors import TENSORS


@contextmanager
def writing(
    folder: Path, wait: bool, notice: Callable[[str], None] = lambda text: None, makes_folder: bool = False
) -> Iterator[None]:
    """Hold the folder's lock; a second writer waits for the first, or is refused."""

    def when_held(holder: str) -> None:
        if not wait:
            raise ModelError(
                f"{holder} is teaching {folder}; try again when it is done, or leave out --no-wait to wait for it"
            )
        notice(f"{holder} is teaching {folder}; waiting until it is done")

    with ExitStack() as stack:
        try:
            if makes_folder:
                folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(holding(folder / LOCK, when_held))
        except OSError as error:
            raise ModelError(f"{folder} cannot be written ({error.strerror}); choose another folder") from error
        yield


@contextmanager
def no_model_without_lesson(folder: Path) -> Iterator[None]:
    """Remove a model that was made within the block if it knows no classes when the block fails."""
    is_new = not (folder / MANIFEST).exists()
    with no_empty_folder(folder):
        try:
            yield
        except BaseException:
            if is_new:
                # Another process may be teaching it by now; then it is a model.
                with suppress(ClareError, OSError):
                    _remove_empty(folder)
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
