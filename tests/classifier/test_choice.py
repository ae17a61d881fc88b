"""What a new model shall be: the rule over its first lesson."""

import pytest

from clare.backbones.vit import Backbone, BackboneSettings, load_backbone
from clare.classifier.choice import MANY, Way, choose, find_ways


@pytest.fixture(scope="module")
def photos() -> Backbone:
    """Return a backbone for photos."""
    return load_backbone(
        BackboneSettings(name="vit_tiny_patch16_224", weights="random", image_size=32, architecture={"depth": 1})
    )


def wishes(ways: list[Way]) -> list[str]:
    """Return what can be wished for, the quickest first."""
    return [way.wish for way in ways]


def test_of_photos_views_and_an_adapter_can_be_chosen_and_of_drawings_neither(photos: Backbone) -> None:
    assert wishes(find_ways(photos, 2 * MANY, 2, 30.0)) == ["quick", "usual", "best"]
    assert wishes(find_ways(photos, 2 * MANY - 1, 2, 30.0)) == ["quick", "usual"]
    (drawn,) = find_ways(load_backbone(BackboneSettings()), 2 * MANY, 2, 30.0)
    assert (drawn.wish, drawn.settings, drawn.seconds) == ("usual", {}, 30.0)


def test_one_view_takes_a_third_of_three_and_training_a_multiple(photos: Backbone) -> None:
    quick, usual, best = find_ways(photos, 2 * MANY, 2, 30.0)
    assert (quick.seconds, usual.seconds) == (10.0, 30.0)
    # Three times thirteen epochs at one view, and three sweeps, in passes; the rows' own five epochs count as well.
    assert best.seconds == 10.0 * (3 * 18 + 3)


@pytest.mark.parametrize(
    ("wish", "minutes", "chosen"),
    [
        ("usual", None, "usual"),
        ("quick", None, "quick"),
        ("best", None, "best"),
        ("usual", 60, "best"),
        ("usual", 1, "usual"),
        ("usual", 0.4, "quick"),
        ("usual", 0.001, "quick"),
    ],
)
def test_the_most_accurate_that_there_is_time_for(photos: Backbone, wish: str, minutes: float, chosen: str) -> None:
    ways = find_ways(photos, 2 * MANY, 2, 30.0)
    assert choose(ways, wish, minutes).wish == chosen  # type: ignore[arg-type]


def test_what_there_is_not_is_the_nearest(photos: Backbone) -> None:
    few, drawn = find_ways(photos, 20, 2, 3.0), find_ways(load_backbone(BackboneSettings()), 20, 2, 3.0)
    assert [choose(ways, "best", None).wish for ways in (few, drawn)] == ["usual", "usual"]
    assert choose(drawn, "quick", None).wish == "usual"
