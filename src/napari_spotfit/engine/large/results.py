"""The columns of a fit in a large ROI, in counts and pixels, with their errors."""

from __future__ import annotations

import math

import numpy as np

from ...models.profiles import GAUSSIAN_ROTATED, LORENTZIAN
from ...results.columns import errors_of
from ...settings.settings import Settings
from ..limits import kernel_order
from .errors import covariance
from .image import Array, Image
from .points import Box, ends_of
from .search import Found, Point, Rules

#: Where the turned Gaussian has its σx, σy and angle, in the order of the kernels.
SIGMA_X, SIGMA_Y, ANGLE = 2, 3, 4


class LargeResults:
    """What the results of a fit are made from."""

    def __init__(
        self, image: Image, settings: Settings, freedom: int, level: float, scale: float,
        rules: Rules, box: Box,
    ) -> None:  # fmt: skip
        self._image, self._settings, self._profile = image, settings, settings.profile
        self._freedom = freedom
        self._level, self._scale = level, scale
        self._held = np.append(rules.held, (False, False))
        self._low, self._high = ends_of(rules, box)
        self._likelihood = settings.estimator == "mle"
        self._gain = settings.gain or 1.0

    def columns(self, found: Found) -> dict[str, float]:
        """Return the results by their columns; nothing if there is no point."""
        point = found.point
        if point is None:
            return {"iterations": found.iterations}
        shape, amplitude = point.parameters[: len(self._profile.shape)], point.amplitude
        integral, slopes = self._integral(shape)
        chi = point.chi if self._likelihood else point.chi / self._scale**2
        background = point.background / self._scale + self._level - self._settings.offset
        values = {
            "amplitude": amplitude / self._scale, "background": background,
            "photons": amplitude / self._scale * integral / self._gain,
            "chi_square": chi, "reduced_chi_square": chi / self._freedom,
            "iterations": found.iterations, "stop_condition": found.stop,
        }  # fmt: skip
        order = list(range(len(shape)))
        turn = self._quarter_turns(shape)
        if turn % 2:
            order[SIGMA_X], order[SIGMA_Y] = SIGMA_Y, SIGMA_X
        names = kernel_order(self._profile)
        values |= {name: float(shape[i]) for name, i in zip(names, order, strict=True)}
        if self._profile == GAUSSIAN_ROTATED:
            values["angle"] = math.degrees(shape[ANGLE] - turn * math.pi / 2)
        if self._settings.errors:
            photons = np.append(amplitude * slopes, (integral, 0.0)) / self._scale / self._gain
            errors = self._errors(point, shape, photons)
            places = [*order, len(shape), len(shape) + 1, len(shape) + 2]
            values |= dict(zip(errors_of(self._profile), errors[places], strict=True))
        return self._within_bounds(values)

    def _within_bounds(self, values: dict[str, float]) -> dict[str, float]:
        """Keep amplitudes within their bounds, over which a change of units may carry them."""
        for name in ("amplitude", "background"):
            for end, nearest in (("min", max), ("max", min)):
                bound = getattr(self._settings, f"{name}_{end}")
                if bound is not None:
                    values[name] = nearest(values[name], bound)
        return values

    def _quarter_turns(self, shape: Array) -> int:
        """Return by how many right angles to turn, so that σx belongs to the axis next to x.

        Where the caller has held or bounded a width, it stays with its axis, and the angle is
        within ±90°; where the angle, that stays as it is.
        """
        own = {*self._settings.fixed, *self._settings.bounds}
        if self._profile != GAUSSIAN_ROTATED or "angle" in own:
            return 0
        step = 2 if own & {"sigma_x", "sigma_y"} else 1
        return step * math.ceil(float(shape[ANGLE]) / (step * math.pi / 2) - 0.5)

    def _integral(self, shape: Array) -> tuple[float, Array]:
        """Return the integral of f, and its derivatives by the shape."""
        slopes = np.zeros(len(shape))
        if self._profile.expression is not None:
            matrix = self._image.least_squares(shape, 0.0, 0.0, weighted=False).matrix
            return float(matrix[-2, -1]), matrix[:-2, -1]
        factor = math.pi**2 if self._profile == LORENTZIAN else 2 * math.pi
        first, last = SIGMA_X, min(SIGMA_Y, len(shape) - 1)
        slopes[first] += factor * shape[last]
        slopes[last] += factor * shape[first]
        return float(factor * shape[first] * shape[last]), slopes

    def _errors(self, point: Point, shape: Array, photons: Array) -> Array:
        """Return the errors of the shape, amplitude, background and photons."""
        amplitude, background = point.amplitude, point.background
        unit = np.append(np.full(len(shape), amplitude), (1.0, 1.0))
        units = np.outer(unit, unit)
        noise: Array | float = 1.0
        if self._likelihood:
            matrix = self._image.likelihood(shape, amplitude, background).matrix
        else:
            matrix = self._image.least_squares(shape, amplitude, background).matrix
            noise = point.chi / self._freedom
            if self._settings.gain is not None:
                above = background + (self._level - self._settings.offset) * self._scale
                shot = self._gain * self._scale
                noise = self._image.noise(shape, amplitude, above, shot) * units
        angle = ANGLE if self._profile == GAUSSIAN_ROTATED else None
        at = np.array([*shape, amplitude, background])
        # What is at a bound does not follow the data, whose errors are those of the others.
        stuck = ((at <= self._low) | (at >= self._high)) & ~self._held
        matrix = covariance(matrix * units, noise, ~(self._held | stuck), angle)
        # The integral does not depend on the angle, whose variance may not be known.
        tells = photons != 0
        variance = photons[tells] @ matrix[np.ix_(tells, tells)] @ photons[tells]
        variances = np.append(np.diag(matrix), variance)
        with np.errstate(invalid="ignore"):
            errors: Array = np.sqrt(variances)
        errors[:-1][stuck] = math.nan
        errors[len(shape) : len(shape) + 2] /= self._scale
        if angle is not None:
            errors[angle] = math.degrees(errors[angle])
        return errors
