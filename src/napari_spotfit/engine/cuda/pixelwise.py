"""What large ROIs on the GPU take besides their kernels."""

from __future__ import annotations

from ...models.profiles import Profile
from .layout import is_custom


def before(profile: Profile) -> str:
    """Return the C++ of somebody's own profile, nothing for ours."""
    if not is_custom(profile):
        return ""
    from ...models.expressions.code import to_cuda_for_large

    return to_cuda_for_large(profile)
