"""Write a report of fits: one HTML file for those who have none of the software."""

from __future__ import annotations

import base64
import os
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.flags import NOT_GOOD, RULES, main_reasons, thousands
from ..files.writing import unfinished
from ..images.channels import NO_MAPS, channel_of
from ..images.files.opening import opened
from ..models.columns import IN_PLANE, STDERR, describe
from ..results.spot_fits import SpotFits, on_host
from ..settings.settings import parameters
from ..version import __version__
from .drift import fiducial_drift
from .drift_estimate import estimate_drift
from .precision import nena
from .render import render
from .summary import per_frame, summarize

#: Examples of each reason, and how far a cut-out reaches from its centre in pixels.
_EXAMPLES, _REACH = 6, 10
#: Percentiles of a picture's pixels that are black and white; a picture's longest side.
_BLACK, _WHITE, _LONGEST = 1.0, 99.8, 640
#: Spots from which on an image must show light where they are, as a share of their amplitudes.
_ENOUGH, _LEAST_LIGHT = 5, 0.2
#: Bins of a histogram; width and height of a plot.
_BINS, _WIDTH, _HEIGHT = 60, 360, 130
_STYLE = """body{font:15px sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse}
td,th{padding:.15em .8em;text-align:left;border-bottom:1px solid #ddd}
figure{display:inline-block;margin:.4em;vertical-align:top;font-size:12px;position:relative}
svg:has(circle){position:absolute;overflow:visible}circle{fill:none;stroke:#fc3}
img{image-rendering:pixelated;display:block}h2{margin-top:2em}"""


def save_report(
    fits: SpotFits,
    path: str | os.PathLike[str],
    image: Any = None,
    *,
    channel: int | str | None = None,
    title: str = "",
) -> None:
    """Write a report of fits as one HTML file, which needs nothing else to be read.

    It has the counts with the reasons of doubtful fits, six examples of each, the precision, the
    drift that is left, a picture and all settings.

    Parameters
    ----------
    fits : SpotFits
        All fits of an image, also those that are not good.
    path : str or path
        The file, ``.html``.
    image : array, shape (…, Y, X), or path, optional
        The image that was fitted, for cut-outs of examples.
    channel : int or str, optional
        The channel that was fitted, of an image with several; not if all were.
    title : str
        The heading; by default that it is a report of spots.

    Raises
    ------
    ValueError
        If the name does not end in ``.html``, or the image is not the one that was fitted.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from napari_spotfit import localize, save_report, simulate_movie
    >>> movie, truth = simulate_movie(4, shape=(64, 64), spots_per_frame=8, seed=1)
    >>> with TemporaryDirectory() as folder:
    ...     save_report(localize(movie), f"{folder}/movie.html", movie)
    ...     text = Path(f"{folder}/movie.html").read_text(encoding="utf-8")
    >>> "<h2>Precision</h2>" in text
    True
    """
    place = Path(path)
    if place.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the name of a report must end in .html; got “{place.name}”")
    fits = on_host(fits)
    source = None if image is None else opened(image)
    if channel is not None:
        source = channel_of(source, channel, NO_MAPS).image
    if source is not None:
        _check_image(fits, source)
    title = title or "Report of spots"
    sections = (
        _counts(fits), _precision(fits), _drift(fits), _picture(fits, source),
        _doubtful(fits, source), _settings(fits),
    )  # fmt: skip
    body = "\n".join(line for section in sections for line in section)
    page = (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n{body}\n"
        f"<p><small>Written by napari-spotfit {__version__}.</small></p></html>\n"
    )
    with unfinished(place) as part:
        part.write_text(page, encoding="utf-8", newline="\n")


def _counts(fits: SpotFits) -> Iterator[str]:
    """Yield how many fits there are, by their verdicts and by frame."""
    good, judged = int(fits.good.sum()), int(fits.judged.sum())
    yield "<h2>Counts</h2>"
    verdicts = f"{thousands(good)} are good and {thousands(judged - good)} doubtful"
    if unknown := len(fits) - judged:
        verdicts += f", and {thousands(unknown)} of another program have no verdict"
    yield f"<p>{thousands(len(fits))} spots: {verdicts}.</p>"
    stops = ((stop.words, thousands(n)) for stop, n in fits.stop_counts().items() if n)
    yield from _table(("the fit", "spots"), stops)
    files = _files(fits)
    if len(files) > 1:
        own = ((name, fits[fits.columns["file"] == name]) for name in files)
        rows = ((name, thousands(len(one)), thousands(int(one.good.sum()))) for name, one in own)
        yield from _table(("file", "spots", "good"), rows)
    elif len(fits) and len(fits.index_names) == 1:
        frames = per_frame(fits[fits.accepted]) if fits.accepted.any() else per_frame(fits)
        yield from _plot(frames[fits.index_names[0]], {"spots": frames["count"]}, "spots by frame")


