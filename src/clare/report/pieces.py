"""Pieces of HTML from which the page is put together."""

from collections.abc import Mapping
from html import escape

from clare.report.tables import Sheet


def table(sheet: Sheet, name: str = "") -> str:
    """A sheet as an HTML table that scrolls sideways on a small screen; one with values can be sorted by its script."""
    header = "".join(f'<th scope="col">{escape(title)}</th>' for title in sheet.header)
    rows = []
    for index, row in enumerate(sheet.rows):
        values = sheet.values[index] if sheet.values else (None,) * len(row)
        cells = "".join(_cell(text, value) for text, value in zip(row[1:], values[1:], strict=True))
        mark = ' class="mark"' if index in sheet.marked else ""
        rows.append(f'<tr{mark}><th scope="row">{escape(row[0])}</th>{cells}</tr>')
    kind = ' class="sortable"' if sheet.values else ""
    caption = f"<caption>{escape(name)}</caption>" if name else ""
    return (
        f'<div class="scroll" tabindex="0"><table{kind}>{caption}<thead><tr>{header}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(text: str, value: float | None) -> str:
    """A figure, its uncertainty in a quieter type."""
    for sign in (" ±", " ["):
        head, found, rest = text.partition(sign)
        if found:
            shown = f"{escape(head)}<small>{escape(sign + rest)}</small>"
            break
    else:
        shown = escape(text)
    return f"<td>{shown}</td>" if value is None else f'<td data-value="{value:.9g}">{shown}</td>'


def facts(values: Mapping[str, str]) -> str:
    """Names and values in two columns."""
    rows = "".join(
        f'<tr><th scope="row">{escape(key)}</th><td>{escape(value)}</td></tr>' for key, value in values.items()
    )
    return f'<div class="scroll" tabindex="0"><table class="words"><tbody>{rows}</tbody></table></div>'


def folded(title: str, body: str, remark: str = "", kind: str = "") -> str:
    """Something that opens when asked for."""
    kind = f' class="{kind}"' if kind else ""
    note = f"<span>{escape(remark)}</span>" if remark else ""
    return f"<details{kind}><summary>{escape(title)}{note}</summary>{body}</details>"


def command(text: str, is_long: bool = False) -> str:
    """Words for a shell, which the script makes easy to copy; a long piece scrolls."""
    kind = "command long" if is_long else "command"
    return f'<pre class="{kind}" tabindex="0">{escape(text)}</pre>'
