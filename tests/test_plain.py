"""Text from elsewhere, made harmless."""

import io

import pytest
from rich.table import Table

from clare.cli.options import PlainConsole
from clare.plain import is_plain, markdown, plain


@pytest.mark.parametrize("text", ["", "cat", "Ä 猫 [x] <b>", "🐈", "e\u0301"])
def test_what_shows_itself_stays(text: str) -> None:
    assert is_plain(text)
    assert plain(text) == text


@pytest.mark.parametrize("text", ["\x1b[31m", "a\rb", "\x07", "\x9b2J", "\x7f", "a\u202eb", "\u2028", "\udce9", "\x00"])
def test_what_steers_is_replaced(text: str) -> None:
    assert not is_plain(text)
    assert is_plain(plain(text))
    assert len(plain(text)) == len(text)


def test_line_breaks_and_tabs_stay_where_text_is_shown() -> None:
    assert not is_plain("a\nb")
    assert plain("a\n\tb\x1b") == "a\n\tb�"


def test_markdown_shows_a_name_as_it_is() -> None:
    assert markdown("cat") == "cat"
    assert markdown("<img src=x>\n| a") == r"\<img src=x\> \| a"
    assert markdown("[x](http://y) `z` *b* &lt;") == r"\[x\](http://y) \`z\` \*b\* &amp;lt;"


def test_the_console_keeps_its_own_colours_and_nobody_elses() -> None:
    file = io.StringIO()
    console = PlainConsole(file=file, force_terminal=True, color_system="standard", width=60)
    table = Table("name")
    table.add_row("\x1b]0;mine\x07\u202e")
    console.print(table)
    console.print("[red]red[/] \x9b2J")
    console.out("\x1b[5m")
    shown = file.getvalue()
    assert "\x1b[31mred\x1b[0m" in shown
    assert not {"\x07", "\x9b", "\u202e"} & set(shown)
    assert "\x1b]" not in shown
    assert "\x1b[5m" not in shown
    assert "�]0;min" in shown
