"""Numbers of errors that are told in words."""

from __future__ import annotations

import errno
import re

_NUMBER = re.compile(r"\berrno(?: =)? (\d+)", re.IGNORECASE)
_TOO_LITTLE = re.compile(r"\d+ requested and \d+ written")


def told_errno(error: Exception) -> int:
    """Return the number of an operating system's error that a text has, as Arrow's and HDF5's do.

    Without one it is 0. Of what took less than it should, NumPy says no more than that.

    Examples
    --------
    >>> told_errno(RuntimeError("Can't write (file write failed: errno = 28, ...)"))
    28
    """
    told = _NUMBER.search(str(error))
    if told:
        return int(told[1])
    return errno.ENOSPC if _TOO_LITTLE.fullmatch(str(error)) else 0
