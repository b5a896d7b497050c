"""The command ``napari-spotfit``."""

from __future__ import annotations

import sys
import threading
from typing import Any

import click

from ..version import __version__
from .calibrate import calibrate
from .localize import localize
from .machine import benchmark, info
from .output import (
    EXIT_STOPPED,
    discard_output,
    end_quietly,
    escaped,
    in_options,
    write_any_text,
    write_summary,
)
from .pairs import pairs
from .simulate import demo, simulate
from .table_steps import drift, merge, precision
from .tables import convert, render, report

#: Key that says whether a program reads the output.
_FOR_PROGRAMS = "napari_spotfit.json"


class _Program(click.Group):
    """The command group; errors end in a message, and Ctrl-C in exit code 130."""

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run as the main program of a process."""
        try:
            return super().__call__(*args, **named)
        except SystemExit:
            if threading.current_thread() is threading.main_thread():
                end_quietly()
            raise

    def main(self, *args: Any, **named: Any) -> Any:
        """Run with arguments; Click handles a closed pipe."""
        write_any_text()
        try:
            return super().main(*args, **named)
        except OSError as error:
            if error.filename is not None:  # an error of a file, not of a stream
                raise
            discard_output(error)
            sys.exit(1)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note whether a program reads the output, as it gets errors as JSON, too."""
        ctx.meta[_FOR_PROGRAMS] = "--json" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; Click would report an interrupted one as failed."""
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            if ctx.meta[_FOR_PROGRAMS]:
                write_summary({"version": __version__, "error": error.format_message()})
            command = self.commands.get(ctx.invoked_subcommand or "", self)
            # It may quote names of files.
            vars(error)["message"] = escaped(in_options(error.message, command))
            raise
        except KeyboardInterrupt:
            ctx.exit(EXIT_STOPPED)


@click.group(
    cls=_Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="napari-spotfit")
def main() -> None:
    """Find and fit the spots of images: single molecules, beads, smFISH dots."""


for command in (
    localize, calibrate, pairs, info, convert, drift, merge, precision, render, report,
    simulate, benchmark, demo,
):  # fmt: skip
    main.add_command(command)