def _precision(fits: SpotFits) -> Iterator[str]:
    """Yield what the good fits are like, with their standard errors."""
    kept, unjudged = fits[fits.accepted], not fits.judged.all()
    yield "<h2>Precision</h2>"
    if not len(kept):
        yield "<p>No fit is good.</p>"
        return
    table = summarize(kept)
    yield f"<p>Of good fits{' and of spots without a verdict' if unjudged else ''}. "
    yield "The spread is 1.4826 times the median absolute deviation; between low and high are nine "
    yield "of ten. Names that end in _stderr are standard errors.</p>"
    rows = (
        (name, f"{row['median']:.4g}", f"{row['spread']:.3g}", f"{row['low']:.4g}",
         f"{row['high']:.4g}", "nm" if name.startswith("fwhm") else fits.units.get(name, ""))
        for name, row in table.iterrows()
    )  # fmt: skip
    yield from _table(("quantity", "median", "spread", "low", "high", "unit"), rows)
    yield "<p>Of molecules in successive frames (NeNA): "
    try:
        found = nena(kept)
        errors = f", {found.kappa:.2f} standard errors" if np.isfinite(found.kappa) else ""
        yield f"{found.precision:.3g} px along an axis{errors}; {thousands(found.pairs)} pairs.</p>"
    except ValueError as error:
        yield f"not measured, as {escape(str(error))}</p>"
    for name in (f"x{STDERR}", f"z{STDERR}", "photons", "sigma"):
        if name in kept.columns:
            yield from _histogram(kept.columns[name], f"{name}, {fits.units.get(name, '')}")


def _drift(fits: SpotFits) -> Iterator[str]:
    """Yield the drift by fiducials, if there are tracks, or by molecules that are seen again."""
    yield "<h2>Drift</h2>"
    has_tracks = "track" in fits.columns
    try:
        with warnings.catch_warnings(record=True) as doubts:
            warnings.simplefilter("always")
            drift = fiducial_drift(fits) if has_tracks else estimate_drift(fits)
    except ValueError as error:
        yield f"<p>Not measured: {escape(str(error))}</p>"
        return
    way = float(np.hypot(np.ptp(drift.y), np.ptp(drift.x)))
    yield f"<p>{way:.3g} px in all, by {np.median(drift.used):.0f} "
    yield f"{'fiducials' if has_tracks else 'spots that are seen again'} in most frames.</p>"
    yield from (f"<p>{escape(str(doubt.message))}</p>" for doubt in doubts)
    yield from _plot(np.arange(len(drift)), {"y": drift.y, "x": drift.x}, "drift by frame, px")


def _picture(fits: SpotFits, image: Any) -> Iterator[str]:
    """Yield a picture of where the spots are, and the frame with most of them."""
    kept = _placed(fits)
    yield "<h2>Picture</h2>"
    if not len(kept):
        lacking = "no good spot has a position" if fits.accepted.any() else "no spot is good"
        yield f"<p>There is no picture, as {lacking}.</p>"
        return
    sides = (kept.y.max() + 1, kept.x.max() + 1) if image is None else image.shape[-2:]
    finer = _LONGEST / max(sides)
    shape = None if image is None else image.shape
    picture = render(kept, finer, shape=shape, by=1 / finer)
    whole = "the good spots of all frames" + (" of all files" if len(_files(fits)) > 1 else "")
    yield _figure(_shown(np.sqrt(picture)), 1, whole)
    if image is not None:
        index = _fullest(kept, image)
        names = (*fits.index_names, "plane")
        words = ", ".join(f"{name} {at}" for name, at in zip(names, index, strict=False))
        label = f"where most spots are: {words}" if words else "the image"
        yield _figure(_shown(np.asarray(image[index])), min(max(int(finer), 1), 2), label)


