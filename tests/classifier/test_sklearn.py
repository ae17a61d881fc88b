"""A classifier is an estimator of scikit-learn, as its own checks see it and as its tools use it."""

import re
import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from own_worlds import drawings, tiny_weights, write_pictures
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import check_array, get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import check_is_fitted

import clare
from clare.errors import SettingsError

SIDE = 28
NO_NUMBER = "pictures have no number of features: each may have a size of its own"
NO_SKLEARN = "the package does without scikit-learn, so it cannot raise its errors or give its warnings"
NO_PICKLE = "nothing is pickled; `save` writes a folder"
CANNOT: dict[str, str] = {
    "check_estimators_unfitted": f"{NO_SKLEARN}: NotFittedError, where a ModelError says what to call",
    "check_supervised_y_2d": f"{NO_SKLEARN}: DataConversionWarning",
    "check_do_not_raise_errors_in_init_or_set_params": "a folder is opened, or refused, as soon as it is named",
    "check_n_features_in_after_fitting": NO_NUMBER,
    "check_n_features_in": NO_NUMBER,
    "check_classifiers_train": f"{NO_NUMBER}; it asks for an error where there are fewer at the prediction",
    "check_estimators_pickle": NO_PICKLE,
    "check_estimators_partial_fit_n_features": "it names all classes beforehand, which nobody knows when classes come",
    "check_methods_subset_invariance": "the backbone's float32 rounds otherwise in batches of other sizes",
    "check_requires_y_none": "X alone is enough where it says what it shows: a folder, a dict, a data set",
}
"""The checks that pictures cannot meet, and why."""


class OfRows(clare.Classifier):
    """Sees a row of numbers as a picture, since the checks know nothing but rows: a band of grey for each number."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        return super().fit(self.pictures(X), y)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        return super().partial_fit(self.pictures(X), y)

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(self.pictures(X))

    def score(self, X: Any, y: Any = None) -> float:
        return super().score(self.pictures(X), y)

    def pictures(self, X: Any) -> Any:
        """Return a picture for each row."""
        rows = check_array(X).astype(np.float64)
        places = np.arange(SIDE * SIDE) % rows.shape[1]
        return (1 / (1 + np.exp(-rows)))[:, places].reshape(-1, SIDE, SIDE)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the settings of a tiny backbone."""
    return tiny_weights(tmp_path_factory.mktemp("tiny"))


def named(check: Any) -> str:
    """Return the name of a check, whatever it is given."""
    return str(getattr(check, "func", check).__name__)


def checks() -> list[Any]:
    """Return all checks with their numbers and names."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not inherit from", UserWarning)
        found = enumerate(check for _, check in estimator_checks_generator(OfRows()))
        return [pytest.param(check, id=f"{number}-{named(check)}") for number, check in found]


CHECKS = checks()


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore:.* occurred during set_params of param folder:UserWarning")
def test_the_checks_of_scikit_learn_hold(check: Any, tiny: Any) -> None:
    estimator = OfRows(backbone=tiny, method="simplecil", device="cpu")
    if named(check) not in CANNOT:
        check(estimator)
        return
    with pytest.raises((AssertionError, TypeError, ValueError, clare.errors.ClareError)):  # type: ignore[attr-defined]
        check(estimator)


def test_every_exception_is_a_check_that_there_is() -> None:
    assert CANNOT.keys() <= {named(check.values[0]) for check in CHECKS}


def stacked(*classes: str, seed: int = 0) -> tuple[Any, Any]:
    """Return pictures as an array, and their classes."""
    pictures = drawings(*classes, seed=seed)
    return np.stack([image for images in pictures.values() for image in images]), np.repeat(list(pictures), 10)


def test_a_clone_knows_nothing_and_lives_in_memory(tiny: Any, tmp_path: Path) -> None:
    model = clare.Classifier(tmp_path / "model", backbone=tiny, method="simplecil", seed=3, device="cpu")
    model.fit(*stacked("cat", "dog"))
    other = clone(model)
    assert other.get_params() == {**model.get_params(), "folder": None}
    with pytest.raises(AttributeError, match="before the first lesson"):
        _ = other.classes_
    other.fit(*stacked("bus", "van"))
    assert clare.load(tmp_path / "model", device="cpu").classes_.tolist() == ["cat", "dog"]


def test_parameters_are_read_and_set(tiny: Any) -> None:
    model = clare.Classifier(backbone=tiny, device="cpu")
    assert list(model.get_params()) == ["folder", "backbone", "method", "settings", "seed", "device", "num_kept"]
    assert model.set_params(method="simplecil", seed=4) is model
    assert (
        repr(clare.Classifier("model", method="linear", seed=4))
        == "Classifier(folder='model', method='linear', seed=4)"
    )
    assert repr(clare.Classifier(backbone=model.parts.backbone.vit)) == "Classifier(backbone=VisionTransformer)"
    # Nothing was learnt yet, so they count at once; later they wait for the next fit.
    assert (model.parts.method.name, model.parts.method.seed) == ("simplecil", 4)
    model.fit(*stacked("cat", "dog")).set_params(method="linear")
    assert model.parts.method.name == "simplecil"
    assert model.fit(*stacked("cat", "dog")).parts.method.name == "linear"
    model.undo()
    assert model.parts.method.name == "simplecil"
    assert model.predict(stacked("cat")[0]).tolist() == ["cat"] * 10
    with pytest.raises(SettingsError, match=r"no parameter 'metod' \(did you mean 'method'\?\)"):
        model.set_params(metod="clare")


def test_a_folder_can_be_set_too(tiny: Any, tmp_path: Path) -> None:
    clare.Classifier(tmp_path / "model", backbone=tiny, device="cpu").fit(*stacked("cat", "dog"))
    model = clare.Classifier(device="cpu").set_params(folder=tmp_path / "model")
    assert model.classes_.tolist() == ["cat", "dog"]


def test_tags_say_what_it_takes(tiny: Any) -> None:
    model = clare.Classifier(backbone=tiny, device="cpu")
    tags = get_tags(model)
    assert (tags.estimator_type, tags.input_tags.two_d_array, tags.input_tags.three_d_array) == (
        "classifier",
        False,
        True,
    )
    assert is_classifier(model)
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    check_is_fitted(model.fit(*stacked("cat", "dog")))


def test_pipelines_and_searches_take_it(tiny: Any) -> None:
    X, y = stacked("cat", "dog")
    model = clare.Classifier(backbone=tiny, method="simplecil", device="cpu")
    darker = FunctionTransformer(lambda pictures: pictures // 2)
    pipeline = make_pipeline(darker, model).fit(X, y)
    assert pipeline.score(X, y) == 1
    np.testing.assert_array_equal(pipeline.classes_, ["cat", "dog"])
    assert cross_val_score(model, X, y, cv=2).tolist() == [1, 1]
    search = GridSearchCV(model, {"seed": [1, 2]}, cv=2).fit(list(X), y)
    assert search.best_score_ == 1
    assert search.predict(X[:2]).tolist() == ["cat", "cat"]


def test_the_example_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[2] / "docs" / "own_pictures.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text().split("### From scikit-learn")[1], re.DOTALL)
    write_pictures(tmp_path / "pictures" / "january", "cat", "dog", number=6)
    write_pictures(tmp_path / "pictures" / "february", "dog", "bus", number=6)
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    assert "['cat' 'dog' 'bus']" in capsys.readouterr().out
