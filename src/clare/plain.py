"""Text from elsewhere as it can be shown: without characters that steer a terminal or hide what is written."""

import unicodedata
from typing import Any

STEERING = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Categories of characters that move the cursor, begin commands, or are halves of one."""
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that turn the direction of writing, so that text reads otherwise than it is."""
STAND_IN = "\N{REPLACEMENT CHARACTER}"


def is_plain(text: str) -> bool:
    """Tell whether a text can be shown on one line as it is."""
    return (text.isascii() and text.isprintable()) or not any(map(_steers, text))


def plain(text: str) -> str:
    """Return a text whose line breaks and tabs alone still steer where it is shown."""
    if is_plain(text):
        return text
    return "".join(STAND_IN if _steers(each) and each not in "\n\t" else each for each in text)


def markdown(text: str) -> str:
    """Return a text as Markdown shows it on one line: without links, pictures, emphasis and tags."""
    shown = " ".join(plain(text).split())
    for character in "\\`*_[]<>|~#!":
        shown = shown.replace(character, f"\\{character}")
    return shown.replace("&", "&amp;")


def code(text: str) -> str:
    """Return a text as a span of code in Markdown, which nothing in it ends."""
    return f"`{' '.join(plain(text).split()).replace('`', chr(39))}`"


def short(value: Any) -> str:
    """Return a value in few words."""
    try:
        text = ascii(value)
    except RecursionError:
        return "values nested so deeply"
    return text if len(text) <= 40 else f"{text[:40]}…"


def _steers(character: str) -> bool:
    """Tell whether a character does more than show itself."""
    return character in TURNING or unicodedata.category(character) in STEERING
