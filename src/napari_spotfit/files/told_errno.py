"""Numbers of errors that are told in words."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"\berrno(?: =)? (\d+)", re.IGNORECASE)


def told_errno(error: Exception) -> int:
    """Return the number of an operating system's error that a text has, as Arrow's and HDF5's do.

    Without one it is 0.

    Examples
    --------
    >>> told_errno(RuntimeError("Can't write (file write failed: errno = 28, ...)"))
    28
    """
    told = _NUMBER.search(str(error))
    return int(told[1]) if told else 0
