"""Astigmatism calibrations of other programs: Picasso, ThunderSTORM and 3D-DAOSTORM.

Their z is taken as it is, as their programs and tables have it: that of Picasso falls with the
frames of the bead stack.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from ..files.table import UnreadableFileError
from ..files.writing import unfinished
from ..models.astigmatism import AstigmatismCalibration
from ..models.calibration import Curve, unique_range
from ..untrusted import yaml_documents

#: Coefficients of Picasso's polynomials, the key of widths in nm, and the steps that we write.
_COEFFICIENTS, _MARKER, _FRAMES = 7, "picasso_format", 101
#: Points of a spline that stands for a curve of other constants; the longest XML in bytes.
_NODES, _LONGEST = 101, 1 << 20


def from_yaml(path: Path, pixel_size: float | None) -> AstigmatismCalibration:
    """Return the calibration of a file of Picasso or ThunderSTORM."""
    _need_yaml()
    values = next(yaml_documents(path), None)
    if not isinstance(values, Mapping):
        raise UnreadableFileError("it is no calibration: it has no values by name")
    if "X Coefficients" in values:
        return _of_picasso(values, pixel_size)
    if "w01" in values:
        return _of_thunderstorm(values)
    raise UnreadableFileError(
        "it is no calibration of Picasso, which has “X Coefficients”, nor of ThunderSTORM, "
        "which has “w01”"
    )


def _of_picasso(values: Mapping[str, Any], pixel_size: float | None) -> AstigmatismCalibration:
    stored = values.get("Pixelsize", values.get("pixelsize"))
    pixel_size = pixel_size or (None if stored is None else float(stored))
    unit = 1.0
    if _MARKER in values:
        if pixel_size is None:
            raise UnreadableFileError("its widths are in nm: give pixel_size=…, of a pixel in nm")
        unit = pixel_size
    curves = [
        _polynomial([float(one) / unit for one in values[f"{axis} Coefficients"]]) for axis in "XY"
    ]
    half = (int(values["Number of frames"]) - 1) * float(values["Step size in nm"]) / 2
    return _within(
        curves, -half, half, pixel_size=pixel_size,
        index_factor=float(values.get("Magnification factor", 1.0)),
    )  # fmt: skip


def _polynomial(numbers: list[float]) -> Curve:
    if len(numbers) != _COEFFICIENTS:
        raise UnreadableFileError(f"its curves must have 7 coefficients each; got {len(numbers)}")
    return Curve("polynomial", tuple(numbers))


def _of_thunderstorm(values: Mapping[str, Any]) -> AstigmatismCalibration:
    is_huang = "Huang" in str(values.get("name", ""))
    curves, foci = [], []
    for number in "12":
        least, a, b, c, d = (
            float(values[f"{name}{number}"]) for name in ("w0", "a", "b", "c", "d")
        )
        foci.append(c)
        if is_huang:
            curves.append(Curve("huang", (least / 2, c, d, a, b)))
        else:  # b + a (z - c)² + d (z - c)³
            powers = np.poly1d([d, a, 0.0, b])(np.poly1d([1.0, -c]))
            curves.append(Curve("polynomial", tuple(map(float, powers.coefficients))))
    # The file has no range: as far beyond the foci as half of what lies between them.
    beyond = abs(foci[1] - foci[0]) / 2
    return _within(
        curves, min(foci) - beyond, max(foci) + beyond, angle=math.degrees(float(values["angle"]))
    )


def from_xml(path: Path, pixel_size: float | None) -> AstigmatismCalibration:
    """Return the calibration among the parameters of 3D-DAOSTORM, whose widths are 2 σ in nm."""
    text = path.read_bytes()
    if len(text) > _LONGEST or b"<!" in text.replace(b"<!--", b""):
        raise UnreadableFileError("it is no file of parameters: it is too long, or declares types")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise UnreadableFileError(f"it is damaged, or no XML: {error}") from None
    values = {one.tag: (one.text or "").strip() for one in root.iter()}
    if "wx_wo" not in values:
        raise UnreadableFileError("it has no parameters of 3D-DAOSTORM, such as “wx_wo”")
    size = pixel_size or float(values.get("pixel_size", 0))
    if not size:
        raise UnreadableFileError("its widths are in nm: give pixel_size=…, of a pixel in nm")
    low, high = (
        1000 * float(values.get(f"{end}_z", z)) for end, z in (("min", -0.5), ("max", 0.5))
    )
    curves = []
    for axis in "xy":
        wo, c, d = (float(values[f"w{axis}_{name}"]) for name in ("wo", "c", "d"))
        more = [float(values.get(f"w{axis}{name}", 0)) for name in "ABCD"]
        curve = Curve("huang", (wo / 2 / size, c, d, *more[:2]))
        if any(more[2:]):
            nodes = np.linspace(low, high, _NODES)
            u = (nodes - c) / d
            square = 1 + u**2 + sum(one * u ** (3 + i) for i, one in enumerate(more))
            widths = wo / 2 / size * np.sqrt(square)
            curve = Curve("spline", tuple(widths.tolist()), tuple(nodes.tolist()))
        curves.append(curve)
    return _within(curves, low, high, pixel_size=size)


def _within(curves: list[Curve], low: float, high: float, **more: Any) -> AstigmatismCalibration:
    """Return the calibration of curves, in that part of a range where they determine z."""
    x, y = curves
    return AstigmatismCalibration(x, y, *unique_range(x, y, low, high), **more)


def save_for_picasso(calibration: AstigmatismCalibration, path: str | os.PathLike[str]) -> float:
    """Save a calibration as a ``.yaml`` that Picasso opens, with widths in pixels.

    Picasso has polynomials of the sixth degree, over as many nm below 0 as above, and no angle.

    Parameters
    ----------
    calibration : AstigmatismCalibration
        The calibration.
    path : str or path
        The file, ``.yaml``.

    Returns
    -------
    float
        How far these polynomials are from its curves at most, in pixels.

    Raises
    ------
    ValueError
        If the lens is turned, or the range is on one side of 0.
    """
    _need_yaml()
    import yaml

    half = min(-calibration.low, calibration.high)
    if calibration.angle:
        raise ValueError(
            f"Picasso knows no turned lens, and this one is by {calibration.angle:.1f}°: turn the "
            "lens, or the images"
        )
    if half <= 0:
        raise ValueError(f"Picasso's z is around 0; the range is {calibration.words}")
    z = np.linspace(-half, half, _FRAMES)
    fits = {
        axis: np.polynomial.Polynomial.fit(z, curve(z), _COEFFICIENTS - 1).convert()
        for axis, curve in (("X", calibration.x), ("Y", calibration.y))
    }
    values: dict[str, Any] = {
        f"{axis} Coefficients": [float(one) for one in fit.coef[::-1]] for axis, fit in fits.items()
    }
    values |= {
        "Number of frames": _FRAMES,
        "Step size in nm": float(z[1] - z[0]),
        "Magnification factor": calibration.index_factor,
    }
    if calibration.pixel_size is not None:
        values["Pixelsize"] = calibration.pixel_size
    with unfinished(Path(path)) as part:
        part.write_text(yaml.safe_dump(values), encoding="utf-8")
    apart = [fits["X"](z) - calibration.x(z), fits["Y"](z) - calibration.y(z)]
    return float(np.abs(apart).max())


def _need_yaml() -> None:
    if find_spec("yaml") is None:
        raise ImportError(
            'calibrations in YAML need PyYAML, which is missing: pip install "napari-spotfit[hdf5]"'
        )
