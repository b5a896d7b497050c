"""The steps of analysis that a table of spots went through."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..version import __version__


@dataclass(frozen=True)
class Step:
    """One step of analysis, as :attr:`~napari_spotfit.SpotFits.history` lists it.

    Parameters
    ----------
    name : str
        The function that was called.
    arguments : mapping
        Its arguments as plain values: numbers, texts, lists and mappings of them.
    version : str
        The version of this package.

    Examples
    --------
    >>> import numpy as np
    >>> step = Step("merge_blinks", {"max_dark_frames": np.int64(1), "radius": None})
    >>> step.arguments["max_dark_frames"], str(step)
    (1, 'merge_blinks(max_dark_frames=1, radius=None)')
    """

    name: str
    arguments: Mapping[str, Any]
    version: str = __version__

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.arguments, Mapping):
            raise TypeError(
                "a step of analysis has a name and a mapping of arguments; got "
                f"{self.name!r} and {self.arguments!r}"
            )
        # As they are read back from a file, so that saved and loaded steps are equal.
        arguments = json.loads(json.dumps(dict(self.arguments), default=_plain))
        object.__setattr__(self, "arguments", arguments)

    def __str__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.arguments.items())
        return f"{self.name}({arguments})"

    def plain(self) -> dict[str, Any]:
        """Return it as plain values, from which ``Step(**values)`` makes it again."""
        return {"name": self.name, "arguments": self.arguments, "version": self.version}


def steps(values: Iterable[Mapping[str, Any]] | None) -> tuple[Step, ...]:
    """Return steps from their plain values; none for None."""
    return tuple(Step(**value) for value in values or ())


def _plain(value: Any) -> Any:
    """Return a NumPy number or array as plain values, and anything else as text."""
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else str(value)
