"""Standard errors of fits in large ROIs.

With J the Jacobian in (shape, α, β) and A = JᵀWJ: for least squares the covariance is
A⁻¹ (JᵀW diag(var) W J) A⁻¹ with the shot noise where the camera's gain is known, else s² A⁻¹;
for maximum likelihood A⁻¹, with A the Fisher information.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...models.stopping import SINGULAR
from .image import Array


def covariance(
    information: Array, noise: Array | float, fitted: NDArray[np.bool_], angle: int | None
) -> Array:
    """Return the covariances of all parameters.

    Parameters
    ----------
    information : ndarray, shape (m, m)
        A.
    noise : ndarray, shape (m, m), or float
        JᵀW diag(var) W J, or a factor for A⁻¹.
    fitted : ndarray of bool, shape (m,)
        Parameters that follow the data; the others count as known.
    angle : int or None
        A parameter that may be undetermined by itself: of a circle.

    Returns
    -------
    ndarray, shape (m, m)
        NaN where the matrix is singular; only for the angle where it is singular with
        the angle alone.
    """
    result = np.zeros_like(information)
    tries = [fitted]
    if angle is not None and fitted[angle]:
        tries.append(fitted & (np.arange(len(fitted)) != angle))
    for rows in tries:
        block = np.ix_(rows, rows)
        inverse = _inverse(information[block])
        if inverse is None:
            continue
        result[block] = (
            inverse @ noise[block] @ inverse if isinstance(noise, np.ndarray) else noise * inverse
        )
        left_out = fitted & ~rows
        result[left_out] = result[:, left_out] = np.nan
        return result
    result[np.ix_(fitted, fitted)] = np.nan
    return result


def _inverse(matrix: Array) -> Array | None:
    """Invert a positive definite matrix, scaled to a unit diagonal; None if it is singular."""
    diagonal = np.diag(matrix)
    if not (diagonal > 0).all():
        return None
    unit = 1 / np.sqrt(diagonal)
    values, vectors = np.linalg.eigh(matrix * np.outer(unit, unit))
    if not values[0] > SINGULAR:
        return None
    inverse: Array = (vectors / values) @ vectors.T * np.outer(unit, unit)
    return inverse
