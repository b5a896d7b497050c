"""The fit of an image: the request, the fit in a worker thread, its summary, and advice."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...engine.flags import Flag, main_reasons, reasons_in_words
from ...estimation.camera_check import CameraCheck
from ...estimation.image_estimates import MeasuredNoise
from ...images.arrays import to_host
from ...images.channels import Maps, channels_along
from ...images.frames import FrameReader, FrameSelection, indices_along
from ...localization.localize import Part, localize_parts, parts_by_channel
from ...results.fit_parts import joined_channels
from ...results.spot_fits import SpotFits
from ...settings.settings import Settings, parameters
from ..layers.appearance import Look, with_look
from ..layers.maps import NO_MAPS, LayerMaps
from ..layers.points import points_arguments
from ..parts.messages import number
from ..parts.work import Steps

#: Bytes of the image that are read at once.
_BLOCK = 1 << 26
_NO_NUMBERS = (
    "there are pixels in their ROIs that are no numbers (NaN). Mark these in a layer, and choose "
    "it under More settings ▸ Bad pixels, to exclude them"
)
#: How many fits there must be at least, and how far a given σ may be from that of the image.
_LEAST, _OFF = 5, 1.4
#: The settings that may have made most fits doubtful, by what is wrong with those.
_CAUSES = {
    Flag.NOT_CONVERGED: ("max_iterations", "min_delta", "min_step", "roi_size"),
    Flag.WEAK: ("threshold", "false_spots"),
    Flag.NEGATIVE: ("threshold", "false_spots"),
    Flag.MOVED: ("roi_size", "neighbours"),
    Flag.AT_BOUND: ("roi_size",),
    Flag.ELONGATED: ("model",),
}
#: What else most fits may have in common.
_WORDS = {
    Flag.NOT_CONVERGED: "the fits do not converge: is it an image of spots?",
    Flag.WEAK: "they are hardly above the noise: allow fewer false spots",
    Flag.NEGATIVE: "they are dark places: fit the image's negative",
    Flag.ELONGATED: "they are longer than wide: are these spots? An elliptical model may fit",
    Flag.SATURATED: "the camera was saturated: expose less",
}
_OF_WIDTH = (Flag.WIDE, Flag.NARROW)
_DEFAULTS = Settings()


class IncompleteFitError(RuntimeError):
    """An error has stopped the fit; the spots of the frames before are shown."""


@dataclass(frozen=True)
class FitRequest:
    """What to fit, and how to show it; made on the GUI thread, used in the worker."""

    image: Any
    settings: Settings
    frames: FrameSelection = None
    maps: LayerMaps = NO_MAPS
    noise: MeasuredNoise = field(default_factory=MeasuredNoise)
    look: Look = field(default_factory=Look)
    #: The axis of channels, which are fitted one by one.
    channels: int | None = None


@dataclass(frozen=True)
class Fitted:
    """All fits, the arguments of their Points layer, and what was found in words."""

    fits: SpotFits
    points: dict[str, Any]
    summary: str
    #: The error that stopped the fit.
    stopped: IncompleteFitError | None = None
    #: Why most fits are doubtful, if they are.
    advice: Advice | None = None


def fit_image(request: FitRequest, enough: threading.Event) -> Steps:
    """Fit part by part until all is done or ``enough`` is set; return a :class:`Fitted`."""
    maps, parts, stopped, began = request.maps.read(), list[Part](), None, time.perf_counter()
    check = CameraCheck(request.settings)
    try:
        with closing(_parts(request, maps)) as coming:
            for part in coming:
                parts.append(part)
                check.add(part.fits)
                yield part.done, part.total
                if enough.is_set():
                    break
    except Exception as error:
        if not any(len(part.fits) for part in parts):
            raise
        stopped = _incomplete(error, _share(parts[-1]))
    if not any(len(part.fits) for part in parts) and not enough.is_set():
        _check_searched(request, maps)
    fits = joined_channels([part.fits for part in parts])
    look = request.look
    points = with_look(points_arguments(fits, look.face, look.colormap, request.maps), look)
    points["metadata"]["frames"] = plain_frames(request.frames)
    advised = _advice(request, fits, maps)
    seconds, why = time.perf_counter() - began, _why_invalid(request.image, fits)
    text = summary(fits, seconds, parts[-1].device, why)
    if share := _share(parts[-1]):
        text += f". Stopped after {share}"
    text += warning(check.doubts()) + warning(check.repeats.doubts())
    return Fitted(fits, points, text, stopped, advised)


def warning(words: str) -> str:
    """Return a further sentence of a summary that warns; nothing without words."""
    return f". ⚠ {words[0].upper()}{words[1:]}." if words else ""


def _advice(request: FitRequest, fits: SpotFits, maps: Mapping[str, Any]) -> Advice | None:
    """Return why most fits are doubtful, if they are; then the image is asked for its σ."""
    valid = to_host(fits.valid)
    if not most_are_doubtful(to_host(fits.good)[valid]):
        return None
    sigma = None
    if request.settings.sigma is not None and request.channels is None:
        known = {name: one for name, one in maps.items() if name in ("bad_pixels", "camera")}
        unset = request.settings.changed(sigma=None, roi_size=None)
        request.noise.put_into(unset, request.image, known)
        found = request.noise.known(unset)
        sigma = found.sigma if found is not None and not found.warning else None
    return advice(to_host(fits.flags)[valid], request.settings, sigma)


def _parts(request: FitRequest, maps: Mapping[str, Any]) -> Generator[Part, None, None]:
    """Yield the fits of an image part by part, those of channels one after the other."""
    if request.channels is None:
        settings = request.noise.put_into(request.settings, request.image, maps)
        yield from localize_parts(request.image, settings, frames=request.frames, **maps)
        return
    axis, leading = request.channels, request.image.shape[: -request.settings.dimensions]
    chosen = request.frames if isinstance(request.frames, tuple) else (request.frames,)
    if request.frames is None:
        chosen = (slice(None),) * len(leading)
    numbers = indices_along(chosen[axis], leading[axis]).tolist()
    others = (*chosen[:axis], *chosen[axis + 1 :]) or None
    channels = channels_along(request.image, axis, numbers, Maps(**maps))
    # One size for all: a layer has one size of ROIs in its settings.
    for parts in parts_by_channel(channels, request.settings, others, same_roi=True):
        yield from parts


def plain_frames(frames: FrameSelection) -> list[list[int] | int | None] | None:
    """Return chosen frames as plain values: an index, [first, behind last], or None for all.

    Examples
    --------
    >>> plain_frames((slice(2, 5), 3, slice(None)))
    [[2, 5], 3, None]
    """
    if frames is None:
        return None
    axes: tuple[Any, ...] = frames if isinstance(frames, tuple) else (frames,)
    plain: list[list[int] | int | None] = []
    for along in axes:
        if isinstance(along, slice):
            plain.append(None if along == slice(None) else [int(along.start), int(along.stop)])
        else:
            plain.append(int(along))
    return plain


def _share(last: Part) -> str:
    """Return how much of the image was fitted, in words; nothing if all was."""
    if last.done == last.total:
        return ""
    if not last.done:
        return f"{last.share:.0%} of the image"
    return f"{number(last.done)} of {number(last.total)} frames"


def _incomplete(error: Exception, share: str) -> IncompleteFitError:
    """Return the error that says which spots are shown all the same."""
    why = str(error) or type(error).__name__
    incomplete = IncompleteFitError(f"{why}. The spots found before are shown, of {share}")
    incomplete.__cause__ = error
    return incomplete


def summary(fits: SpotFits, seconds: float, device: str, why_invalid: str = "") -> str:
    """Return in one line what a fit has found.

    Parameters
    ----------
    fits : SpotFits
        All fits, the invalid ones too.
    seconds : float
        How long it took.
    device : str
        What it ran on.
    why_invalid : str
        Why some could not be fitted, and what to do, where that is known.
    """
    total = len(fits)
    found = f"{number(total)} spot{'' if total == 1 else 's'}" if total else "No spots"
    text = f"{found} in {seconds:.1f}\u202fs on {device}"
    if not total:
        return f"{text}: allow more false spots or try another PSF σ"
    valid = to_host(fits.valid)
    invalid = int((~valid).sum())
    text += f", {reasons_in_words(to_host(fits.flags)[valid])}"
    if not invalid:
        return text
    text += (
        f"; {number(invalid)} could not be fitted and {'is' if invalid == 1 else 'are'} not drawn"
    )
    return f"{text}: {why_invalid}" if why_invalid else text


def counts_in_words(good: Any) -> str:
    """Return how many fits are good, and how many are not.

    Examples
    --------
    >>> import numpy as np
    >>> counts_in_words(np.array([True, False, True]))
    '2 good, 1 doubtful'
    """
    count = int(np.count_nonzero(to_host(good)))
    return f"{number(count)} good, {number(len(good) - count)} doubtful"


def _check_searched(request: FitRequest, maps: Mapping[str, Any]) -> None:
    """Raise a ValueError that says why no spot can be found, if there is no pixel to search.

    An image with finite pixels in its first frame is read no further.
    """
    mask = maps.get("mask")
    if mask is not None and not bool(mask.any()):
        raise ValueError(
            f"“{request.maps.names['mask']}” marks no pixel of the image: mark where to search in "
            "it, or search the whole image"
        )
    if not _any_finite(request.image, request.frames):
        raise ValueError(
            "the image has no finite pixel in these frames, only NaN or infinite ones: choose "
            "another image, or other frames"
        )


def _any_finite(image: Any, frames: FrameSelection) -> bool:
    if np.dtype(image.dtype).kind != "f":
        return True
    reader = FrameReader(image)
    blocks = reader.blocks(reader.select(frames), 1, _BLOCK)
    return any(bool(np.isfinite(reader.read_to_host(block)).any()) for block in blocks)


def _why_invalid(image: Any, fits: SpotFits) -> str:
    """Return why spots could not be fitted, if the first of them has NaN or infinite pixels.

    So only one frame is read again.
    """
    rows = np.flatnonzero(~fits.valid)
    if not len(rows) or fits.settings is None or np.dtype(image.dtype).kind != "f":
        return ""
    columns, row = fits.columns, rows[0]
    index = tuple(int(columns[name][row]) for name in fits.index_names)
    corner = (int(columns[f"roi_{axis}"][row]) for axis in fits.axes)
    part = (slice(n, n + side) for n, side in zip(corner, fits.settings.roi_shape, strict=True))
    roi = np.asarray(image[index][tuple(part)])
    return "" if np.isfinite(roi).all() else _NO_NUMBERS


class Advice(NamedTuple):
    """Why most fits are doubtful, and the settings with which they would not be."""

    why: str
    #: What a button offers; nothing if there is no such setting.
    offer: str = ""
    settings: Mapping[str, Any] = MappingProxyType({})


def most_are_doubtful(good: NDArray[np.bool_]) -> bool:
    """Whether most of some fits are not good."""
    return len(good) >= _LEAST and 2 * int(np.count_nonzero(good)) < len(good)


def advice(flags: NDArray[Any], given: Settings, sigma: float | None) -> Advice:
    """Return why most fits are doubtful.

    Parameters
    ----------
    flags : ndarray
        Those of all fits.
    given : Settings
        What was set, before anything was estimated.
    sigma : float or None
        The σ that the image shows, if one was given; None if it shows none.
    """
    if given.sigma and sigma and not 1 / _OFF < given.sigma / sigma < _OFF:
        shown = f"{sigma:.3g} px"
        why = f"σ is given as {given.sigma:g} px, the image shows {shown}"
        return Advice(why, f"Fit with {shown}", {"sigma": None})
    reasons = main_reasons(flags)
    reason = max(reasons, key=lambda one: reasons[one])
    for name in _CAUSES.get(reason, ()):
        value, default = getattr(given, name), getattr(_DEFAULTS, name)
        if value != default:
            return Advice(_cause(name, value), "Fit with its default", {name: default})
    if reason in _OF_WIDTH:
        return Advice("there are no spots of one width here: is it an image of spots?")
    return Advice(_WORDS.get(reason, "see why in the legend"))


def _cause(name: str, value: Any) -> str:
    about = parameters()[name]
    shown = getattr(value, "name", value)
    return f"{about.label} is given as {shown} {about.unit}".rstrip()
