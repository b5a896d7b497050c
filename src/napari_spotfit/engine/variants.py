"""Which of its ways a fit takes: what the code differs by, rather than the numbers."""

from __future__ import annotations

from ..images.pixel_calibration import Planes
from ..settings.settings import Settings


def is_plain(settings: Settings, planes: Planes | None) -> bool:
    """Whether the fits are those of the fast path: separable, every pixel counting alike."""
    return settings.profile.separable and settings.estimator != "mle" and planes is None
