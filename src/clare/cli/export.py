"""`clare export`."""

from pathlib import Path

from rich.console import Console

from clare.export.export import Format, export_model


def export_command(
    console: Console, model: Path, format: Format, out: Path | None, check: Path | None, method: str | None
) -> None:
    """Export a model folder, and say what was written and how near it is to the original."""
    export = export_model(model, format, out, check, method)
    agreement = export.agreement
    for name in export.names:
        size = (export.folder / name).stat().st_size
        console.print(f"{export.folder / name} ({_size(size)})", soft_wrap=True, highlight=False)
    console.print(agreement.sentence(), soft_wrap=True, highlight=False)
    if not agreement.pictures.are_real:
        console.print("no real pictures were at hand; --check FOLDER checks with yours", soft_wrap=True)


def _size(num_bytes: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e5 else f"{num_bytes / 1e3:.1f} kB"
