"""A page of *Results* whose table is worked out in a thread, and can be copied and saved."""

from __future__ import annotations

from typing import Any

from ..parts.work import Latest
from .export import NamedTable, TableExport
from .shown_spots import Page, ShownSpots


class TablePage(Page):
    """A page that works out a table of its spots.

    Parameters
    ----------
    spots : ShownSpots
        The spots.
    what : str
        What the table has, for the tooltips of its buttons.
    """

    def __init__(self, spots: ShownSpots, what: str):
        super().__init__(spots)
        self.export = TableExport(self._named, what)
        self.work = Latest(self, self._on_done, self._fail)
        self.export.said.connect(self.said)
        self.export.failed.connect(self.failed)

    def unbind(self) -> None:
        """Stop working."""
        self.work.drop()

    def _named(self) -> NamedTable | None:
        """Return the table with what is written of it, None if there is none."""
        raise NotImplementedError

    def _on_done(self, done: Any) -> None:
        """Show what was worked out, unless it is of other spots by now."""
        raise NotImplementedError

    def _fail(self, error: Exception) -> None:
        """Show why nothing was worked out."""
        self._show_nothing(str(error))

    def _show_nothing(self, why: str) -> None:
        raise NotImplementedError
