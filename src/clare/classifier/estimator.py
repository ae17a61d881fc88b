"""What scikit-learn asks of an estimator, told without it."""

import inspect
from typing import Any, ClassVar, NoReturn, Self

from clare.errors import ModelError, SettingsError, nearest

LONGEST = 200
"""Characters of a parameter that are shown; of a timm model its type is."""


class Estimator:
    """Parameters that can be read, set and cloned, and tags."""

    _estimator_type: ClassVar[str] = "classifier"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return what the classifier was made with; `deep` changes nothing, as no parameter has parameters."""
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        return {name: getattr(self, name) for name in names}

    def set_params(self, **params: Any) -> Self:
        """Change what it is made with, which counts from the next `fit` on, or at once if nothing was learnt yet."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise SettingsError(
                    f"a classifier has no parameter '{name}'{nearest(name, known)}; known: {', '.join(known)}"
                )
            setattr(self, name, value)
        return self

    def __sklearn_clone__(self) -> Self:
        """Return a classifier with the same parameters that knows nothing, in memory: a folder has one owner."""
        params = self.get_params()
        return type(self)(**({**params, "folder": None} if "folder" in params else params))

    def __sklearn_tags__(self) -> Any:
        """Say that this is a classifier of pictures, for versions of scikit-learn from 1.6 on."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        inputs = InputTags(two_d_array=False, three_d_array=True, string=True)
        target, kind = TargetTags(required=True, one_d_labels=True), ClassifierTags()
        return Tags(self._estimator_type, target, classifier_tags=kind, input_tags=inputs)

    def __repr__(self) -> str:
        """Show the parameters that are not the defaults."""
        parameters = list(inspect.signature(type(self).__init__).parameters.values())[1:]
        given = [
            (each.name, getattr(self, each.name)) for each in parameters if getattr(self, each.name) is not each.default
        ]
        shown = [(name, text if len(text := repr(value)) < LONGEST else type(value).__name__) for name, value in given]
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in shown)})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise ModelError(
            "a classifier is not pickled: save(folder) writes what it knows, clare.load(folder) reads it, and "
            "sklearn.base.clone makes another one that knows nothing"
        )
