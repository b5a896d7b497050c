"""What tifffile only logs: our own errors say of it what matters."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_from_log() -> Iterator[list[str]]:
    """Collect what tifffile logs in this thread, instead of showing it."""
    said: list[str] = []
    thread = threading.get_ident()

    def is_for_others(record: logging.LogRecord) -> bool:
        if threading.get_ident() != thread or record.levelno < logging.WARNING:
            return True
        said.append(record.getMessage())
        return False

    logger = logging.getLogger("tifffile")
    logger.addFilter(is_for_others)
    try:
        yield said
    finally:
        logger.removeFilter(is_for_others)
