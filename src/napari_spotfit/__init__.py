"""Fit thousands to billions of spots, in napari or without.

>>> import napari_spotfit
>>> movie, truth = napari_spotfit.simulate_movie(2, shape=(64, 64), seed=0)
>>> fits = napari_spotfit.localize(movie)
"""

from .backends.errors import BackendFallbackWarning, BackendUnavailableError
from .camera import Camera
from .cutouts import fit_spots
from .localize import detect_spots, fit_at, localize
from .models import Profile
from .precision import localization_precision
from .results import SpotFits
from .settings import Settings
from .simulate import simulate_movie, simulate_spots
from .stopping import StopCondition
from .survey import estimate_sigma
from .version import __version__
from .widgets.layers.points import to_points_layer

__all__ = [
    "BackendFallbackWarning",
    "BackendUnavailableError",
    "Camera",
    "Profile",
    "Settings",
    "SpotFits",
    "StopCondition",
    "__version__",
    "detect_spots",
    "estimate_sigma",
    "fit_at",
    "fit_spots",
    "localization_precision",
    "localize",
    "simulate_movie",
    "simulate_spots",
    "to_points_layer",
]
