"""The model that answers: the last whole one in the folder, exchanged at once when there is a newer one."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from clare.classifier.classifier import Classifier
from clare.errors import ClareError

logger = logging.getLogger(__name__)


class CurrentModel:
    """Holds the model in use; whoever asks takes it once and keeps it for the whole answer."""

    def __init__(self, path: Path, open_model: Callable[[Path], Classifier], executor: Executor | None) -> None:
        """Take the folder, how to open it, and where that is done after the first time."""
        self.path, self.open_model, self.executor = path, open_model, executor
        self._stamp = self._read_stamp()
        self.model = open_model(path)
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """Exchange the model if the folder holds another version."""
        async with self._lock:
            stamp = self._read_stamp()
            newest = await asyncio.get_running_loop().run_in_executor(self.executor, self.open_model, self.path)
            self._stamp = stamp
            if newest.version != self.model.version:
                self.model = newest

    async def watch(self, seconds: float) -> None:
        """Notice changes that other processes make to the folder."""
        while True:
            await asyncio.sleep(seconds)
            stamp = self._read_stamp()
            if stamp == self._stamp:
                continue
            try:
                await self.refresh()
            except Exception as error:  # whatever is in the folder now, the model in use and this watch go on
                self._stamp = stamp
                reason = str(error) if isinstance(error, ClareError | OSError) else f"{type(error).__name__}: {error}"
                logger.warning("the model goes on as version %d: %s", self.model.version, reason)

    def _read_stamp(self) -> tuple[int, int]:
        """Return what tells one manifest from the next."""
        try:
            status = (self.path / "model.json").stat()
        except OSError:
            return 0, 0
        return status.st_mtime_ns, status.st_ino
