"""What a format of another program is: a name, how files of it are known, read and written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ..table import SpotTable
from .image_info import ImageInfo


@dataclass
class ExportReport:
    """What a format does not take, for one warning."""

    #: Columns that the format has no column for.
    columns: list[str] = field(default_factory=list)
    #: Sentences about rows and units.
    rows: list[str] = field(default_factory=list)
    #: How many rows are not written.
    left_out: int = 0

    def count(self, rows: int, what: str) -> None:
        """Note that some rows are not written as they are, and why."""
        if rows:
            self.rows.append(f"{rows} {'row' if rows == 1 else 'rows'} {what}")

    def leave_out(self, rows: int, what: str) -> None:
        """Note that some rows are not written, and why."""
        self.count(rows, f"{what} left out")
        self.left_out += rows

    def text(self, title: str, name: str) -> str:
        """Return the warning; nothing if nothing was lost."""
        parts = list(self.rows)
        if self.columns:
            parts.append(f"no place for {len(self.columns)} columns: {', '.join(self.columns)}")
        return f"“{name}”, {title}: {'; '.join(parts)}" if parts else ""


class Format(ABC):
    """One format of another program.

    Attributes
    ----------
    name : str
        What ``format=`` takes.
    title : str
        What people call it.
    suffix : str
        Files whose names end so are written in it, unless another format is named.
    unit, origin, first_frame, needs : str
        For documentation: the unit of positions, where the centre of the first pixel lies, the
        number of the first frame, and what must be known or installed.
    pattern : str
        Which names napari opens as this format, if what is in the file says so, too.
    beside : tuple of str
        The suffixes of files that are written beside.
    keeps_text : bool
        Whether it has a place for columns of text, such as the names of images.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    suffix: ClassVar[str]
    unit: ClassVar[str] = "px"
    origin: ClassVar[str] = "0"
    first_frame: ClassVar[str] = "0"
    needs: ClassVar[str] = ""
    beside: ClassVar[tuple[str, ...]] = ()
    keeps_text: ClassVar[bool] = False

    pattern: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Let napari open the names that end in the suffix, if the class names no others."""
        cls.pattern = cls.pattern or f"*{cls.suffix}"

    def wrote(self, path: Path) -> bool:
        """Whether a file beside one that is not there is what this package has written."""
        return False

    @abstractmethod
    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether a file is of it, by its path and its first bytes."""

    @abstractmethod
    def read(self, path: Path, image: ImageInfo) -> SpotTable:
        """Return the spots of a file."""

    @abstractmethod
    def write(
        self, path: Path, table: SpotTable, image: ImageInfo, report: ExportReport
    ) -> dict[str, str]:
        """Write spots; return the texts that belong in files beside, by their suffix."""
