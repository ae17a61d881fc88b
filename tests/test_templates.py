"""Templates escape what is put into them, and miss nothing."""

from importlib.metadata import requires

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup
from packaging.requirements import Requirement

from clare import templates
from clare.templates import fill, fill_text

PAGE = "<p>\n  {{ text }}\n  {% if is_long %}<i>more</i>{% endif %}\n</p>\n"
CARD = "{% if name %}\n# {{ name|markdown }} ({{ name|code }})\n{% endif %}\nend\n"


def test_torch_brings_jinja() -> None:
    """It is no dependency of our own: torch requires it without a condition."""
    needed = [Requirement(line) for line in requires("torch") or []]
    assert any(each.name == "jinja2" and each.marker is None for each in needed)


@pytest.fixture(autouse=True)
def two_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "read_asset", {"page.html": PAGE, "card.md": CARD}.__getitem__)


def test_values_are_escaped_as_html_does_and_our_own_markup_is_not() -> None:
    assert fill("page.html", text="a <b> & 'c'", is_long=False) == "<p>a &lt;b&gt; &amp; &#x27;c&#x27;</p>"
    assert fill("page.html", text=Markup("<b>bold</b>"), is_long=True) == "<p><b>bold</b><i>more</i></p>"


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="text"):
        fill("page.html", is_long=False)


def test_markdown_keeps_its_lines_and_escapes_where_it_says_so() -> None:
    assert fill_text("card.md", name="a*b") == "# a\\*b (`a*b`)\nend\n"
    assert fill_text("card.md", name="") == "end\n"
