"""`clare inspect`, `evaluate` and `merge`."""

from collections import Counter
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clare.classifier.classifier import Classifier, load
from clare.cli.learn import capacity_line, class_table, day
from clare.cli.options import first_of, plain_table, say
from clare.errors import ModelError, SettingsError
from clare.files import write_bytes
from clare.model.folder import MANIFEST
from clare.model.records import Evaluation
from clare.report.model_plots import capacity_figure, confusion_figure
from clare.report.plots import to_png
from clare.report.tables import percent

MOST_DRAWN = 100
"""Classes in a confusion matrix, which would otherwise be too small to see."""


def inspect_command(console: Console, path: Path, plot: Path | None, method: str | None, device: str) -> None:
    """Print what a model is, knows and has left."""
    model = load(path, method=method, device=device)
    if plot is not None and model.claims is None:
        raise ModelError(f"the method '{model.parts.method.name}' claims no coordinates, so there is nothing to plot")
    num_bytes = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    unknown, fitted = "not calibrated yet", model.calibration
    if fitted is not None:
        unknown = f"threshold {fitted['threshold']:.2f}, fitted to {fitted['num_pairs']} held-back pictures"
    say(
        console,
        f"{path}: version {model.version}, {len(model.classes)} classes, method {model.parts.method.name}",
        f"backbone: {model.backbone_name}, hash {model.parts.backbone.fingerprint}, "
        f"{model.image_size} x {model.image_size} pixels, {'grey' if model.channels == 1 else 'colour'}",
        capacity_line(model),
        f"none of these: {unknown}",
        f"size on disk: {num_bytes / 1e6:.1f} MB; changes that can be undone: {model.num_undoable}",
        "",
    )
    console.print(class_table(model, range(len(model.classes)), set(), None, is_full=True))
    if model.claims:
        console.print(_claims_table(model.claims))
    console.print(_history_table(model))
    if plot is not None and model.claims is not None and model.capacity is not None:
        if not model.claims:
            raise ModelError(f"{path} has learnt no task yet, so there is nothing to plot; teach it some classes")
        write_bytes(plot, to_png(capacity_figure(model.claims, model.capacity.num_coordinates)))
        say(console, f"plot: {plot}")


def _claims_table(claims: list[list[int]]) -> Table:
    """Return how many coordinates each task claimed in each layer."""
    headings = ("task", *(f"layer {layer}" for layer in range(1, len(claims[0]) + 1)), "all")
    table = plain_table(headings, left=("task",), title="coordinates claimed")
    for task, counts in enumerate(claims, start=1):
        table.add_row(str(task), *map(str, counts), str(sum(counts)))
    return table


def _history_table(model: Classifier) -> Table:
    """Return the changes, oldest first."""
    headings = ("change", "what", "when", "classes")
    table = plain_table(headings, left=headings, title="history")
    for change in model.history:
        # An undo names what it took back.
        kind = f"undo of {change.report['undone']}" if change.kind == "undo" else change.kind
        table.add_row(str(change.number), kind, day(change.at), escape(first_of(change.classes)))
    return table


def evaluate_command(console: Console, path: Path, pictures: Path, plot: Path, method: str | None, device: str) -> None:
    """Measure a model on pictures whose classes are their folders."""
    model = load(path, method=method, device=device)
    evaluation = model.evaluate(pictures)
    console.print(_evaluation_table(evaluation))
    if evaluation.accuracy is not None:
        say(
            console,
            f"{percent(evaluation.accuracy)} % of {evaluation.num_images} pictures of known classes are named rightly, "
            f"{percent(evaluation.unknown_rate)} % are said to be none of these",
            f"probabilities of the answers: {percent(evaluation.certainty)} % on average; expected calibration error: "
            f"{percent(evaluation.calibration_error)} points",
        )
        # Drawn is what classes were taken for; of very many, those with the most mistakes.
        taken = evaluation.taken
        seen = {*taken, *(place for row in taken.values() for place in row)}
        mistakes = Counter({row: sum(found.values()) - found.get(row, 0) for row, found in taken.items()})
        shown = sorted(sorted(seen, key=lambda place: (-mistakes[place], place))[:MOST_DRAWN])
        confusion = [[taken.get(row, {}).get(column, 0) for column in shown] for row in shown]
        write_bytes(plot, to_png(confusion_figure([evaluation.classes[place] for place in shown], confusion)))
        which = "" if len(shown) == len(seen) else f" of the {MOST_DRAWN} classes with the most mistakes"
        say(console, f"confusion matrix{which}: {plot}")
    for name, (count, flagged) in evaluation.strangers.items():
        say(console, f"'{name}' is not known: {flagged} of its {count} pictures are said to be none of these")


def _evaluation_table(evaluation: Evaluation) -> Table:
    """Return accuracy and most frequent mistake of every class that has pictures."""
    headings = ("class", "pictures", "right", "accuracy (%)", "most often taken for")
    table = plain_table(headings, left=("class", "most often taken for"))
    for place, name in enumerate(evaluation.classes):
        count, correct = evaluation.counts[place], evaluation.correct[place]
        if count:
            mistakes = {other: number for other, number in evaluation.taken[place].items() if other != place}
            worst = min(mistakes, key=lambda other: (-mistakes[other], other), default=place)
            taken = f"{evaluation.classes[worst]} ({mistakes[worst]})" if mistakes else "-"
            table.add_row(escape(name), str(count), str(correct), percent(correct / count), escape(taken))
    return table


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