def _doubtful(fits: SpotFits, image: Any) -> Iterator[str]:
    """Yield the reasons of doubtful fits with examples, each fit under its main one."""
    yield "<h2>Doubtful fits</h2>"
    left = np.flatnonzero((fits.flags & int(NOT_GOOD)) != 0)
    if not len(left):
        yield f"<p>{'None.' if fits.judged.any() else 'Unknown, as no fit has a verdict.'}</p>"
        return
    if image is None:
        yield "<p>No cut-outs are shown, as the report was made without the image.</p>"
    else:
        yield "<p>A circle marks the fit, whose light may be much dimmer than that of others.</p>"
        if any(step.name == "subtract_drift" for step in fits.history):
            yield "<p>The drift was subtracted from the fits, and is still in the image.</p>"
    for flag, count in main_reasons(fits.flags).items():
        rule, hit = RULES[flag], (fits.flags[left] & int(flag)) != 0
        rows, left = left[hit], left[~hit]
        yield f"<h3>{escape(rule.word)}: {thousands(count)}</h3>"
        yield f"<p>{escape(rule.sentence)} {escape(rule.advice)}</p>"
        chosen = rows[np.linspace(0, len(rows) - 1, min(len(rows), _EXAMPLES)).astype(int)]
        yield from (_example(fits, int(row), image) for row in chosen)


def _example(fits: SpotFits, row: int, image: Any) -> str:
    """Return one fit in numbers, with its pixels if there are any."""
    names = (*fits.index_names, *fits.axes, "photons")
    words = ", ".join(f"{name} {fits.columns[name][row]:.5g}" for name in names)
    more = [RULES[flag].word for flag in RULES if fits.flags[row] & int(flag)][1:]
    words += f"; also {', '.join(more)}" if more else ""
    if image is None or not np.isfinite([fits.columns[axis][row] for axis in fits.axes]).all():
        return f"<p>{escape(words)}</p>"
    y, x = (fits.columns[axis][row] for axis in IN_PLANE)
    frame = np.asarray(image[tuple(_indices(fits[row : row + 1], image)[0].tolist())])
    box = tuple(
        slice(max(0, min(round(float(at)), side - 1) - _REACH), round(float(at)) + _REACH + 1)
        for at, side in zip((y, x), frame.shape, strict=True)
    )
    return _figure(_shown(frame[box]), 6, words, (y - box[0].start, x - box[1].start))


def _settings(fits: SpotFits) -> Iterator[str]:
    """Yield all settings, with what was estimated."""
    yield "<h2>Settings</h2>"
    if fits.history:
        yield f"<p>After the fit: {escape('; '.join(map(str, fits.history)))}.</p>"
    if fits.settings is None:
        yield "<p>Unknown: the table does not say them.</p>"
        return
    about, values = parameters(), fits.settings.to_dict()
    rows = (
        (about[name].label, _value(values[name]), about[name].unit, about[name].doc)
        for name in values
        if name != "noise"
    )
    yield from _table(("setting", "value", "unit", "meaning"), rows)
    if fits.settings.noise is not None:
        yield f"<p>{escape(str(fits.settings.noise))}</p>"


def _value(value: Any) -> str:
    """Return the value of a setting as text."""
    return "not set" if value is None or value == {} else str(value)


def _check_image(fits: SpotFits, image: Any) -> None:
    """Raise an error if the spots cannot be those of an image."""
    if len(files := _files(fits)) > 1:
        raise ValueError(
            f"the table has spots of {len(files)} files, and the image is one: make a table of "
            f"each, or choose one, fits[fits.file == {files[0]!r}]"
        )
    shape = tuple(image.shape)
    leading = shape[: len(shape) - len(fits.axes)]
    if len(leading) != len(fits.index_names):
        raise ValueError(
            f"the image has shape {shape}, and the table indices {list(fits.index_names)} before "
            f"{', '.join(fits.axes)}: choose the image that was fitted, or its channel"
        )
    names = (*fits.index_names, *fits.axes)
    for name, side in zip(names, shape, strict=True):
        values = fits.columns[name][np.isfinite(fits.columns[name])]
        if len(values) and not (values.min() >= -1 and values.max() <= side):
            raise ValueError(
                f"the image has {side} along {describe(name).name}, and the table spots at "
                f"{values.max():.0f}: choose the image that was fitted"
            )
    kept = _placed(fits)
    if len(kept) < _ENOUGH or "amplitude" not in kept.columns:
        return
    index = _fullest(kept, image)
    frame = np.asarray(image[index], float)
    seen = kept[(_indices(kept, image) == index).all(axis=1)]
    y, x = (np.clip(np.rint(seen.columns[axis]), 0, side - 1).astype(int)
            for axis, side in zip(IN_PLANE, frame.shape, strict=True))  # fmt: skip
    if np.median((frame[y, x] - np.median(frame)) / seen.amplitude) < _LEAST_LIGHT:
        raise ValueError(
            "the image has no light where the table has spots: choose the image that was fitted"
        )


