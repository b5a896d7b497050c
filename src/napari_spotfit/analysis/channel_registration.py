"""Register two channels by beads or by the spots themselves."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from ..caller import warn_caller
from ..files.table import UnreadableFileError, check_format
from ..files.writing import unfinished
from ..models.columns import IN_PLANE, REGISTERED, STDERR
from ..models.number_checks import one_of
from ..results.spot_fits import SpotFits, on_host
from ..untrusted import named
from ..version import __version__
from .channel_matching import Fit, Matches, Model, Spots, find_matches
from .linking import Floats, common_frames, measured_once, of_one_channel

Kind = Literal["translation", "affine", "polynomial"]
_KINDS: tuple[Kind, ...] = get_args(Kind)

#: Version of the file format, and the key that identifies it.
FORMAT, FORMAT_KEY = 1, "napari-spotfit registration"
#: Largest leverage of a pair: above it, the other pairs cannot check it.
_MOST_LEVERAGE = 0.9
#: Least spread of pairs along any direction, in standard errors, and relative to the longest one.
_LEAST_SPREAD, _LEAST_SHARE = 10.0, 0.01
#: Distances beyond this many standard errors cause a warning, with advice by model.
_ODD = 2.0
_ADVICE = {
    "translation": "a channel may be rotated or magnified, so register by 'affine'",
    "affine": "the channels may be bent, so register by 'polynomial'",
    "polynomial": "the spots may have moved between the channels, or be bent more finely",
}
#: Tolerance of the hull for rounding, in pixels.
_ROUNDED = 1e-6


@dataclass(frozen=True)
class ChannelRegistration:
    """The map of positions from one channel to another.

    Made by :func:`register_channels` or :meth:`load`.

    Threads: any number may share it, as it is immutable; do not modify its arrays.

    Attributes
    ----------
    model : str
        ``"translation"``, ``"affine"`` or ``"polynomial"``, of the second degree.
    error : float
        Root mean square distance between partners in pixels, by leave-one-out cross-validation.
        It includes the errors of the spots themselves.
    pairs : int
        Number of pairs of spots used.
    hull : ndarray of float64, shape (n, 2)
        Corners (y, x) of the convex hull of the pairs, within which the map is known.
    coefficients, covariance, center, scale
        The polynomials for the shifts along y and x in ``(position - center) / scale``, terms 1, y,
        x, y², yx, x² as far as the model has them, shape (terms, 2), and the covariances of their
        coefficients, shape (2, terms, terms).

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from napari_spotfit import ChannelRegistration, SpotFits, register_channels
    >>> y, x = np.random.default_rng(1).uniform(0, 200, (2, 40))
    >>> a, b = SpotFits({"y": y, "x": x}), SpotFits({"y": y - 5.0, "x": x + 3.0})
    >>> with TemporaryDirectory() as folder:
    ...     register_channels(a, b, "translation").save(f"{folder}/beads.json")
    ...     loaded = ChannelRegistration.load(f"{folder}/beads.json")
    >>> loaded.matrix.round(6)[:2, 2].tolist()
    [5.0, -3.0]
    """

    model: Kind
    error: float
    pairs: int
    hull: Floats = field(repr=False)
    coefficients: Floats = field(repr=False)
    covariance: Floats = field(repr=False)
    center: Floats = field(repr=False)
    scale: float = field(repr=False)

    @property
    def _fit(self) -> Fit:
        model = Model(_KINDS.index(self.model), self.center, self.scale)
        return Fit(model, self.coefficients, self.covariance)

    @property
    def matrix(self) -> Floats:
        """The affine matrix, shape (3, 3), that maps (y, x, 1) from b to a.

        Raises
        ------
        ValueError
            If the model is a polynomial.
        """
        if self.model == "polynomial":
            raise ValueError("a polynomial has no matrix: register with model='affine' for one")
        corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        origin, down, across = self._fit.mapped(corners)
        return np.vstack([np.column_stack([down - origin, across - origin, origin]), [0, 0, 1]])

    def apply(self, fits: SpotFits, outside: Literal["raise", "drop"] = "raise") -> SpotFits:
        """Map fits of channel b to channel a.

        Parameters
        ----------
        fits : SpotFits
            Fits of channel b.
        outside : {"raise", "drop"}
            What to do with spots outside the hull of the pairs, where the map is unknown: raise an
            error, or drop their rows.

        Returns
        -------
        SpotFits
            The fits with mapped ``y`` and ``x``, whose standard errors include those of the map,
            and a column ``registered``. ``z``, ``roi_y`` and ``roi_x`` are unchanged, and fits
            without a position stay without.

        Raises
        ------
        ValueError
            If some are outside, unless they are dropped, or the fits are registered already.
        """
        one_of("outside", outside, ("raise", "drop"))
        fits = on_host(fits)
        if REGISTERED in fits and fits.columns[REGISTERED].any():
            raise ValueError("these fits are registered already: pass the original fits")
        known = self.covers(fits)
        if not known.all() and outside == "raise":
            raise ValueError(
                f"{np.count_nonzero(~known)} of {len(fits)} spots are outside of the "
                f"{self.pairs} pairs that were registered, where the map is unknown: register by "
                "spots of the whole field, or drop these by outside='drop'"
            )
        fits, fit = fits[known], self._fit
        places = np.column_stack([fits.y, fits.x])
        moved: dict[str, Any] = dict(zip(IN_PLANE, fit.mapped(places).T, strict=True))
        names = [axis + STDERR for axis in IN_PLANE]
        if all(name in fits for name in names):
            own = np.column_stack([fits.columns[name] for name in names]).astype(float) ** 2
            own = np.einsum("nij,nj->ni", fit.jacobian(places) ** 2, own)
            errors = np.sqrt(own + fit.variances(places)).astype(np.float32)
            moved |= zip(names, errors.T, strict=True)
        moved[REGISTERED] = np.ones(len(fits), bool)
        return fits.with_columns(fits.columns | moved)

    def covers(self, fits: SpotFits) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return which fits of channel b are within the hull of the pairs, or have no position."""
        places = np.column_stack([fits.y, fits.x])
        from scipy.spatial import ConvexHull  # imported here, as that takes long

        sides = ConvexHull(self.hull).equations
        with np.errstate(invalid="ignore"):
            beyond = places @ sides[:, :2].T + sides[:, 2] > _ROUNDED
        covered: np.ndarray[Any, np.dtype[np.bool_]] = ~beyond.any(axis=1)
        return covered

    def apply_to_layer(self, layer: Any, onto: Any = None) -> None:
        """Register a napari layer of channel b with channel a, by its affine transform.

        Parameters
        ----------
        layer : napari.layers.Layer
            A layer in pixels of channel b: the image, or points on it. Its last axes are y and x.
        onto : napari.layers.Layer, optional
            The image of channel a; by default one with the layer's own scale and translation.

        Raises
        ------
        ValueError
            If the model is a polynomial, which napari cannot display.
        """
        size = layer.ndim
        embedded = np.eye(size + 1)
        rows = [size - 2, size - 1, size]
        embedded[np.ix_(rows, rows)] = self.matrix
        layer.affine = np.eye(size + 1)
        own = _to_world(layer)
        world = own if onto is None else _to_world(onto)
        layer.affine = world @ embedded @ np.linalg.inv(own)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the registration to a JSON file for :meth:`load`.

        Raises
        ------
        ValueError
            If the name does not end in ``.json``.
        OSError
            If it cannot be written; an older file of that name is kept.
        """
        place = Path(path)
        if place.suffix.lower() != ".json":
            raise ValueError(f"the name of a registration must end in .json; got “{place.name}”")
        values = {FORMAT_KEY: FORMAT, "version": __version__} | {
            name: np.asarray(value).tolist() for name, value in vars(self).items()
        }
        with unfinished(place) as part:
            part.write_text(json.dumps(values, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ChannelRegistration:
        """Load a registration from a file.

        Raises
        ------
        ValueError
            If it is damaged, of a newer version, or no registration.
        OSError
            If it cannot be read.
        """
        place = Path(path)
        known = (AttributeError, KeyError, RuntimeError, TypeError, ValueError)
        with named(f"“{place.name}” is no registration", UnreadableFileError, known):
            values = json.loads(place.read_text(encoding="utf-8"))
            check_format(values.pop(FORMAT_KEY, None), FORMAT, values.pop("version", None))
            arrays: dict[str, Any] = {
                name: np.asarray(value, float) if isinstance(value, list) else value
                for name, value in values.items()
            }
            found = cls(**arrays)
            found.covers(SpotFits({"y": np.zeros(1), "x": np.zeros(1)}))
            found._fit.mapped(found._fit.variances(np.zeros((1, 2))))
            return found


def _to_world(layer: Any) -> Floats:
    """Return the matrix from a layer's pixels to the world."""
    size = layer.ndim
    origin = np.array(layer.data_to_world(np.zeros(size)), float)
    ends = [np.array(layer.data_to_world(one), float) - origin for one in np.eye(size)]
    return np.vstack([np.column_stack([*ends, origin]), [*np.zeros(size), 1.0]])


