"""Steps from localisations to a super-resolved image: what each does, and says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ...analysis.merging import merge_blinks
from ...files.history import Step
from ...files.settings_file import literal
from ...results.spot_fits import SpotFits
from ..layers.rendered_image import Looks
from ..parts.messages import number

#: Changes spots, or measures something in them, and says what came out.
Action = Callable[[SpotFits], tuple[SpotFits, str]]


class Done(NamedTuple):
    """What steps have made of spots."""

    fits: SpotFits
    #: A sentence of each step.
    words: list[str]


def run(actions: Iterable[Action], fits: SpotFits) -> Done:
    """Take steps, one after the other."""
    words = []
    for action in actions:
        fits, sentence = action(fits)
        words.append(sentence)
    return Done(fits, words)


def merging(max_dark_frames: int) -> Action:
    """Return the step that merges blinks to events."""

    def merge(fits: SpotFits) -> tuple[SpotFits, str]:
        events = merge_blinks(fits, max_dark_frames)
        return events, f"{number(len(fits))} spots are {number(len(events))} events."

    return merge


def as_python(
    history: Sequence[Step], looks: Looks | None, shape: Sequence[int] | None, oversampling: float
) -> str:
    """Return a script that takes the same steps, from a saved table on.

    Parameters
    ----------
    history : sequence of Step
        The steps of the spots.
    looks : Looks, optional
        How they are rendered, if they are.
    shape : sequence of int, optional
        Shape of the fitted image.
    oversampling : float
        That of the saved image.

    Examples
    --------
    >>> steps = [Step("merge_blinks", {"max_dark_frames": 1, "radius": None})]
    >>> print(as_python(steps, Looks(), (40, 56), 10.0))
    import napari_spotfit
    <BLANKLINE>
    fits = napari_spotfit.load_fits("spots.spots.parquet")  # as they were fitted
    fits = napari_spotfit.merge_blinks(fits, max_dark_frames=1, radius=None)
    image = napari_spotfit.render(fits, 10.0, shape=(40, 56))
    """
    package = "napari_spotfit"
    lines = [
        f"import {package}", "",
        f'fits = {package}.load_fits("spots.spots.parquet")  # as they were fitted',
    ]  # fmt: skip
    for step in history:
        given = "".join(f", {name}={literal(value)}" for name, value in step.arguments.items())
        lines.append(f"fits = {package}.{step.name}(fits{given})")
    if looks is not None:
        chosen = {} if shape is None else {"shape": tuple(shape)}
        usual = Looks()._asdict()
        chosen |= {name: one for name, one in looks._asdict().items() if one != usual[name]}
        given = "".join(f", {name}={literal(value)}" for name, value in chosen.items())
        lines.append(f"image = {package}.render(fits, {oversampling!r}{given})")
    return "\n".join(lines)
