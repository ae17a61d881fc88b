"""Pages and cards from the package's templates, filled by Jinja, which torch requires."""

from html import escape
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from clare.plain import code, markdown


def fill(template: str, **values: object) -> str:
    """Return a page with values, each escaped that is no markup of our own; line ends of its template do not count."""
    environment = Environment(
        loader=FunctionLoader(_joined), undefined=StrictUndefined, autoescape=True, finalize=_escaped
    )
    return environment.get_template(template).render(**values)


def fill_text(template: str, **values: object) -> str:
    """Return a Markdown template with values, which it must pass through `markdown` or `code` itself."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    environment.filters.update(markdown=markdown, code=code)
    return environment.from_string(read_asset(template)).render(**values)


def read_asset(path: str) -> str:
    """Return a text file of the package."""
    return (files("clare") / path).read_text(encoding="utf-8")


def _joined(path: str) -> str:
    """Read a template without the white space around its lines, which are broken between elements."""
    return "".join(map(str.strip, read_asset(path).splitlines()))


def _escaped(value: object) -> Markup:
    """Escape a value."""
    return value if isinstance(value, Markup) else Markup(escape(str(value)))
