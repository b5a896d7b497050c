"""Read and write the delimited text tables of other programs.

The delimiter is the most frequent one in the first line: in many countries spreadsheets write
decimal commas, and semicolons between values.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...caller import warn_caller
from ..csv_file import CHUNK, rows_as_text
from ..table import StoredColumn, UnreadableFileError

_LONGEST_TITLES = 1 << 16


#: Delimiters, the usual one first.
_SEPARATORS = ",;\t"
_NUMBER_FIRST = re.compile(rb'[\s"]*[+-]?\.?\d')
#: A number with a point, and one in which points may separate thousands.
_POINTED, _THOUSANDS = re.compile(rb"\d+(?:\.\d+)+"), re.compile(rb"[1-9]\d{0,2}\.\d{3}")
#: Bytes that are looked at.
_SAMPLE = 1 << 20
_QUOTED = re.compile(r'"[^"]*"')
#: A number with a decimal comma, or an integer in such a column.
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+(,\d+)?([eE][+-]?\d+)?\s*")


def as_utf8(text: bytes) -> bytes:
    """Convert a text in UTF-8 or in Windows' code page to UTF-8 without a byte order mark.

    Examples
    --------
    >>> as_utf8("µm".encode("cp1252")) == as_utf8("µm".encode("utf-8-sig")) == "µm".encode()
    True
    """
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _with_line_feeds(text[: len(text) & ~1].decode("utf-16", errors="replace").encode())
    text = _with_line_feeds(text.removeprefix(b"\xef\xbb\xbf"))
    try:
        # The text may end within a character, as it may be only the first bytes of a file.
        codecs.getincrementaldecoder("utf-8")().decode(text)
    except UnicodeDecodeError:
        return text.decode("cp1252", errors="replace").encode()
    return text


def _with_line_feeds(text: bytes) -> bytes:
    """Return a text with line ends of its own; old Macs' are carriage returns alone."""
    return text if b"\n" in text else text.replace(b"\r", b"\n")


def without_comments(text: bytes) -> tuple[bytes, int]:
    r"""Return a text without lines of comments before its titles, and how many these are.

    Where numbers follow, the last of these lines has the titles.

    Examples
    --------
    >>> without_comments(b"# made by hand\nx,y\n1,2\n"), without_comments(b"#x,y\n1,2\n")
    ((b'x,y\n1,2\n', 1), (b'x,y\n1,2\n', 0))
    """
    begin = skipped = 0
    last = 0
    while text.startswith(b"#", begin) and (end := text.find(b"\n", begin) + 1):
        last, begin, skipped = begin, end, skipped + 1
    if skipped and _NUMBER_FIRST.match(text, begin):
        begin, skipped = last, skipped - 1
        return text[begin:].lstrip(b"# \t"), skipped
    return text[begin:], skipped


def separator_of(line: str) -> str:
    """Return the delimiter of a line: the most frequent one outside quotes.

    Examples
    --------
    >>> separator_of('"id";"x, in nm";"y"'), separator_of("x,y"), separator_of("x")
    (';', ',', ',')
    """
    bare = _QUOTED.sub("", line)
    return max(_SEPARATORS, key=bare.count)


def titles_of(head: bytes, separator: str | None = None) -> list[str]:
    """Return the titles in the first line; none if the bytes are no text."""
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return []
    head = without_comments(as_utf8(head))[0]
    text = head.partition(b"\n")[0].decode(errors="replace").rstrip("\r")
    try:
        row = next(csv.reader([text], delimiter=separator or separator_of(text), strict=True), [])
    except csv.Error:
        return []
    return [title.strip() for title in row]


def write_rows(
    path: Path,
    header: Sequence[str],
    columns: Mapping[str, NDArray[Any]],
    known: Mapping[str, StoredColumn] | None = None,
    separator: str = ",",
    nan: Literal["", "NaN"] = "NaN",
) -> None:
    """Write header lines, and columns of numbers below them."""
    known = known or {name: StoredColumn(values.dtype.name) for name, values in columns.items()}
    rows = len(next(iter(columns.values()), ()))
    with path.open("wb") as file:
        file.writelines(f"{line}\n".encode() for line in header)
        for start in range(0, rows, CHUNK):
            part = {name: values[start : start + CHUNK] for name, values in columns.items()}
            text = rows_as_text(part, known, nan)
            file.write(text if separator == "," else text.replace(b",", separator.encode()))


