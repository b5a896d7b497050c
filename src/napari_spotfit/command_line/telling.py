"""What a command says: progress and sentences for people, a summary for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

QUIET, USUAL, VERBOSE = range(3)


def say(text: str, level: int, least: int = USUAL) -> None:
    """Write a sentence for people, beside what programs read."""
    if level >= least:
        click.echo(text, err=True)


def tell_program(summary: Mapping[str, Any]) -> None:
    """Write a summary for programs."""
    click.echo(json.dumps(summary, ensure_ascii=False, indent=2))


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
