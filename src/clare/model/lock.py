"""One writer at a time in a model folder."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from clare.errors import ModelError
from clare.locks import LOCK, holding


@contextmanager
def writing(
    folder: Path, wait: bool, notice: Callable[[str], None] = lambda text: None, makes_folder: bool = False
) -> Iterator[None]:
    """Hold the folder's lock; a second writer waits for the first, or is refused."""

    def when_held(holder: str) -> None:
        if not wait:
            raise ModelError(f"{holder} is teaching {folder}; try again when it is done, or wait for it (no --no-wait)")
        notice(f"{holder} is teaching {folder}; waiting until it is done")

    with ExitStack() as stack:
        try:
            if makes_folder:
                folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(holding(folder / LOCK, when_held))
        except OSError as error:
            raise ModelError(f"{folder} cannot be written ({error.strerror}); choose another folder") from error
        yield
