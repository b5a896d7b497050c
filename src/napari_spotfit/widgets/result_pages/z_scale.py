"""How many pixels one unit of z is, asked where spots have z."""

from __future__ import annotations

from collections.abc import Container

from qtpy.QtWidgets import QHBoxLayout, QWidget

from ...models.columns import Z_OF_OTHERS
from ...settings.validation import Parameter
from ..parts.boxes import NumberBox
from ..parts.layout import Label, fill

_ABOUT = Parameter(
    "Pixels per z",
    "How many pixels one unit of z is: 3 for planes of 300 nm and pixels of 100 nm, 0.01 for z in "
    "nm. Distances along z count by it. Automatic is that of the voxel size, if the fits have one; "
    "0 leaves z out.",
    "run", minimum=0, none_means="automatic",
)  # fmt: skip
#: What the box is called where messages have the argument of functions.
Z_SCALE_CALLED = {"z_scale": _ABOUT.label}


class ZScale(QWidget):
    """A box for ``z_scale``, which is seen if spots have z."""

    def __init__(self) -> None:
        super().__init__()
        self.box = NumberBox(_ABOUT, optional=True, sample="automatic")
        fill(QHBoxLayout(self), Label(_ABOUT.label), self.box)
        self.hide()

    def show_for(self, *tables: Container[str]) -> None:
        """Show the box if one of some tables has a column of z."""
        self.setVisible(any(name in columns for columns in tables for name in ("z", Z_OF_OTHERS)))

    def get(self) -> float | None:
        """Return the number, or None for that of the voxel size."""
        return None if self.isHidden() else self.box.get()
