"""Which jobs are suited to joint fits, and the widths of the PSF that these take."""

from __future__ import annotations

from functools import lru_cache

from ..models.profiles import ALL_MODELS
from .fit_job import FitJob
from .joint_fits import joint_noise

#: The widths that are estimated where they are not given.
_ESTIMATED = ("sigma", "sigma_z")
#: The models of spots that are a product of Gaussians along the axes.
_MODELS = ("gaussian", "gaussian_elliptical", "gaussian_3d", "gaussian_3d_elliptical")


@lru_cache(maxsize=64)
def wanting(job: FitJob) -> str:
    """Return what a job wants for joint fits, "" for nothing."""
    if wrong := unsuited(job):
        return wrong
    if unknown := [name for name, width in psf_widths(job) if not width]:
        return f"the PSF's {unknown[0]}; it is unknown and not fixed"
    if joint_noise(job) is None:
        return "noise that is known; the image shows none"
    if job.settings.neighbours == "auto" and job.noise is not None and job.noise.is_filtered:
        # Noise of neighbouring pixels that is alike looks like hidden spots.
        return "an image as the camera took it"
    return ""


@lru_cache(maxsize=64)
def unsuited(job: FitJob) -> str:
    """Return what a job's settings want for joint fits of any image, "" for nothing."""
    settings = job.settings
    is_gaussian = settings.model in (*_MODELS, *(ALL_MODELS[name] for name in _MODELS))
    if not is_gaussian and settings.profile.lattice is None:
        return (
            f"one of the models {', '.join(_MODELS)}, or a measured PSF, such as calibrate_psf "
            "makes of beads and a calibration of a lens has as its psf; got "
            f"{settings.profile.name!r}"
        )
    for name, width in psf_widths(job):
        if not (width or name in _ESTIMATED):
            return f"the PSF's {name}; it is unknown and not fixed"
    widths = settings.profile.widths if is_gaussian else ()
    if settings.bounds or set(settings.fixed) - set(widths):
        return "no bounds, and no fixed parameter but widths"
    return ""


@lru_cache(maxsize=64)
def psf_widths(job: FitJob) -> list[tuple[str, float | None]]:
    """Return the name of the width along each axis, and the PSF's, None if that is unknown."""
    known = {"sigma": job.sigma, "sigma_z": job.sigma_z} | {
        name: value for name, value in job.settings.fixed.items() if value
    }
    names = [f"sigma_{axis}" for axis in job.axes]
    own = (name if name in job.model.widths else "sigma" for name in names)
    return [(name, known.get(name)) for name in own]
