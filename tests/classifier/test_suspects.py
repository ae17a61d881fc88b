"""What is planted among pictures is found: broken files, copies, swapped labels, outliers and odd classes."""

import csv
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from own_worlds import drawings, tiny_weights, write_pictures
from PIL import Image

from clare.classifier.classifier import Classifier
from clare.classifier.pictures import Reader
from clare.classifier.sources import find_source
from clare.classifier.suspects import Suspect, find_suspects, out_of_fold, without, wrong_labels


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Pictures of three classes in train and test, with one of every fault."""
    root = tmp_path / "planted"
    write_pictures(root / "train", "cat", "dog", "bus", number=12)
    write_pictures(root / "test", "cat", "dog", "bus", number=6, seed=1)
    train, test = root / "train", root / "test"
    (train / "cat" / "broken.png").write_text("no image")
    shutil.move(train / "cat" / "00.png", train / "dog" / "swapped.png")
    shutil.copy(train / "bus" / "01.png", train / "bus" / "again.png")
    shutil.copy(test / "bus" / "02.png", train / "bus" / "leaked.png")
    Image.open(train / "dog" / "03.png").resize((56, 56)).save(train / "dog" / "larger.jpg", quality=95)
    Image.fromarray(np.tile(np.arange(28, dtype=np.uint8) * 9, (28, 1))).save(train / "cat" / "stranger.png")
    return root


def look(folder: Path, tmp_path: Path) -> list[Suspect]:
    """Return what a tiny model finds."""
    return find_suspects(Classifier(backbone=tiny_weights(tmp_path), device="cpu").parts, find_source(folder))


def test_every_fault_that_was_planted_is_found(planted: Path, tmp_path: Path) -> None:
    found = {(each.kind, Path(each.name).name): each for each in look(planted, tmp_path)}
    assert ("unreadable", "broken.png") in found
    assert ("copy", "again.png") in found
    assert found["copy", "leaked.png"].about.endswith("test/bus/02.png in test")
    assert ("near copy", "larger.jpg") in found
    assert found["label", "swapped.png"].about == "looks like 'cat'"
    assert ("outlier", "stranger.png") in found
    assert Counter(kind for kind, _ in found)["copy"] == 2
    assert [found[place].is_left_out for place in (("copy", "again.png"), ("near copy", "larger.jpg"))] == [True, False]
    assert found["label", "swapped.png"].is_left_out


def test_pictures_without_faults_are_not_suspicious(tmp_path: Path) -> None:
    write_pictures(tmp_path / "good", "cat", "dog", "bus", number=12)
    # Some of a class differ in noise alone.
    assert {each.kind for each in look(tmp_path / "good", tmp_path)} <= {"near copy"}


def test_a_lesson_without_suspects_leaves_out_what_is_wrong(planted: Path, tmp_path: Path) -> None:
    source = find_source(planted)
    model = Classifier(backbone=tiny_weights(tmp_path), device="cpu")
    rest = without(source, find_suspects(model.parts, source))
    names = {Path(str(image)).name for images in rest.to_learn.values() for image in images}
    assert not names & {"broken.png", "again.png", "leaked.png", "swapped.png"}
    assert {"larger.jpg", "01.png", "stranger.png"} <= names
    assert Reader(1, 28, 0).to_teach(rest).num_train == sum(map(len, rest.to_learn.values())) > 30


def test_a_file_that_a_table_names_twice_is_kept_once(tmp_path: Path) -> None:
    write_pictures(tmp_path / "p", "cat", "dog", number=6)
    lines = [[str(path), path.parent.name] for path in sorted((tmp_path / "p").glob("*/*.png"))]
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path", "label"], *lines, lines[0]])
    source = find_source(tmp_path / "t.csv")
    model = Classifier(backbone=tiny_weights(tmp_path), device="cpu")
    suspects = find_suspects(model.parts, source)
    assert [each.kind for each in suspects] == ["copy"]
    assert sum(map(len, without(source, suspects).to_learn.values())) == 12


def test_classes_that_are_small_unbalanced_or_alike_are_named(tmp_path: Path) -> None:
    write_pictures(tmp_path / "p", "bus", "van", number=10)
    write_pictures(tmp_path / "p", "cow", number=2)
    write_pictures(tmp_path / "p", "many", number=140)
    for place, images in enumerate(drawings("x", number=24).values()):
        for number, image in enumerate(images):
            (tmp_path / "p" / f"twin{number % 2}").mkdir(exist_ok=True)
            Image.fromarray(image).save(tmp_path / "p" / f"twin{number % 2}" / f"{number}-{place}.png")
    found = [(each.kind, each.name) for each in look(tmp_path / "p", tmp_path)]
    assert ("small class", "cow") in found
    assert ("unbalanced class", "many") in found
    assert ("alike classes", "twin0") in found


def test_the_confident_joint_is_that_of_the_paper() -> None:
    probabilities = torch.tensor(
        [[0.9, 0.1, 0.0], [0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.8, 0.1], [0.8, 0.1, 0.1], [0.3, 0.1, 0.6]]
    ).double()
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    # Means of a class's own probability: 0.6, 0.45 and 0.6. The third is as sure as a 1, the fifth as a 0.
    assert wrong_labels(probabilities, labels).tolist() == [4, 2]


def test_out_of_fold_no_picture_knows_its_own_label() -> None:
    features = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40) % 2
    features[:, 0] += 6 * labels
    first = out_of_fold(features, labels)
    assert (first.argmax(1) == labels).double().mean() > 0.9
    turned = labels.clone()
    turned[0] = 1 - turned[0]
    assert out_of_fold(features, turned)[0].argmax() == labels[0]
    assert wrong_labels(out_of_fold(features, turned), turned)[0] == 0


def test_one_class_or_one_picture_is_looked_at_too(tmp_path: Path) -> None:
    write_pictures(tmp_path / "one", "cat", number=1)
    assert [each.kind for each in look(tmp_path / "one", tmp_path)] == ["small class"]
    write_pictures(tmp_path / "none", "cat", number=1)
    (tmp_path / "none" / "cat" / "00.png").write_text("x")
    assert [each.kind for each in look(tmp_path / "none", tmp_path)] == ["unreadable"]