def register_channels(a: SpotFits, b: SpotFits, model: Kind = "affine") -> ChannelRegistration:
    """Find the map of one channel onto another, by spots that are visible in both.

    No start values are needed: distances between spots vote for a shift, also if a channel is
    rotated by up to 10°, magnified by up to 10 % or mirrored; then mutual nearest neighbours are
    fitted, weighted by standard errors, within a shrinking distance and from the centre of the
    field outwards. Spots in only one channel do no harm, unless they dominate.

    Parameters
    ----------
    a, b : SpotFits
        Good fits of the same field in two channels, such as of multicolour beads, of images with
        the same leading axes. Spots of the same frame are matched, and b is mapped onto a.
    model : {"affine", "translation", "polynomial"}
        Polynomials are of second degree, and need about 30 pairs or more.

    Returns
    -------
    ChannelRegistration
        The map, with its error in pixels.

    Warns
    -----
    UserWarning
        If the pairs are more than twice as far apart as expected from their standard errors.

    Raises
    ------
    ValueError
        If there are too few spots, no more match than by chance, several ways to match are equally
        good, or the pairs lie at one position or on one line.

    Examples
    --------
    >>> import numpy as np
    >>> from napari_spotfit import SpotFits, register_channels
    >>> y, x = np.random.default_rng(1).uniform(0, 200, (2, 40))
    >>> errors = {"y_stderr": np.full(40, 0.01), "x_stderr": np.full(40, 0.01)}
    >>> a = SpotFits({"y": y, "x": x} | errors)
    >>> b = SpotFits({"y": y - 5.0, "x": 0.99 * x + 3.0} | errors)
    >>> registration = register_channels(a, b)
    >>> registration.pairs, round(float(registration.apply(b).y[0] - y[0]), 6)
    (40, 0.0)
    """
    one_of("model", model, _KINDS)
    degree = _KINDS.index(model)
    channels = [fits[measured_once(fits)] for fits in map(of_one_channel, (a, b))]
    spots = [
        _spots(fits, frame) for fits, frame in zip(channels, common_frames(*channels), strict=True)
    ]
    least = (degree + 1) * (degree + 2) // 2 + 3
    for name, one in zip("ab", spots, strict=True):
        if len(one.places) < least:
            raise ValueError(
                f"channel {name} has {len(one.places)} spots with a position, and {model!r} needs "
                f"at least {least}, seen in both channels"
            )
        if not (np.ptp(one.places, axis=0) > 0).any():
            raise ValueError(f"all spots of channel {name} are at one place: no map follows")
    one, other = spots
    found = find_matches(one, other, degree, rotated=degree > 0)
    return _registration(model, found, one, other)


