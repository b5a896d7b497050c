"""Base class of other programs' formats: how files are recognised, read and written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ..table import SpotTable
from .image_info import ImageInfo


@dataclass
class ExportReport:
    """What an export loses, gathered for one warning."""

    #: Columns that the format cannot store.
    columns: list[str] = field(default_factory=list)
    #: Sentences about rows and units.
    rows: list[str] = field(default_factory=list)
    #: Number of rows that are not written.
    left_out: int = 0

    def count(self, rows: int, what: str) -> None:
        """Note that some rows are changed, and why."""
        if rows:
            self.rows.append(f"{rows} {'row' if rows == 1 else 'rows'} {what}")

    def leave_out(self, rows: int, what: str) -> None:
        """Note that some rows are left out, and why."""
        self.count(rows, f"{what} left out")
        self.left_out += rows

    def text(self, title: str, name: str) -> str:
        """Return the warning; empty if nothing is lost."""
        parts = list(self.rows)
        if self.columns:
            parts.append(f"no place for {len(self.columns)} columns: {', '.join(self.columns)}")
        return f"“{name}”, {title}: {'; '.join(parts)}" if parts else ""


class Format(ABC):
    """One format of another program.

    Attributes
    ----------
    name : str
        Its name for ``format=``.
    title : str
        Its name in texts.
    suffix : str
        Files with this ending are written in this format, unless ``format=`` says otherwise.
    unit, origin, first_frame, needs : str
        For the documentation: unit of positions, position of the first pixel's centre, number of
        the first frame, and what must be known or installed.
    pattern : str
        Names that napari opens in this format, if the content agrees.
    beside : tuple of str
        Suffixes of the files that accompany it.
    keeps_text : bool
        Whether it can store columns of text, such as the names of images.
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
        """Use the suffix as napari's pattern, unless the class sets another."""
        cls.pattern = cls.pattern or f"*{cls.suffix}"

    def wrote(self, path: Path) -> bool:
        """Whether an accompanying file was written by this package."""
        return False

    @abstractmethod
    def sniff(self, path: Path, head: bytes) -> bool:
        """Whether a file has this format, judged by its path and first bytes."""

    @abstractmethod
    def read(self, path: Path, image: ImageInfo) -> SpotTable:
        """Return the spots of a file."""

    @abstractmethod
    def write(
        self, path: Path, table: SpotTable, image: ImageInfo, report: ExportReport
    ) -> dict[str, str]:
        """Write spots; return the texts of accompanying files by suffix."""
