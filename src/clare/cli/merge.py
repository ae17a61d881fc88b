"""`clare merge`."""

from pathlib import Path
from shlex import quote

from rich.console import Console

from clare.classifier.classifier import Classifier, load
from clare.cli.console import say
from clare.cli.learn import class_table
from clare.errors import SettingsError
from clare.model.folder import MANIFEST


def merge_command(console: Console, models: list[Path], out: Path, method: str | None, device: str) -> None:
    """Write a model that knows what all of these know; they stay as they are."""
    if len(models) < 2:
        raise SettingsError(
            f"one model came ({models[0]}), and merging takes two or more; name another one before --out"
        )
    if (out / MANIFEST).exists():
        raise SettingsError(
            f"{out} holds a model already, which merging does not change; choose another folder for --out"
        )
    # A folder of anything else is refused.
    Classifier(out, device=device)
    found = [load(path, method=method, device=device) for path in models]
    model = found[0]
    model.detach()
    shared: dict[str, None] = {}
    for other in found[1:]:
        shared |= dict.fromkeys(model.merge(other).report["shared"])
    model.save(out)
    places = range(len(model.classes))
    console.print(class_table(model, places, set(), None, is_full=False))
    head = model.parts.method.head
    how = "as one model taught with all pictures would be" if head.merges_exactly else "with means and scatter exact"
    lines = [f"{out}: {len(model.classes)} classes from {len(models)} models, {how}"]
    if shared and not head.merges_exactly:
        lines.append(
            f"known to several: {len(shared)}; of these each model kept some directions alone, so they are near to "
            "what all pictures would have given, and not the same"
        )
    lines.append("next: clare predict {0} IMAGE…   clare learn {0} MORE".format(quote(str(out))))
    say(console, *lines)