def _files(fits: SpotFits) -> list[str]:
    """Return the names of the files that the spots are of, if the table says them."""
    return sorted(set(fits.columns["file"].tolist())) if "file" in fits else []


def _placed(fits: SpotFits) -> SpotFits:
    """Return the good spots that have a position."""
    places = [np.isfinite(fits.columns[axis]) for axis in fits.axes]
    return fits[np.logical_and.reduce([fits.accepted, fits.valid, *places])]


def _fullest(fits: SpotFits, image: Any) -> tuple[int, ...]:
    """Return the index of the frame, or plane, with most spots."""
    indices = _indices(fits, image)
    if not indices.shape[1]:
        return ()
    frames, counts = np.unique(indices, axis=0, return_counts=True)
    return tuple(frames[counts.argmax()].tolist())


def _indices(fits: SpotFits, image: Any) -> NDArray[np.int64]:
    """Return the frame of each spot as an index of the image; of a volume the plane, too."""
    along = [fits.columns[name] for name in fits.index_names]
    if "z" in fits.axes:
        along.append(np.clip(np.rint(fits.columns["z"]), 0, image.shape[-3] - 1))
    return np.stack([np.zeros(len(fits)), *along], axis=1)[:, 1:].astype(np.int64)


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield a table."""
    yield f"<table><tr>{''.join(f'<th>{escape(one)}' for one in titles)}"
    for cells in rows:
        yield f"<tr>{''.join(f'<td>{escape(one)}' for one in cells)}"
    yield "</table>"


def _plot(x: Any, lines: dict[str, Any], label: str) -> Iterator[str]:
    """Yield a plot of lines over numbers that rise."""
    x = np.asarray(x, float)
    values = np.concatenate([np.asarray(y, float) for y in lines.values()])
    low, high = min(0.0, float(values.min())), max(float(values.max()), 1e-12)
    right = (x - x[0]) / max(float(x[-1] - x[0]), 1e-12) * _WIDTH
    yield f'<figure><svg width="{_WIDTH}" height="{_HEIGHT}" style="background:#f4f4f4">'
    for y, colour in zip(lines.values(), ("#36c", "#c63"), strict=False):
        up = _HEIGHT - (np.asarray(y, float) - low) / (high - low) * _HEIGHT
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(right, up, strict=True))
        yield f'<polyline fill="none" stroke="{colour}" points="{points}"/>'
    names = f" (blue {', orange '.join(lines)})" if len(lines) > 1 else ""
    yield f"</svg><figcaption>{escape(label + names)}: {low:.4g} to {high:.4g}, "
    yield f"from {x[0]:.4g} to {x[-1]:.4g}</figcaption></figure>"


def _histogram(values: NDArray[Any], label: str) -> Iterator[str]:
    """Yield a histogram of what lies between the outermost hundredths."""
    finite = values[np.isfinite(values)].astype(float)
    if len(finite):
        counts, edges = np.histogram(finite, _BINS, np.percentile(finite, (1, 99)).tolist())
        corners = np.repeat(edges, 2)[1:-1]
        yield from _plot(corners, {"spots": np.repeat(counts, 2)}, f"spots by {label}")


def _shown(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Return pixels as shades of grey."""
    pixels = np.nan_to_num(pixels.astype(float))
    low, high = np.percentile(pixels, (_BLACK, _WHITE))
    if high <= low:  # most pixels are the same
        high = max(float(pixels.max()), low + 1e-12)
    grey: NDArray[np.uint8] = np.clip(255 * (pixels - low) / (high - low), 0, 255).astype(np.uint8)
    return grey


def _figure(
    grey: NDArray[np.uint8], larger: int, caption: str, mark: tuple[float, float] | None = None
) -> str:
    """Return a picture in the page itself, with a caption and a circle around a pixel."""
    rows, columns = grey.shape
    lines = np.hstack([np.zeros((rows, 1), np.uint8), grey]).tobytes()
    header = struct.pack(">IIBBBBB", columns, rows, 8, 0, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n"
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")):
        png += struct.pack(">I", len(data)) + kind + data
        png += struct.pack(">I", zlib.crc32(kind + data))
    width = columns * larger
    circle = ""
    if mark is not None:
        y, x = (larger * (float(at) + 0.5) for at in mark)
        circle = f'<svg><circle cx="{x:.1f}" cy="{y:.1f}" r="{4 * larger}"/></svg>'
    return (
        f'<figure>{circle}<img width="{width}" alt="" src="data:image/png;base64,'
        f'{base64.b64encode(png).decode()}"><figcaption style="width:{max(width, 140)}px">'
        f"{escape(caption)}</figcaption></figure>"
    )
