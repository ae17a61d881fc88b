"""The page at /docs: the interface as plain HTML, without scripts and without anything from elsewhere."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'self'; img-src 'self'">
<title>{title}</title>
<link rel="icon" href="/assets/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/assets/style.css">
</head>
<body>
<header><div><h1>{title}</h1><p class="quiet">{summary}</p></div></header>
<p>The same for programs: <a href="/openapi.json">/openapi.json</a>.</p>
{requests}
</body>
</html>
"""


def describe_interface(schema: Mapping[str, Any]) -> str:
    """Return a page that shows an OpenAPI description."""
    requests = "\n".join(
        _request(method, path, operation, schema)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    )
    info = schema["info"]
    summary = escape(f"{info['description']} Version {info['version']}.")
    return PAGE.format(title=escape(f"The interface of {info['title']}"), summary=summary, requests=requests)


def _request(method: str, path: str, operation: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Show one request: what it takes and what it answers."""
    needs_token = " Needs the token, where the server has one." if operation.get("security") else ""
    takes = [
        f"<li><code>{escape(name)}</code> in the {where}: {escape(text)}</li>"
        for name, where, text in _takes(operation)
    ]
    answers = [
        f"<li>{escape(status)}: {_answer(answer, schema)}</li>" for status, answer in operation["responses"].items()
    ]
    return (
        f"<section><h2><code>{escape(method.upper())} {escape(path)}</code></h2>\n"
        f"<p>{escape(operation.get('description', ''))}{needs_token}</p>\n"
        + (f"<h3>It takes</h3>\n<ul>{''.join(takes)}</ul>\n" if takes else "")
        + f"<h3>It answers</h3>\n<ul>{''.join(answers)}</ul></section>"
    )


def _takes(operation: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, place and meaning of everything that a request may carry."""
    for parameter in operation.get("parameters", []):
        default = parameter["schema"].get("default")
        shown = "" if default is None else f" Without it: {default}."
        yield parameter["name"], parameter["in"], parameter.get("description", "") + shown
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        for name, field in body["schema"]["properties"].items():
            many = "one or more; " if field["type"] == "array" else ""
            yield name, f"form ({kind})", many + field.get("description", "A file.")


def _answer(answer: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Show one answer by the names of what it holds."""
    found = answer.get("content", {}).get("application/json", {}).get("schema", {})
    name = found.get("$ref", "").rpartition("/")[2]
    if not name:
        return escape(answer["description"])
    parts = schema["components"]["schemas"][name]
    fields = json.dumps(list(parts.get("properties", {})))
    return f"{escape(parts.get('description', name))} <code>{escape(fields)}</code>"
