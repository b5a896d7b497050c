"""Write the output of commands, for people and for programs, and handle Ctrl-C.

The first Ctrl-C ends work at the next safe point, the second one at once.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from unicodedata import category

import click

QUIET, USUAL, VERBOSE = range(3)

#: Unicode's categories of control characters, writing directions, and line ends.
_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp"})
#: The exit code after Ctrl-C.
EXIT_STOPPED = 130


def write_message(text: str, level: int, least: int = USUAL) -> None:
    """Write a message for people to stderr."""
    if level >= least:
        context = click.get_current_context(silent=True)
        shown = text if context is None else in_options(text, context.command)
        with suppress(OSError):  # the stream may be closed
            click.echo(escaped(shown), err=True)


def in_options(text: str, command: click.Command) -> str:
    """Return a message with the options of a command instead of Python's names of arguments.

    Examples
    --------
    >>> command = click.Command("convert", params=[click.Option(["--pixel-size"])])
    >>> in_options("pixel_size.csv: “pixel_size” needs pixel_size: pass pixel_size=….", command)
    'pixel_size.csv: “pixel_size” needs --pixel-size: pass --pixel-size ….'
    """
    parts = re.split("(“[^”]*”)", text)  # names of files stay
    for option in command.params:
        flag = max(option.opts, key=len)
        if option.name and flag.startswith("--"):
            for place in range(0, len(parts), 2):
                parts[place] = re.sub(rf"\b{option.name}=…", f"{flag} …", parts[place])
                if "_" in option.name:  # no word of the language, nor a part of a path
                    word = rf"(?<![\w./\\-]){option.name}(?![\w/\\-]|\.\w)"
                    parts[place] = re.sub(word, flag, parts[place])
    return "".join(parts)


def escaped(text: str) -> str:
    r"""Escape characters that could move, colour or hide text in a terminal.

    Examples
    --------
    >>> escaped("σ of “a\x1b[2J\n.tif”")
    'σ of “a\\x1b[2J\\n.tif”'
    """
    return "".join(
        one.encode("unicode_escape").decode() if category(one) in _UNSEEN else one for one in text
    )


def refuse_equal_paths(source: Path, outputs: Mapping[str, Path | None]) -> None:
    """Raise a UsageError if an output would be written over another one, or the input.

    Parameters
    ----------
    source : Path
        The input.
    outputs : mapping of str to Path
        Files by the option that names them; None for those that are not written.
    """
    taken = {source.resolve(): "the input"}
    for option, path in outputs.items():
        if path is None:
            continue
        place = path.resolve()
        if place in taken:
            raise click.UsageError(
                f"{option} would be written over {taken[place]}, “{path}”: give it another name"
            )
        taken[place] = option


@contextmanager
def errors_written(*others: type[Exception]) -> Iterator[None]:
    """End with a message where a file, a library or a value is wrong; with a traceback else."""
    kinds: tuple[type[Exception], ...] = (ImportError, OSError, ValueError, *others)
    try:
        yield
    except kinds as error:
        raise click.ClickException(str(error)) from None


@contextmanager
def warnings_written(table: Path) -> Iterator[None]:
    """Write warnings as messages about a table."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        write_message(f"{table.name}: {warning.message}", USUAL)


def write_at_once(text: str) -> None:
    """Write a message from a signal handler, which may have interrupted the stream."""
    with suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), f"{text}\n".encode())


def write_summary(summary: Mapping[str, Any]) -> None:
    """Write a summary for programs, in ASCII, so that encodings do not matter."""
    click.echo(json.dumps(summary, indent=2))


def write_any_text() -> None:
    """Make the streams escape characters that their encoding lacks, such as σ."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def discard_output(error: OSError) -> None:
    """Report that the output cannot be written, and discard the rest of it."""
    write_message(f"Error: the output cannot be written: {error}", QUIET, QUIET)
    # Python would try to write buffered output at exit, and fail with a traceback.
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


@contextmanager
def progress(label: str, level: int) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal; yield a function of frames done and all frames."""
    if level < USUAL or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    begun = time.perf_counter()
    with click.progressbar(
        length=1,
        label=escaped(label),
        file=sys.stderr,
        show_eta=True,
        item_show_func=lambda rate: rate and str(rate),
    ) as bar:

        def show(done: int, total: int) -> None:
            bar.length = total
            rate = done / max(time.perf_counter() - begun, 1e-9)
            bar.update(done - bar.pos, f"{rate:.0f} frames/s")

        yield show


class Stop:
    """Notes the first Ctrl-C while it is entered; the second one interrupts."""

    def __init__(self, level: int = USUAL) -> None:
        self.asked, self._level = False, level
        self._before: Any = None

    def __enter__(self) -> Stop:
        self._before = signal.signal(signal.SIGINT, self._remember)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _remember(self, number: int, frame: Any) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, self._interrupt)
        if self._level >= USUAL:
            write_at_once("Stopping; press Ctrl-C again to stop at once")

    def _interrupt(self, number: int, frame: Any) -> None:
        # Do not interrupt the clean-up, which would only cause tracebacks.
        end_at_next_ctrl_c()
        raise KeyboardInterrupt


def end_at_next_ctrl_c() -> None:
    """Make a further Ctrl-C end the process without a message, as if killed."""
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(EXIT_STOPPED))


def end_quietly() -> None:
    """Ignore Ctrl-C while Python ends, except to stop waiting for threads."""
    end_at_next_ctrl_c()
    # Later, Python's own handlers are gone, and the signal would kill the process.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
