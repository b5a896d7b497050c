"""Steps from localisations to a super-resolved image: what each does, and says."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...analysis.drift import Drift, subtract_drift
from ...analysis.drift_estimate import estimate_drift
from ...analysis.merging import merge_blinks
from ...analysis.precision import nena
from ...analysis.ring_correlation import RingCorrelation, fourier_ring_correlation
from ...files.settings_file import literal
from ...files.table import Step
from ...results.formatting import Units
from ...results.spot_fits import SpotFits
from ..layers.points import fits_of_features, points_arguments
from ..layers.rendered_image import Looks
from ..parts.messages import in_words, number

#: Names of functions, as a history has them.
_ESTIMATE, _SUBTRACT = "estimate_drift", "subtract_drift"
#: The step that leaves out spots that are not shown: by filters, or only their number.
_FILTER, _SHOWN = "filter", "shown"


class Done(NamedTuple):
    """What steps have made of spots."""

    fits: SpotFits
    #: A sentence of each step, and warnings.
    words: tuple[str, ...] = ()
    #: The drift that was subtracted, and the correlation of two halves.
    drift: Drift | None = None
    rings: RingCorrelation | None = None


#: Changes spots, or measures something in them or in those before all steps.
Action = Callable[[SpotFits, SpotFits], Done]


def run(actions: Iterable[Action], fits: SpotFits) -> Done:
    """Take steps, one after the other."""
    done = Done(fits)
    for action in actions:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            own = action(done.fits, fits)
        said = [f"{in_words(one.message)}." for one in caught]
        words = (*done.words, *own.words, *said)
        done = Done(own.fits, words, own.drift or done.drift, own.rings or done.rings)
    return done


def merge(fits: SpotFits, _: SpotFits, *, max_dark_frames: int) -> Done:
    """Merge blinks to events."""
    events = merge_blinks(fits, max_dark_frames)
    return Done(events, (f"{number(len(fits))} spots are {number(len(events))} events.",))


def correct(fits: SpotFits, _: SpotFits, *, method: Literal["aim", "rcc"]) -> Done:
    """Estimate the drift and subtract it."""
    drift = estimate_drift(fits, method)
    known = fits.with_columns(fits.columns, Step(_ESTIMATE, {"method": method}))
    way, error = drift.extent
    words = f"A drift over {way:.3g} px, ± {error:.2g} px, is subtracted."
    return Done(subtract_drift(known, drift), (words,), drift)


def measure(fits: SpotFits, before: SpotFits, *, units: Units) -> Done:
    """Measure precision and resolution, and say both in some units."""
    factor, unit = units.factor("x"), units.unit("x") or "px"
    words, rings = [], None
    try:
        found = nena(before)
        words.append(
            f"Precision {factor * found.precision:.3g} {unit} (NeNA), {found.kappa:.2f} times the "
            "standard errors."
        )
    except ValueError as error:
        words.append(f"No precision: {error}.")
    try:
        rings = fourier_ring_correlation(fits)
        width, error_ = factor * rings.resolution, factor * rings.resolution_stderr
        spread = "" if math.isnan(error_) else f" ± {error_:.1g}"
        words.append(f"Resolution {width:.3g}{spread} {unit} (FRC).")
    except ValueError as error:
        words.append(f"No resolution: {error}.")
    return Done(fits, tuple(words), None, rings)


def take(
    actions: Sequence[Action], features: Any, metadata: dict[str, Any], ndim: int,
    shown: NDArray[np.bool_],
) -> tuple[Done, dict[str, Any] | None]:  # fmt: skip
    """Take steps on the spots that are shown.

    Returns
    -------
    Done, dict or None
        What was done, and the arguments of the layer's update; None if no spot has changed.
    """
    fits = fits_of_features(features, metadata, ndim)[shown]
    if not shown.all():
        filters = metadata.get("filters") or {_SHOWN: len(fits)}
        fits = fits.with_columns(fits.columns, Step(_FILTER, filters))
    done = run(actions, fits)
    if done.fits is fits:
        return done, None
    face = metadata.get("face")
    arguments = points_arguments(done.fits, face if face in done.fits else None, everything=True)
    # The maps that described the pixels are the same.
    maps = {name: metadata[name] for name in ("maps", "map_names") if name in metadata}
    arguments["metadata"] |= maps
    return done, arguments


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
    before = ""
    for step in history:
        given = "".join(f", {name}={literal(value)}" for name, value in step.arguments.items())
        if step.name == _SUBTRACT:
            if before != _ESTIMATE:
                lines.append(f'drift = {package}.load_drift("drift.csv")  # as it was saved')
            given = ", drift"
        if step.name == _FILTER:
            lines += _filter_as_python(step.arguments)
            continue
        target = "drift" if step.name == _ESTIMATE else "fits"
        lines.append(f"{target} = {package}.{step.name}(fits{given})")
        before = step.name
    if looks is not None:
        chosen = {} if shape is None else {"shape": tuple(shape)}
        usual = Looks()._asdict()
        chosen |= {name: one for name, one in looks._asdict().items() if one != usual[name]}
        given = "".join(f", {name}={literal(value)}" for name, value in chosen.items())
        lines.append(f"image = {package}.render(fits, {oversampling!r}{given})")
    return "\n".join(lines)


def _filter_as_python(filters: Mapping[str, Any]) -> list[str]:
    """Return the lines that leave out the same spots."""
    if _SHOWN in filters:
        return [f"# Here {filters[_SHOWN]} of the fits were shown, and used: choose them"]
    return [
        "from napari_spotfit.analysis.filters import Filters",
        f"filters = Filters.from_dict({literal(filters)})",
        "fits = fits[filters.mask(fits.to_dataframe())]",
    ]
