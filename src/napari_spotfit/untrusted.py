"""Files as strangers: whatever a reader raises names the file, and its bytes bound the memory."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: So many bytes are taken for any file, however small it is.
_ALWAYS = 1 << 26
#: Beyond, so many times its own bytes: tables are compressed less, masks of few cells much more.
TABLE_RATIO, PIXEL_RATIO = 100, 10_000
#: No YAML beside a file is longer, in bytes and in values.
_LONGEST_YAML, _MOST_VALUES = 1 << 19, 1 << 20

_LONGEST_REASON = 500


class PromiseError(ValueError):
    """A file promises more than its bytes can hold."""


class Allowance:
    """The memory that what a file promises may take: as much as its bytes make likely.

    Parameters
    ----------
    there : int
        Bytes of the file.
    ratio : int
        How many times as many may be in it, if it is compressed.

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

    def __init__(self, there: int, ratio: int = TABLE_RATIO) -> None:
        self._there, self._left = there, max(_ALWAYS, ratio * there)

    @property
    def left(self) -> int:
        """Bytes that may still be taken."""
        return self._left

    def take(self, promised: int, what: str) -> None:
        """Count what will be read, before it is.

        Raises
        ------
        PromiseError
            If it is more than is left.
        """
        if promised > self._left:
            raise PromiseError(
                f"{what} promises {promised} bytes in a file of {self._there}: it is damaged"
            )
        self._left -= promised


def yaml_documents(path: Path) -> Iterator[Any]:
    """Yield the documents of a YAML file; what stands for Python's own objects is left out.

    Those of ThunderSTORM are mappings.

    Raises
    ------
    PromiseError
        If aliases make it more than it has bytes for, or it is longer than a description.
    yaml.YAMLError, UnicodeDecodeError
        If it is damaged.
    """
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Knows nothing but plain values."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    Loader.add_multi_constructor(
        "tag:yaml.org,2002:cz.cuni.", lambda loader, _, node: loader.construct_mapping(node)
    )
    if path.stat().st_size > _LONGEST_YAML:
        raise PromiseError(
            f"“{path.name}” has {path.stat().st_size} bytes, and a description has at most "
            f"{_LONGEST_YAML}: remove what is long in it"
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
    """Return how many values a node has, each alias counted as what it stands for."""
    if id(node) not in known:
        known[id(node)] = _MOST_VALUES  # of one that has itself as a part
        inner = node.value if isinstance(node.value, list) else ()
        parts = [part for one in inner for part in (one if isinstance(one, tuple) else (one,))]
        known[id(node)] = 1 + sum(_check_aliases(path, part, known) for part in parts)
    if known[id(node)] > _MOST_VALUES:
        raise PromiseError(f"“{path.name}” has aliases that make it too long: it is damaged")
    return known[id(node)]


def brief(error: BaseException) -> str:
    r"""Return what an error says, in one line: what of a file stands in it may be long.

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
    """Turn whatever a reader raises into one kind of error that begins with the file's name.

    Errors of the place, such as a missing file, and missing packages stay as they are.

    Parameters
    ----------
    start : str
        Names the file, and says that it cannot be read.
    kind : type
        The error to raise; kinds of it keep their type.
    plain : tuple of types
        Other errors whose messages say what is wrong with the file.

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
    except Exception as error:  # what is in a damaged file, nobody foresees
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
