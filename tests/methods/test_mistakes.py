"""A method of one's own that is wrong ends in one sentence, in a run and in a check."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from clare.cli.main import app
from clare.errors import ClareError, SettingsError
from clare.methods import METHODS
from clare.methods.base import Method
from clare.methods.mistakes import GONE, MEMBERS, check_members
from clare.testing.check import check_method

HEAD = """
import torch
from torch import nn
from clare.methods.base import Method
from clare.methods.finetune import FineTune
from clare.methods.simplecil import SimpleCil
from clare.steps import Collect, Group, Pass, Phase, Sgd, Solve


class Own(FineTune):
    name = "own-{label}"
    summary = "is wrong"

{body}
"""
WRONG = {
    "unused": (
        """
    def loss(self, images, labels):
        return super().loss(images, labels).detach() + 0 * self.head.block.sum()
""",
        "the loss of 'train' does not use parameter 1 of its 2, of shape (440,); use it in the loss, or leave",
    ),
    "scalar": (
        """
    def loss(self, images, labels):
        return super().loss(images, labels).mean()
""",
        "the loss of 'train' is of shape () for 8 samples; return one number for each, a tensor of shape (8,)",
    ),
    "number": (
        """
    def loss(self, images, labels):
        return 1.0
""",
        "the loss of 'train' is a float for 8 samples; return one number for each, a tensor of shape (8,)",
    ),
    "detached": (
        """
    def loss(self, images, labels):
        return super().loss(images, labels).detach()
""",
        "the loss of 'train' has no gradient; compute it from what the phase's groups train",
    ),
    "endless": (
        """
    def loss(self, images, labels):
        return super().loss(images, labels) * float("nan")
""",
        "the loss of task 1 became nan in epoch 1 of 'train'",
    ),
    "step": (
        """
    def learn(self, task):
        yield "train"
""",
        "own-step asks for 'train', which is no step; yield a Phase, Pass, Collect, Take, Solve or Notice",
    ),
    "none": (
        """
    def learn(self, task):
        yield
""",
        "own-none asks for None, which is no step",
    ),
    "plain": (
        """
    def learn(self, task):
        self.head.open_block(len(task.classes), task.generator("rows"))
""",
        "the steps of own-plain are None; write `learn` as a generator that yields",
    ),
    "nothing": (
        """
    def learn(self, task):
        yield from ()
""",
        "own-nothing learns task 1 without a single step; let `learn` yield what is to be trained",
    ),
    "unfinished": (
        """
    def learn(self, task):
        self.head.open_block(len(task.classes), task.generator("rows"))
        yield self.phase("train", 1, [Group(self.adapter.values), *self.head.groups()])
""",
        "own-unfinished gives logits of shape (7, 0) for 7 images and 2 classes; end `learn` with `yield from",
    ),
    "wide": (
        """
    def features(self, images):
        return torch.cat([super().features(images)] * 2, 1)
""",
        "the features of own-wide have the shape (8, 48), but its head takes 24 numbers of each image",
    ),
    "flat": (
        """
    def features(self, images):
        return super().features(images).flatten()

    def learn(self, task):
        yield Pass("look", lambda features, labels, weights: {"sum": features.sum()})
""",
        "; return one row for each image",
    ),
    "empty": (
        """
    def learn(self, task):
        yield Phase("train", 1, [], self.loss, Sgd(0.1), 8)
""",
        "the phase 'train' has no groups; say what it trains, or leave it out",
    ),
    "raising": (
        """
    def learn(self, task):
        yield from self.head.finish(len(task.classes))
        {}["missing"]
""",
        "the method Own raises KeyError: 'missing' (own-raising.py line 17); correct it",
    ),
    "old": (
        """
    def learn(self, task):
        self.head.open_block(len(task.classes), self.generator(task, "rows"))
        yield from self.head.finish(len(task.classes))
""",
        "; instead of `generator` use task.generator(purpose)",
    ),
    "built": (
        """
    def __init__(self, backbone, settings, seed):
        super().__init__(backbone, settings, seed)
        self.extra = nn.Linear(self.head.num_features)
""",
        "raises TypeError: Linear.__init__() missing 1 required positional argument: 'out_features' (own-built.py",
    ),
}


@pytest.mark.parametrize("label", sorted(WRONG))
def test_a_wrong_method_ends_in_one_sentence(label: str, tiny_preset: Path, tmp_path: Path) -> None:
    body, sentence = WRONG[label]
    path = tmp_path / f"own-{label}.py"
    path.write_text(HEAD.replace("{label}", label).replace("{body}", body))
    command = ["train", str(tiny_preset), "--method", f"{path}:Own", "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, [*command, "--set", "engine.eval_batch_size=7"])
    assert isinstance(result.exception, ClareError), result.exception
    assert sentence in str(result.exception)
    assert "\n" not in str(result.exception)
    first = next(verdict for verdict in check_method(f"{path}:Own") if verdict.outcome == "broken")
    assert sentence in first.reason


def test_what_is_not_read_is_refused_with_what_is(tmp_path: Path) -> None:
    for label, line, sentence in (
        (
            "gone",
            "features_are_fixed = True",
            "has `features_are_fixed`, which is no longer read; use the protocol Cach",
        ),
        (
            "alone",
            "tunable = {}",
            "has `tunable`, which only the protocol Tunable has; inherit that from clare.",
        ),
    ):
        path = tmp_path / f"{label}.py"
        path.write_text(HEAD.replace("{label}", label).replace("{body}", f"    {line}\n"))
        with pytest.raises(SettingsError) as caught:
            METHODS.named(f"{path}:Own")
        assert sentence in str(caught.value)


def test_our_own_methods_inherit_what_they_set() -> None:
    for name in METHODS:
        for kind in METHODS.get(name).__mro__:
            for member in vars(kind).keys() & MEMBERS.keys():
                assert issubclass(kind, MEMBERS[member]), (kind, member)


def test_nothing_is_gone_that_is_there() -> None:
    assert not GONE.keys() & {*vars(Method), *MEMBERS}
    check_members(Method, "the base class")
