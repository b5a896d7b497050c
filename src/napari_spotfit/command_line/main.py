"""The command ``napari-spotfit``."""

from __future__ import annotations

import click

from ..version import __version__
from .benchmark import benchmark
from .convert import convert
from .demo import demo
from .drift import drift
from .info import info
from .localize import localize
from .simulate import simulate


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="napari-spotfit")
def main() -> None:
    """Find and fit the spots of images: single molecules, beads, smFISH dots."""


for command in (localize, info, convert, drift, simulate, benchmark, demo):
    main.add_command(command)
