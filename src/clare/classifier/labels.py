"""Classes as a user writes them, text or numbers, and their names, by which a model knows them."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clare.errors import DataError, ModelError, nearest
from clare.model.records import Mode

Labels = npt.NDArray[Any]
"""Labels of one kind, shape (N,)."""


def as_labels(given: Any) -> Labels:
    """Return labels as an array of text or of whole numbers; what is wrong begins as scikit-learn says it."""
    labels = np.asarray(given)
    if labels.dtype == object and all(isinstance(label, str) for label in labels.flat):
        labels = labels.astype(str)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "Ubiuf":
        raise DataError(
            f"Unknown label type: labels of shape {labels.shape} and type {labels.dtype} name no classes; give one "
            "text or whole number for each picture"
        )
    if labels.dtype.kind == "f" and not (np.isfinite(labels).all() and (labels == labels.round()).all()):
        raise DataError("Unknown label type: labels that are no whole numbers name no classes; give text or numbers")
    return labels


def kind_of(labels: Labels) -> str | None:
    """Return the type of labels that are numbers; that of text goes without saying."""
    return None if labels.dtype.kind == "U" else str(labels.dtype)


def names_of(labels: Iterable[Hashable]) -> list[str]:
    """Return the names of classes."""
    return [str(label.item() if isinstance(label, np.generic) else label) for label in labels]


def labels_of(names: Sequence[str], kind: str | None) -> Labels:
    """Return names as they were given: as text, or as numbers of a type."""
    if kind is None:
        return np.array(names, dtype=str)
    if kind == "bool":
        return np.array([name == "True" for name in names], dtype=bool)
    return np.array(names, dtype=str).astype(kind)


def quoted(names: Iterable[str]) -> str:
    """Name classes one by one."""
    return ", ".join(f"'{name}'" for name in names)


def some_of(names: Sequence[str]) -> str:
    """Name the first classes of what may be very many."""
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "") if names else "none"


def check_known(classes: Iterable[str], known: Sequence[str], mode: Mode, label: str) -> None:
    """Refuse to learn classes that are known and to update others, naming all of them."""
    there = dict.fromkeys(known)
    old, new = ([name for name in classes if (name in there) == is_known] for is_known in (True, False))
    if mode == "update" and new:
        raise ModelError(
            f"{label} knows no class {quoted(new)}{nearest(new[0], known)}; known: {some_of(known)}; teach new classes "
            "by themselves, without --update (mode 'learn')"
        )
    if mode != "update" and old:
        what = f"class {quoted(old)} is" if len(old) == 1 else f"classes {quoted(old)} are"
        rest = f"teach {quoted(new)} without them" if new else "leave them out"
        raise ModelError(f"the {what} known already; give more pictures with --update (mode 'update'), or {rest}")


def checked_kind(names: Sequence[str], kind: str | None, known: str | None, label: str) -> str | None:
    """Return the kind of all labels together; names of folders may stand for numbers, all else must be alike."""
    if kind == known or (kind is None and _stand_for(names, known)):
        return known
    raise DataError(
        f"the classes of {label} are of type {known or 'text'}, and {', '.join(map(repr, names[:3]))} of type "
        f"{kind or 'text'}; give labels of one kind, or begin anew with fit"
    )


def _stand_for(names: Sequence[str], kind: str | None) -> bool:
    """Tell whether names are numbers of a type, written out."""
    try:
        return names_of(labels_of(names, kind)) == list(names)
    except ValueError:
        return False
