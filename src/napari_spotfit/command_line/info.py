"""``napari-spotfit info``: what is installed, and what fits run on."""

from __future__ import annotations

import platform
from importlib.util import find_spec
from typing import Any

import click

from ..engine.select import describe
from ..files.formats import FORMATS
from ..images.files.opening import ENDINGS
from ..settings.settings import Settings
from ..version import __version__
from .telling import tell_program

#: What some formats need besides, by the package that is imported.
_NEEDS = {".zarr": "zarr", ".raw": "yaml", ".parquet": "pyarrow"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Write it as JSON.")
def info(as_json: bool) -> None:
    """Say what is installed, what fits run on and, if that is no GPU, why."""
    cpu, best = describe(Settings(backend="cpu")), describe(Settings())
    about: dict[str, Any] = {
        "version": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "runs on": best.name,
        "cpu": cpu.name,
        "library": cpu.library,
        "gpus": best.gpus,
        "why no GPU": best.reason,
        "images": _formats(ENDINGS),
        "tables": _formats(FORMATS),
    }
    if as_json:
        tell_program(about)
        return
    for name, value in about.items():
        if isinstance(value, dict):
            value = ", ".join(end if here else f"{end} ({_NEEDS[end]} is missing)"
                              for end, here in value.items())  # fmt: skip
        if value != "":
            click.echo(f"{name + ':':12} {value}")


def _formats(endings: Any) -> dict[str, bool]:
    """Return of each format whether what it needs is installed."""
    return {end: end not in _NEEDS or find_spec(_NEEDS[end]) is not None for end in endings}
