"""The console of the commands."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from clare.plain import plain


class PlainConsole(Console):
    """Shows what rich writes; names out of folders and files cannot steer the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is shown, the characters of texts that would act on the terminal replaced."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)