def _spots(fits: SpotFits, frame: np.ndarray[Any, np.dtype[np.int64]]) -> Spots:
    """Return the positions of fits; without standard errors, all get the same."""
    places = np.column_stack([fits.y, fits.x])
    names = [axis + STDERR for axis in IN_PLANE]
    variances = np.full(places.shape, math.nan)
    if all(name in fits for name in names):
        variances = np.column_stack([fits.columns[name] for name in names]).astype(float) ** 2
    known = np.isfinite(places).all(axis=1)
    measured = np.isfinite(variances).all(axis=1) & (variances > 0).all(axis=1)
    if (measured & known).any():
        known &= measured
    else:
        variances = np.ones(places.shape)
    return Spots(places[known], variances[known], frame[known])


def _registration(model: Kind, found: Matches, a: Spots, b: Spots) -> ChannelRegistration:
    """Return the registration of matches, or raise an error if they do not determine it."""
    from scipy.spatial import ConvexHull

    one, other, fit = a.part(found.a), b.part(found.b), found.fit
    variances = fit.of_both(one, other)
    away = one.places - fit.mapped(other.places)
    leverage = fit.variances(other.places) / variances
    error = float(np.sqrt(((away / np.maximum(1 - leverage, 1e-9)) ** 2).sum(axis=1).mean()))
    spread = np.sqrt(np.linalg.eigvalsh(np.cov(other.places.T)))
    noise = math.sqrt(found.dispersion * float(variances.mean()))
    if not spread[0] > max(_LEAST_SPREAD * noise, _LEAST_SHARE * spread[1]):
        raise ValueError(
            f"the {len(found.a)} pairs lie at one place or on one line, which determine no map of "
            "the field: register by spots in all parts of it"
        )
    if leverage.max() > _MOST_LEVERAGE:
        y, x = other.places[int(np.argmax(leverage.max(axis=1)))]
        raise ValueError(
            f"the pair at y {y:.1f}, x {x:.1f} of channel b decides a part of the map alone, "
            "and no other pair can check it: register by more spots around it, or by a simpler "
            "model"
        )
    if _has_errors(a) and found.dispersion > _ODD**2:
        warn_caller(
            f"the spots miss each other by {math.sqrt(found.dispersion):.1f} times their standard "
            f"errors: {_ADVICE[model]}. The error of {error:.2g} px includes this"
        )
    hull = other.places[ConvexHull(other.places).vertices]
    # Scatter beyond the standard errors increases the map's errors; less scatter does not reduce
    # them.
    covariance = max(found.dispersion, 1.0 if _has_errors(a) else 0.0) * fit.inverse
    return ChannelRegistration(
        model, error, len(found.a), hull, fit.coefficients, covariance, fit.model.center,
        fit.model.scale,
    )  # fmt: skip


def _has_errors(spots: Spots) -> bool:
    return bool((spots.variances != 1.0).any())