class Rows:
    """The columns of a delimited text file, one row per line.

    Parameters
    ----------
    path : Path
        The file.
    titles : sequence of str, optional
        Titles of the columns; by default those of the first line.
    header : int
        Number of lines before the first row.
    separator : str, optional
        The delimiter; by default the most frequent one in the first line.

    Raises
    ------
    UnreadableFileError
        If the file is empty or no text, or a line has more or fewer values than titles.

    Warns
    -----
    UserWarning
        If the last line has no line end: its last number may be cut off. If points may separate
        thousands, as beside semicolons.
    """

    def __init__(
        self,
        path: Path,
        titles: Sequence[str] | None = None,
        header: int = 1,
        separator: str | None = None,
    ) -> None:
        import pandas as pd

        text, skipped = as_utf8(path.read_bytes()), 0
        if header:
            text, skipped = without_comments(text)
        if not text.strip():
            raise UnreadableFileError("it is empty")
        begin = 0
        for _ in range(header):
            begin = text.find(b"\n", begin) + 1 or len(text)
        if separator is None:
            line = text[:_LONGEST_TITLES].partition(b"\n")[0]
            separator = separator_of(line.decode(errors="replace"))
        self.titles = titles_of(text[:_LONGEST_TITLES], separator) if titles is None else [*titles]
        self._header, self._separator = header + skipped, separator
        twice = next((one for one in self.titles if self.titles.count(one) > 1), None)
        if twice is not None:
            raise UnreadableFileError(f"line 1: two columns have the title {twice!r}")
        rows = text[begin:]
        try:
            self._check(rows)
            self._frame = pd.read_csv(
                io.BytesIO(rows), header=None, names=self.titles, sep=separator, index_col=False,
                low_memory=False, **_exact(), skipinitialspace=True,
            )  # fmt: skip
        except pd.errors.EmptyDataError:
            self._frame = pd.DataFrame({title: np.zeros(0) for title in self.titles})
            rows = b""
        except (csv.Error, UnicodeDecodeError, pd.errors.ParserError) as error:
            raise UnreadableFileError(f"it is damaged, or not text: {error}") from None
        self._points_for_commas(rows)
        if separator == ";" and (number := _perhaps_thousands(rows[:_SAMPLE])):
            warn_caller(
                f"“{path.name}”: its numbers are read with decimal points, {number} as "
                f"{float(number):g}: if the points separate thousands, write numbers without"
            )
        if len(self._frame) and not text.endswith((b"\n", b"\r")):
            warn_caller(
                f"“{path.name}”: its last line has no line end, so the file may be cut off within "
                "its last value; compare it with the original"
            )

    def __len__(self) -> int:
        return len(self._frame)

    def numbers(self, title: str) -> NDArray[Any]:
        """Return a column of numbers, NaN for empty cells.

        Raises
        ------
        UnreadableFileError
            If the column is missing, or a cell is not a number.
        """
        import pandas as pd

        if title not in self.titles:
            raise UnreadableFileError(f"its column {title!r} is missing")
        cells = self._frame[title]
        if cells.dtype.kind in "iuf":
            return np.array(cells)
        if cells.dtype.kind == "b":
            return np.array(cells, np.uint8)
        values = np.array(pd.to_numeric(cells, errors="coerce"), np.float64)
        odd = np.isnan(values) & np.array(cells.notna())
        if odd.any():
            row = int(np.argmax(odd))
            raise UnreadableFileError(
                f"line {self._header + row + 1}, column {title!r}: "
                f"{str(cells.iloc[row])!r} is no number"
            )
        return values

    def values(self, title: str) -> NDArray[Any]:
        """Return a column of numbers or text."""
        cells = self._frame[title]
        if cells.dtype.kind in "iufb":
            return np.array(cells)
        return np.array(cells.fillna("").astype(str), object)

    def all_numbers(self) -> dict[str, NDArray[Any]]:
        """Return all columns as numbers."""
        return {title: self.numbers(title) for title in self.titles}

    def _points_for_commas(self, rows: bytes) -> None:
        """Convert columns with decimal commas to numbers.

        Raises
        ------
        UnreadableFileError
            If other columns have decimal points: one of the two may separate thousands.
        """
        import pandas as pd

        commas = []
        for title in self.titles:
            cells = self._frame[title]
            if cells.dtype.kind in "iufb":
                continue
            words = cells.dropna().astype(str)
            if words.str.contains(",").any() and words.str.fullmatch(_DECIMAL_COMMA).all():
                commas.append(title)
                numbers = words.str.replace(",", ".", regex=False).to_numpy(str).astype(float)
                self._frame[title] = pd.Series(numbers, words.index).reindex(cells.index)
        if not commas:
            return
        written = pd.read_csv(
            io.BytesIO(rows), header=None, names=self.titles, sep=self._separator, index_col=False,
            dtype=str, skipinitialspace=True,
        )  # fmt: skip
        for title in self.titles:
            if title in commas or self._frame[title].dtype.kind != "f":
                continue
            if written[title].str.contains(".", regex=False).any():
                raise UnreadableFileError(
                    f"its column {commas[0]!r} has decimal commas and {title!r} decimal points: "
                    "write all numbers in one way"
                )

    def _check(self, rows: bytes) -> None:
        """Check that every line has one value per title."""
        many, separator = len(self.titles), self._separator.encode()
        if b'"' not in rows and b"\n\n" not in rows and b"\r\n\r" not in rows:
            body = rows.rstrip()
            lines = body.count(b"\n") + 1 if body else 0
            if rows.count(separator) == lines * (many - 1) and b"\0" not in rows:
                last = body.rpartition(b"\n")[2]
                if not body or last.count(separator) == many - 1:
                    return
        for number, row in self._split(rows):
            if row and len(row) != many:
                raise UnreadableFileError(
                    f"line {number} has {len(row)} values instead of {many}: the file was cut off "
                    "or is damaged"
                )

    def _split(self, rows: bytes) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(
            io.StringIO(rows.decode(), newline=""), delimiter=self._separator, strict=True
        )
        for row in reader:
            yield self._header + reader.line_num, row


def _perhaps_thousands(rows: bytes) -> str:
    """Return the first number with a point if all of these may separate thousands; else nothing."""
    if b"," in rows:  # which are decimal, so that points beside them are an error
        return ""
    first = ""
    for found in _POINTED.finditer(rows):
        if not _THOUSANDS.fullmatch(found[0]):  # or no number with several points
            return ""
        first = first or found[0].decode()
    return first


def _exact() -> dict[str, Any]:
    """Return pandas' option for reading numbers to the last bit, the default from 3.1 on."""
    import pandas as pd

    version = tuple(int(part) for part in pd.__version__.split(".")[:2])
    return {} if version >= (3, 1) else {"float_precision": "round_trip"}
