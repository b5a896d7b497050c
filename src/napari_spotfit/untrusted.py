"""Read untrusted files: errors name the file, and its size bounds the memory."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Bytes of memory allowed for any file, however small.
_ALWAYS = 1 << 26
#: Memory allowed beyond, as a multiple of the file's size: masks are compressed more than tables.
TABLE_RATIO, PIXEL_RATIO = 100, 10_000
#: Limits of an accompanying YAML file in bytes and in values.
_LONGEST_YAML, _MOST_VALUES = 1 << 19, 1 << 20

_LONGEST_REASON = 500


class PromiseError(ValueError):
    """A file claims more data than its bytes can hold."""


class Allowance:
    """The memory that reading a file may take, as much as its size makes plausible.

    Parameters
    ----------
    size : int
        Size of the file in bytes.
    ratio : int
        Largest plausible ratio of compression.

    Examples
    --------
    >>> allowance = Allowance(1000)
    >>> allowance.take(10**6, "its column 'x'")
    >>> allowance.take(10**12, "its column 'y'")
    Traceback (most recent call last):
    ...
    napari_spotfit.untrusted.PromiseError: its column 'y' promises 1000000000000 bytes in a file \
    of 1000: it is damaged
    """

    def __init__(self, size: int, ratio: int = TABLE_RATIO) -> None:
        self._size, self._left = size, max(_ALWAYS, ratio * size)

    @property
    def left(self) -> int:
        """Bytes that are left."""
        return self._left

    def take(self, promised: int, what: str) -> None:
        """Subtract bytes before they are read.

        Raises
        ------
        PromiseError
            If more are promised than are left.
        """
        if promised > self._left:
            raise PromiseError(
                f"{what} promises {promised} bytes in a file of {self._size}: it is damaged"
            )
        self._left -= promised


def yaml_documents(path: Path) -> Iterator[Any]:
    """Yield the documents of a YAML file; tagged Python objects become None.

    Those of ThunderSTORM are mappings.

    Raises
    ------
    PromiseError
        If aliases expand to too many values, or the file is too long.
    yaml.YAMLError, UnicodeDecodeError
        If it is damaged.
    """
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Loads only plain values."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    Loader.add_multi_constructor(
        "tag:yaml.org,2002:cz.cuni.", lambda loader, _, node: loader.construct_mapping(node)
    )
    if path.stat().st_size > _LONGEST_YAML:
        raise PromiseError(
            f"“{path.name}” has {path.stat().st_size} bytes, and at most {_LONGEST_YAML} are "
            "accepted: shorten it"
        )
    loader = Loader(path.read_text(encoding="utf-8"))
    try:
        while loader.check_node():
            node = loader.get_node()
            _check_aliases(path, node, {})
            yield loader.construct_document(node)
    finally:
        loader.dispose()


def _check_aliases(path: Path, node: Any, known: dict[int, int]) -> int:
    """Return the number of values of a node, with aliases expanded."""
    if id(node) not in known:
        known[id(node)] = _MOST_VALUES  # for a node that contains itself
        inner = node.value if isinstance(node.value, list) else ()
        parts = [part for one in inner for part in (one if isinstance(one, tuple) else (one,))]
        known[id(node)] = 1 + sum(_check_aliases(path, part, known) for part in parts)
    if known[id(node)] > _MOST_VALUES:
        raise PromiseError(f"“{path.name}” has aliases that make it too long: it is damaged")
    return known[id(node)]


def brief(error: BaseException) -> str:
    r"""Return an error's message in one line, shortened, as it may quote the file.

    Examples
    --------
    >>> brief(ValueError("a\nb")), len(brief(ValueError("a" * 10**6)))
    ('a b', 501)
    """
    text = " ".join(str(error)[: 4 * _LONGEST_REASON].split())
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


@contextmanager
def named(
    start: str, kind: type[ValueError], plain: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turn all errors of a reader into one kind, with a message that names the file.

    An OSError, such as for a missing file, or an ImportError passes unchanged.

    Parameters
    ----------
    start : str
        Beginning of the message, which names the file.
    kind : type
        The error to raise; its subclasses keep their type.
    plain : tuple of types
        Other errors whose messages are clear without their type.

    Examples
    --------
    >>> with named("“a.tif” cannot be read", ValueError):
    ...     {}["size"]
    Traceback (most recent call last):
    ...
    ValueError: “a.tif” cannot be read: it is damaged, or something else (KeyError: 'size')
    """
    try:
        yield
    except (ImportError, Warning):
        raise
    except Exception as error:  # damaged files raise all kinds of errors
        is_of_place = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
        if is_of_place or isinstance(error, FileNotFoundError):
            raise
        if str(error).startswith(start):
            raise
        why = " ".join(str(error).split())
        if isinstance(error, kind) and type(error).__init__ is kind.__init__:
            raise type(error)(f"{start}: {why}") from None
        if not isinstance(error, (PromiseError, *plain)):
            cause = f"{type(error).__name__}: {why}" if why else type(error).__name__
            why = f"it is damaged, or something else ({cause})"
        raise kind(f"{start}: {why}") from error
