"""Write the output of commands, for people and for programs, and handle Ctrl-C.

The first Ctrl-C ends work where nothing is half done, the second one ends it at once.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any
from unicodedata import category

import click

QUIET, USUAL, VERBOSE = range(3)

#: Unicode's control signs, those of the direction of writing, and ends of lines.
_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp"})
#: The exit code after Ctrl-C.
EXIT_STOPPED = 130


def write_message(text: str, level: int, least: int = USUAL) -> None:
    """Write a sentence for people to the stream of errors, which programs do not read."""
    if level >= least:
        with suppress(OSError):  # a closed stream is no reason to fail
            click.echo(escaped(text), err=True)


def escaped(text: str) -> str:
    r"""Return a sentence that moves, colours and hides nothing in a terminal, whatever names say.

    Examples
    --------
    >>> escaped("σ of “a\x1b[2J\n.tif”")
    'σ of “a\\x1b[2J\\n.tif”'
    """
    return "".join(
        one.encode("unicode_escape").decode() if category(one) in _UNSEEN else one for one in text
    )


def write_at_once(text: str) -> None:
    """Write a sentence while a signal is handled, when the stream itself may be writing."""
    with suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), f"{text}\n".encode())


def write_summary(summary: Mapping[str, Any]) -> None:
    """Write a summary for programs, in ASCII: whatever the encoding, they read the same."""
    click.echo(json.dumps(summary, indent=2))


def write_any_text() -> None:
    """Let the streams escape what their encoding lacks, such as σ in a redirected one's."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def discard_output(error: OSError) -> None:
    """Write an error that the output cannot be written, and discard what is left of it."""
    write_message(f"Error: the output cannot be written: {error}", QUIET, QUIET)
    # What is still buffered would be written when Python ends, and fail in a traceback.
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


@contextmanager
def progress(label: str, level: int) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal; it is called with the frames done and all frames."""
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
    """Note the first Ctrl-C while this is entered; the second one interrupts."""

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
        # What tidies up now must not be interrupted in its turn: that only leaves tracebacks.
        end_at_next_ctrl_c()
        raise KeyboardInterrupt


def end_at_next_ctrl_c() -> None:
    """Let a further Ctrl-C end the process without a message, as if it were killed."""
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(EXIT_STOPPED))


def end_quietly() -> None:
    """Let no Ctrl-C disturb how Python ends: it cuts short the waiting for threads, no more."""
    end_at_next_ctrl_c()
    # Later on, Python's own handlers are gone, and the process would die of the signal.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
