"""The promises can be broken: a method that breaks one is found out, with a sentence that says how."""

from pathlib import Path

import pytest

from clare.methods import METHODS
from clare.testing import promises
from clare.testing.check import check_method
from clare.testing.demands import expect, keep_same
from clare.testing.promises import FOR_EACH_HEAD, FOR_EACH_METHOD, FOR_EACH_REFUSED_HEAD, Promise
from clare.testing.world import Case

FILE = Path(__file__).with_name("broken_methods.py")


@pytest.mark.parametrize(
    ("kind", "promise", "reason"),
    [
        ("Confused", promises.it_learns_every_task, "task 1 reaches 50% among its own classes, not over 80%"),
        ("Forgetful", promises.a_loaded_model_answers_as_the_saved_one, "after one more task, differs in 'adapter.val"),
        ("Forgetful", promises.a_snapshot_brings_everything_back, "after one more task differs in 'adapter.values'"),
        ("Irreversible", promises.a_snapshot_brings_everything_back, "the restored method gives other logits"),
        ("Forgetful", promises.a_stopped_run_goes_on_as_if_it_had_not_stopped, "the run that was stopped differs in "),
        ("Moody", promises.a_run_depends_on_its_seed_alone, "a second run with the same seed differs in 'names'"),
        ("Thawing", promises.frozen_stays_frozen, "the backbone after task 1 differs in 'cls_token'"),
        (
            "Meddling",
            promises.a_phase_changes_nothing_but_its_groups,
            "'train' changes head.rows, which is in none",
        ),
        ("Idle", promises.a_phase_changes_nothing_but_its_groups, "the phase 'nothing' trains nothing"),
        ("Mislabelling", promises.only_the_task_at_hand_is_seen, "after task 1 a kept picture is none of its class"),
        ("Blind", promises.only_the_task_at_hand_is_seen, "task 1 leaves 24 of its images unseen"),
        (
            "Irreversible",
            promises.a_task_that_is_cut_off_leaves_the_method_as_it_was,
            "cut off after 1 batches it gives other logits",
        ),
        ("Blind", promises.a_task_that_is_cut_off_leaves_the_method_as_it_was, "in fewer than 1 batches"),
        ("Nearsighted", promises.it_reads_what_its_features_say, "whether it reads one block"),
        ("Unbounded", promises.every_setting_is_typed_explained_and_bounded, "'rate' has no upper bound"),
        ("Silent", promises.every_setting_is_typed_explained_and_bounded, "the setting 'rate' has no description"),
        ("Permissive", promises.a_wrong_setting_is_named, "it accepts {'wrong': 1}"),
    ],
)
def test_a_broken_promise_is_told(tiny_preset: Path, tmp_path: Path, kind: str, promise: Promise, reason: str) -> None:
    METHODS.named(f"{FILE}:{kind}")
    with pytest.raises(AssertionError) as caught:
        promise(Case(f"{FILE}:{kind}", None, tiny_preset, tmp_path))
    assert reason in str(caught.value)


def test_a_refusal_without_a_way_out_is_told(tiny_preset: Path, tmp_path: Path) -> None:
    (promise,) = FOR_EACH_REFUSED_HEAD
    METHODS.named(f"{FILE}:Curt")
    with pytest.raises(AssertionError, match="cannot be used: no', which is not like"):
        promise(Case(f"{FILE}:Curt", "trained", tiny_preset, tmp_path))


def test_every_promise_is_a_sentence() -> None:
    every = (*FOR_EACH_HEAD, *FOR_EACH_METHOD, *FOR_EACH_REFUSED_HEAD)
    for promise in every:
        assert promise.__doc__
        assert promise.__doc__.endswith(".")
        assert promise.__doc__.count("\n") == 0
    assert len({promise.__name__ for promise in every}) == len(every) == 13


def test_verdicts_name_head_and_reason() -> None:
    verdicts = {verdict.promise: verdict for verdict in check_method(f"{FILE}:Blind")}
    assert len(verdicts) == 13
    seen = verdicts["only the task at hand is seen"]
    assert (seen.outcome, seen.reason) == ("broken", "with the head prototype task 1 leaves 24 of its images unseen")
    assert verdicts["frozen stays frozen"].outcome == "kept"
    assert verdicts["a head that it cannot have is refused with those that it can"].outcome == "kept"


def test_an_error_inside_a_method_is_a_broken_promise(tmp_path: Path) -> None:
    path = tmp_path / "raising.py"
    path.write_text(
        "from clare.methods.simplecil import SimpleCil\n\n\nclass Raising(SimpleCil):\n"
        "    name = 'raises'\n\n    def learn(self, task):\n        raise KeyError('oh')\n"
    )
    first = next(check_method(f"{path}:Raising"))
    assert first.outcome == "broken"
    assert (
        first.reason
        == "with the head prototype the method Raising raises KeyError: 'oh' (raising.py line 8); correct it"
    )


def test_demands_name_what_differs() -> None:
    keep_same({"a": 1}, {"a": 1}, "it")
    with pytest.raises(AssertionError, match="it differs in 'b'"):
        keep_same({"a": 1}, {"a": 1, "b": 2}, "it")
    with pytest.raises(AssertionError, match="it is calm"):
        expect(ValueError, lambda: None, "it is calm")
    with pytest.raises(AssertionError, match=r"it says 'invalid literal .*', which is not like 'y'"):
        expect(ValueError, lambda: int("x"), "it is calm", "y")


def test_no_method_of_these_tests_is_listed() -> None:
    assert not {"confused", "blind", "curt"} & set(METHODS)
