"""Fit thousands to billions of spots, in napari or without.

>>> import napari_spotfit
>>> movie, truth = napari_spotfit.simulate_movie(2, shape=(64, 64), seed=0)
>>> fits = napari_spotfit.localize(movie)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .analysis.drift import Drift, fiducial_drift, load_drift, save_drift, subtract_drift
    from .analysis.labels import label_spots, per_label
    from .analysis.summary import per_frame, summarize
    from .analysis.tracks import link_spots
    from .batch.localize_files import localize_files
    from .engine.errors import BackendFallbackWarning, BackendUnavailableError
    from .engine.quality.flags import Flag
    from .estimation.image_noise import noise_model
    from .estimation.psf_width import estimate_sigma
    from .files.formats import FormatWarning
    from .files.settings_file import load_settings, save_settings
    from .images.camera import Camera
    from .images.files.opening import open_image
    from .localization.detect_spots import detect_spots
    from .localization.fit_at import fit_at
    from .localization.fit_spots import fit_spots
    from .localization.fitter import Fitter
    from .localization.localize import localize, localize_iter
    from .localization.to_folder import load_parts, localize_to_folder
    from .models.profiles import Profile
    from .models.stopping import StopCondition
    from .precision import localization_precision
    from .results.load import load_fits
    from .results.saving import save_fits
    from .results.spot_fits import SpotFits
    from .settings.noise_model import NoiseModel
    from .settings.settings import Settings
    from .simulate import simulate_movie, simulate_spots
    from .tracking.controller import Controller, Correction
    from .tracking.displacement import Displacement, Health, allan_deviation, power_spectrum
    from .tracking.log import TrackingLog, read_log
    from .tracking.microscope import SimulatedCamera, SimulatedMicroscope
    from .tracking.session import FrameQueue, Snapshot, TrackingSession
    from .tracking.stage import CoreStage, StageCalibration, calibrate_stage
    from .tracking.tracker import Tracker, track, track_async
    from .widgets.fit_layer import fit_layer
    from .widgets.to_layer import to_points_layer

__all__ = [
    "BackendFallbackWarning",
    "BackendUnavailableError",
    "Camera",
    "Controller",
    "CoreStage",
    "Correction",
    "Displacement",
    "Drift",
    "Fitter",
    "Flag",
    "FormatWarning",
    "FrameQueue",
    "Health",
    "NoiseModel",
    "Profile",
    "Settings",
    "SimulatedCamera",
    "SimulatedMicroscope",
    "Snapshot",
    "SpotFits",
    "StageCalibration",
    "StopCondition",
    "Tracker",
    "TrackingLog",
    "TrackingSession",
    "__version__",
    "allan_deviation",
    "calibrate_stage",
    "detect_spots",
    "estimate_sigma",
    "fiducial_drift",
    "fit_at",
    "fit_layer",
    "fit_spots",
    "label_spots",
    "link_spots",
    "load_drift",
    "load_fits",
    "load_parts",
    "load_settings",
    "localization_precision",
    "localize",
    "localize_files",
    "localize_iter",
    "localize_to_folder",
    "noise_model",
    "open_image",
    "per_frame",
    "per_label",
    "power_spectrum",
    "read_log",
    "save_drift",
    "save_fits",
    "save_settings",
    "simulate_movie",
    "simulate_spots",
    "subtract_drift",
    "summarize",
    "to_points_layer",
    "track",
    "track_async",
]

#: Where the public names live; each is loaded when it is first used.
_MODULES = {
    "BackendFallbackWarning": "engine.errors",
    "BackendUnavailableError": "engine.errors",
    "Camera": "images.camera",
    "Controller": "tracking.controller",
    "CoreStage": "tracking.stage",
    "Correction": "tracking.controller",
    "Displacement": "tracking.displacement",
    "Drift": "analysis.drift",
    "Fitter": "localization.fitter",
    "Flag": "engine.quality.flags",
    "FormatWarning": "files.formats",
    "FrameQueue": "tracking.session",
    "Health": "tracking.displacement",
    "NoiseModel": "settings.noise_model",
    "Profile": "models.profiles",
    "Settings": "settings.settings",
    "SimulatedCamera": "tracking.microscope",
    "SimulatedMicroscope": "tracking.microscope",
    "Snapshot": "tracking.session",
    "SpotFits": "results.spot_fits",
    "StageCalibration": "tracking.stage",
    "StopCondition": "models.stopping",
    "Tracker": "tracking.tracker",
    "TrackingLog": "tracking.log",
    "TrackingSession": "tracking.session",
    "allan_deviation": "tracking.displacement",
    "calibrate_stage": "tracking.stage",
    "detect_spots": "localization.detect_spots",
    "estimate_sigma": "estimation.psf_width",
    "fiducial_drift": "analysis.drift",
    "fit_at": "localization.fit_at",
    "fit_layer": "widgets.fit_layer",
    "fit_spots": "localization.fit_spots",
    "label_spots": "analysis.labels",
    "link_spots": "analysis.tracks",
    "load_drift": "analysis.drift",
    "load_fits": "results.load",
    "load_parts": "localization.to_folder",
    "load_settings": "files.settings_file",
    "localization_precision": "precision",
    "localize": "localization.localize",
    "localize_files": "batch.localize_files",
    "localize_iter": "localization.localize",
    "localize_to_folder": "localization.to_folder",
    "noise_model": "estimation.image_noise",
    "open_image": "images.files.opening",
    "per_frame": "analysis.summary",
    "per_label": "analysis.labels",
    "power_spectrum": "tracking.displacement",
    "read_log": "tracking.log",
    "save_drift": "analysis.drift",
    "save_fits": "results.saving",
    "save_settings": "files.settings_file",
    "simulate_movie": "simulate",
    "simulate_spots": "simulate",
    "subtract_drift": "analysis.drift",
    "summarize": "analysis.summary",
    "to_points_layer": "widgets.to_layer",
    "track": "tracking.tracker",
    "track_async": "tracking.tracker",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value  # next time it is found without asking here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
