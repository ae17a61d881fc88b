"""Lessons of pictures far from what the drawing backbone was pretrained on: filled, coloured, like small emoji.

    OMP_NUM_THREADS=1 python scripts/measure_far_pictures.py [--out FILE]

Two lessons of three kinds, taught with `--method clare` as it comes, and with a trust region that lets everything pass.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from clare.classifier.classifier import Classifier
from clare.engine.commit import source_commit
from clare.engine.ranks import Ranks
from clare.engine.run import environment
from clare.engine.settings import EngineSettings
from clare.files import write_json

ROOT = Path(__file__).parents[1]
SIDE, SPREAD = 64, 1.5
COLOURS = {
    "face": (255, 205, 60),
    "heart": (220, 40, 60),
    "star": (250, 180, 30),
    "sun": (255, 150, 20),
    "tree": (40, 140, 60),
    "house": (170, 90, 60),
}
LESSONS = (("face", "heart", "star"), ("sun", "tree", "house"))
Points = Callable[..., list[tuple[float, float]]]


def picture(kind: str, random: RandomState) -> NDArray[np.uint8]:
    """Draw one picture of a kind; every corner and colour is a little off."""
    image = Image.new("RGB", (SIDE, SIDE), "white")
    pen = ImageDraw.Draw(image)
    colour = tuple(int(np.clip(part + random.normal(0, 12), 0, 255)) for part in COLOURS[kind])
    dark = tuple(part // 3 for part in colour)

    def off(*corners: tuple[float, float]) -> list[tuple[float, float]]:
        return [(x + random.normal(0, SPREAD), y + random.normal(0, SPREAD)) for x, y in corners]

    SHAPES[kind](pen, off, colour, dark)
    return np.asarray(image)


def face(pen: ImageDraw.ImageDraw, off: Points, colour: Any, dark: Any) -> None:
    """A disc with two eyes and a mouth."""
    pen.ellipse(off((6, 6), (58, 58)), fill=colour)
    for x in (22, 42):
        pen.ellipse(off((x - 5, 20), (x + 5, 32)), fill=dark)
    pen.arc(off((18, 26), (46, 50)), 10, 170, fill=dark, width=4)


def heart(pen: ImageDraw.ImageDraw, off: Points, colour: Any, _: Any) -> None:
    """Two discs above a triangle."""
    pen.ellipse(off((8, 10), (33, 36)), fill=colour)
    pen.ellipse(off((31, 10), (56, 36)), fill=colour)
    pen.polygon(off((10, 28), (54, 28), (32, 58)), fill=colour)


def star(pen: ImageDraw.ImageDraw, off: Points, colour: Any, _: Any) -> None:
    """Five points."""
    corners = [(28 if k % 2 == 0 else 12, math.pi * k / 5 - math.pi / 2) for k in range(10)]
    pen.polygon(off(*((32 + r * math.cos(a), 32 + r * math.sin(a)) for r, a in corners)), fill=colour)


def sun(pen: ImageDraw.ImageDraw, off: Points, colour: Any, _: Any) -> None:
    """A disc with eight rays."""
    for k in range(8):
        angle = math.pi * k / 4
        pen.line(off((32, 32), (32 + 30 * math.cos(angle), 32 + 30 * math.sin(angle))), fill=colour, width=4)
    pen.ellipse(off((16, 16), (48, 48)), fill=colour)


def tree(pen: ImageDraw.ImageDraw, off: Points, colour: Any, _: Any) -> None:
    """A crown on a trunk."""
    pen.rectangle(off((28, 40), (36, 60)), fill=(120, 80, 40))
    pen.ellipse(off((10, 4), (54, 46)), fill=colour)


def house(pen: ImageDraw.ImageDraw, off: Points, colour: Any, dark: Any) -> None:
    """A roof on a box."""
    pen.rectangle(off((12, 28), (52, 58)), fill=colour)
    pen.polygon(off((6, 30), (58, 30), (32, 6)), fill=dark)


SHAPES: dict[str, Callable[..., None]] = {
    "face": face,
    "heart": heart,
    "star": star,
    "sun": sun,
    "tree": tree,
    "house": house,
}


def teach(num_train: int, num_test: int, settings: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """Teach both lessons, and return how many of each lesson's pictures are named rightly after each."""
    random = RandomState(seed)
    train, test = ({kind: [picture(kind, random) for _ in range(n)] for kind in SHAPES} for n in (num_train, num_test))
    model, right, told = Classifier(method="clare", settings=settings, device="cpu", seed=seed), [], []
    for number, lesson in enumerate(LESSONS):
        model.learn({kind: train[kind] for kind in lesson})
        told.append(model.parts.method.diagnosis().get("trust"))
        row = []
        for kinds in LESSONS[: number + 1]:
            said = model.predict([image for kind in kinds for image in test[kind]]).tolist()
            row.append(sum(a == b for a, b in zip(said, (k for k in kinds for _ in test[k]), strict=True)))
        right.append(row)
        print(settings, row, told[-1], flush=True)
    return {"settings": settings, "right": right, "of": num_test * len(LESSONS[0]), "trust": told, "seed": seed}


def main() -> None:
    """Teach with and without the trust region, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "results/far_pictures.json")
    given, num_train, num_test = parser.parse_args(), 30, 20
    facts = {
        "command": "python scripts/measure_far_pictures.py",
        "num_train": num_train,
        "num_test": num_test,
        "environment": {**environment(Ranks(EngineSettings(device="cpu"))), "commit": source_commit()},
    }
    runs = [teach(num_train, num_test, settings) for settings in ({}, {"trust": 1.0})]
    write_json(given.out, {**facts, "runs": runs})


if __name__ == "__main__":
    main()
