"""Spots and maps for every model and estimator, to compare kernels."""

from __future__ import annotations

import numpy as np
import reference

from napari_spotfit import Settings
from napari_spotfit.images.pixel_calibration import Planes
from napari_spotfit.models.estimators import ESTIMATORS
from napari_spotfit.models.profiles import Profile

SUPER = Profile.from_expression(
    "exp(-((x - x0)**2 + (y - y0)**2)**2 / (2 * w**4))", start={"w": "sigma"}
)
MODELS = {
    "gaussian": {},
    "integrated": {"pixel": "integrated"},
    "elliptical": {"model": "gaussian_elliptical"},
    "elliptical integrated": {"model": "gaussian_elliptical", "pixel": "integrated"},
    "rotated": {"model": "gaussian_rotated"},
    "lorentzian": {"model": "lorentzian"},
    "custom": {"model": SUPER},
}
KINDS = (*ESTIMATORS, "mle with variance")


def settings_of(model, estimator="lse", **options):
    """Return settings with a known gain, which maximum likelihood needs."""
    return Settings(**(MODELS[model] | {"estimator": estimator[:4].strip(), "gain": 1.0} | options))


def planes_for(estimator, shape, n=1, seed=0):
    """Return weights or variances for an estimator, with two bad pixels each; None for some."""
    if estimator in ("lse", "mle"):
        return None
    rng = np.random.default_rng(seed)
    values = rng.uniform(0.3, 3, (n, *shape)).astype(np.float32)
    values[:, 0, 0] = values[:, -1, 1] = 0 if estimator == "wlse" else np.nan
    return Planes(values)


def spots_of(settings, n=60, shape=(9, 9), photons=2000, background=5, seed=1):
    """Return noisy spots of a model, and their true parameters."""
    rng = np.random.default_rng(seed)
    names = reference.names(reference.Kind(settings.profile))
    truth = np.empty((n, len(names)))
    spots = np.empty((n, *shape), np.float32)
    for spot, values in zip(spots, truth, strict=True):
        values[:2] = (np.array(shape) - 1) / 2 + rng.uniform(-0.5, 0.5, 2)
        values[2:-2] = rng.uniform(1.1, 1.8, len(names) - 4)
        if "angle" in names:
            values[names.index("angle")] = rng.uniform(-45, 45)
        values[-2:] = photons / (2 * np.pi * 1.4**2), background
        kind = reference.Kind(settings.profile, settings.pixel)
        spot[:] = rng.poisson(reference.image(kind, values, shape))
    return spots, truth
