"""What a command says: progress and sentences for people, a summary for programs."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import click

QUIET, USUAL, VERBOSE = range(3)


def say(text: str, level: int, least: int = USUAL) -> None:
    """Write a sentence for people, beside what programs read."""
    if level >= least:
        with suppress(OSError):  # that nobody can read it is no reason to fail
            click.echo(text, err=True)


def say_at_once(text: str) -> None:
    """Write a sentence while a signal is handled, when the stream itself may be writing."""
    with suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), f"{text}\n".encode())


def tell_program(summary: Mapping[str, Any]) -> None:
    """Write a summary for programs, in ASCII: whatever the encoding, they read the same."""
    click.echo(json.dumps(summary, indent=2))


def write_any_text() -> None:
    """Let the streams escape what their encoding lacks, such as σ in a redirected one's."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def give_up_output(error: OSError) -> None:
    """Say that the output cannot be written, and write no more of it."""
    say(f"Error: the output cannot be written: {error}", QUIET, QUIET)
    # What is still held would be written when Python ends, and fail in a traceback.
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextmanager
def progress(label: str, level: int) -> Iterator[Callable[[int, int], None]]:
    """Give what shows how many frames of how many are done, if a person is watching."""
    if level < USUAL or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    begun = time.perf_counter()
    with click.progressbar(
        length=1,
        label=label,
        file=sys.stderr,
        show_eta=True,
        item_show_func=lambda rate: rate and str(rate),
    ) as bar:

        def show(done: int, total: int) -> None:
            bar.length = total
            rate = done / max(time.perf_counter() - begun, 1e-9)
            bar.update(done - bar.pos, f"{rate:.0f} frames/s")

        yield show
