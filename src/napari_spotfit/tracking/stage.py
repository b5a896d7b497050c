"""Stages, and the calibration of the image's movement with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..models.number_checks import number, whole
from .displacement import Displacement
from .tracker import Tracker

Floats = NDArray[np.float64]

#: Moves must exceed their standard errors by this factor; and nm in a µm, by which those along z
#: are compared with the stage's.
_LEAST_ERRORS, _LEAST_NM_PER_UM = 5.0, 1000.0
#: Sides of pixels in the sample that are plausible, in µm.
_SMALLEST_PIXEL, _LARGEST_PIXEL = 0.001, 50.0


class Stage(Protocol):
    """A device that moves the sample by micrometres."""

    def move_by(self, dy: float, dx: float, dz: float) -> object:
        """Move along the stage's own axes, in micrometres."""


@dataclass(frozen=True)
class StageCalibration:
    """The movement of the image per micrometre of a stage.

    Threads: any number may share it, as it is immutable.

    Attributes
    ----------
    matrix : ndarray of float64, shape (2, 2) or (3, 3)
        Pixels along y and x (rows) per micrometre of the stage along y and x (columns). The third
        row is z in nm, the third column the stage's z; without them z is not moved.
    errors : ndarray of float64, as the matrix
        Its standard errors; NaN if it was not measured.

    Raises
    ------
    ValueError
        If the matrix cannot be inverted: the stage's axes move the image along one line, or none
        of them moves z.

    Examples
    --------
    >>> from napari_spotfit import Displacement, StageCalibration
    >>> calibration = StageCalibration.of_pixel_size(0.1)
    >>> calibration.to_stage(Displacement(0, y=5.0, x=-10.0))
    (0.5, -1.0, 0.0)
    """

    matrix: Floats
    errors: Floats

    def __post_init__(self) -> None:
        matrix = np.asarray(self.matrix, float)
        if matrix.shape not in ((2, 2), (3, 3)) or not np.isfinite(matrix).all():
            raise ValueError(
                f"a calibration is a matrix of 2×2 numbers, with z of 3×3; got {self.matrix!r}"
            )
        plane = matrix[:2, :2]
        size = np.linalg.norm(plane, axis=0)
        area = abs(np.linalg.det(plane))
        if area <= 0.05 * size[0] * size[1]:
            raise ValueError(
                "both axes of the stage move the image along nearly the same line, so that the "
                f"move for a shift of the image is undefined: {plane.tolist()} px/µm"
            )
        if len(matrix) > 2 and abs(np.linalg.det(matrix)) <= 0.05 * area * _LEAST_NM_PER_UM:
            raise ValueError(
                f"z of the stage does not change z of the image: {matrix.tolist()} px and nm per "
                "µm. Leave out the third row and column, or calibrate with a stage that focuses"
            )
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "errors", np.asarray(self.errors, float))

    @classmethod
    def of_pixel_size(cls, pixel_size: float, z_gain: float | None = None) -> StageCalibration:
        """Return the calibration of a stage with the axes of the image.

        Parameters
        ----------
        pixel_size : float
            Side of a pixel in the sample, in micrometres.
        z_gain : float, optional
            Nanometres of z per nanometre of the stage, below 0 if z falls as the stage rises; by
            default z is not moved.
        """
        size = number("pixel_size", pixel_size, 0, above=True)
        if not _SMALLEST_PIXEL <= size <= _LARGEST_PIXEL:
            raise ValueError(
                f"pixel_size must be from {_SMALLEST_PIXEL:g} to {_LARGEST_PIXEL:g} µm; got "
                f"{pixel_size!r}: it is in µm, 100 nm is 0.1"
            )
        diagonal = [1 / size, 1 / size]
        matrix = np.diag(diagonal if z_gain is None else [*diagonal, 1000.0 * z_gain])
        return cls(matrix, np.full(matrix.shape, math.nan))

    @property
    def has_z(self) -> bool:
        """Whether z is moved, too."""
        return len(self.matrix) > 2

    def to_stage(self, displacement: Displacement) -> tuple[float, float, float]:
        """Convert a displacement to micrometres along y, x and z of the stage, 0 if unknown."""
        if self.has_z and math.isfinite(displacement.z):
            y, x, z = np.linalg.solve(
                self.matrix, (displacement.y, displacement.x, displacement.z)
            ).tolist()
            return y, x, z
        y, x = np.linalg.solve(self.matrix[:2, :2], (displacement.y, displacement.x)).tolist()
        return y, x, 0.0


def calibrate_stage(
    stage: Stage,
    grab: Callable[[], Any],
    tracker: Tracker,
    *,
    step: float = 0.2,
    repeats: int = 3,
    z: bool = True,
) -> StageCalibration:
    """Calibrate a stage, by moving it back and forth and measuring the image's displacement.

    Parameters
    ----------
    stage : Stage
        An object with ``move_by(dy, dx, dz)``, in micrometres; it returns to its start.
    grab : callable
        Returns a frame taken after the stage has come to rest.
    tracker : Tracker
        Follows fiducials in these frames.
    step : float
        Size of a move in micrometres; fiducials are found again after about a pixel, or after a
        common jump of all.
    repeats : int
        Number of moves back and forth along each axis.
    z : bool
        Whether to move z, too, if the tracker measures it. The sample should be near the middle of
        the range of its calibration.

    Returns
    -------
    StageCalibration
        The matrix by least squares, with its standard errors.

    Raises
    ------
    RuntimeError
        If a frame yields no displacement, or moves vanish in the noise.

    Examples
    --------
    >>> from napari_spotfit import SimulatedMicroscope, Tracker, calibrate_stage
    >>> scope = SimulatedMicroscope(seed=1)
    >>> with Tracker(scope.fiducials, sigma=1.3) as tracker:
    ...     calibration = calibrate_stage(scope.stage, scope.grab_at_rest, tracker)
    >>> bool(abs(calibration.matrix - scope.matrix).max() < 0.2)
    True
    """
    return calibrate_with(stage, lambda: _measured(tracker, grab, z), step, repeats)


def calibrate_with(
    stage: Stage, measure: Callable[[], Floats], step: float, repeats: int
) -> StageCalibration:
    """Calibrate a stage; `measure` returns y and x of the resting image in px, maybe z in nm."""
    step, repeats = number("step", step, 0, above=True), whole("repeats", repeats, 1)
    away = np.zeros(3)
    columns: list[Floats] = []
    errors: list[Floats] = []
    try:
        for axis in range(3):
            if columns and axis == len(columns[0]):
                break
            moves = _moves(stage, measure, axis, step, repeats, away)
            columns.append(np.mean(moves, axis=0))
            errors.append(np.std(moves, axis=0, ddof=1) / math.sqrt(len(moves)))
            own, unit = (slice(2), "px") if axis < 2 else (slice(2, 3), "nm")
            moved, error = (float(np.linalg.norm(one[-1][own])) for one in (columns, errors))
            if moved < _LEAST_ERRORS * error:
                raise RuntimeError(
                    f"a move of {step:g} µm along {'yxz'[axis]} moves the image by "
                    f"{step * moved:.3f} {unit}, no more than noise does: check that the stage "
                    "moves, or make larger steps"
                )
    finally:
        if away.any():  # after an error, move back
            stage.move_by(*(-away).tolist())
    return StageCalibration(np.column_stack(columns), np.column_stack(errors))


def _moves(
    stage: Stage, measure: Callable[[], Floats], axis: int, step: float, repeats: int, away: Floats
) -> list[Floats]:
    """Return the image's shift per micrometre of each move; `away` tracks the stage's position."""
    move, moves = np.zeros(3), []
    for _ in range(repeats):
        before = measure()
        for sign in (1.0, -1.0):
            move[axis] = sign * step
            stage.move_by(*move.tolist())
            away += move
            after = measure()
            moves.append(sign * (after - before) / step)
            before = after
    return moves


def _measured(tracker: Tracker, grab: Callable[[], Any], with_z: bool) -> Floats:
    found = tracker.update(grab())
    with_z &= tracker.measures_z
    problem = found.problem or ("z is not known" if with_z and math.isnan(found.z) else "")
    if problem:
        raise RuntimeError(f"the stage cannot be calibrated: {problem}")
    return np.array([found.y, found.x, found.z][: 2 + with_z])


class CoreStage:
    """XY and Z stages of a microscope that pymmcore-plus controls.

    Threads: one at a time; the core coordinates other uses of the microscope.

    Parameters
    ----------
    core : CMMCorePlus
        The microscope.
    xy, z : str or bool, default True
        Names of devices; True for the current ones, False for none.

    Raises
    ------
    ValueError
        If a requested device is missing.

    Examples
    --------
    >>> from napari_spotfit import CoreStage
    >>> class Core:  # pymmcore-plus' CMMCorePlus.instance() in earnest
    ...     def getXYStageDevice(self):
    ...         return "XY"
    ...     def getFocusDevice(self):
    ...         return ""
    ...     def setRelativeXYPosition(self, name, dx, dy):
    ...         print(f"{name} moves by {dx} and {dy} µm")
    >>> CoreStage(Core()).move_by(dy=0.1, dx=-0.2, dz=0)
    XY moves by -0.2 and 0.1 µm
    """

    def __init__(self, core: Any, xy: str | bool = True, z: str | bool = False) -> None:
        self._core = core
        self._xy = _device(core.getXYStageDevice, xy, "XY stage")
        self._z = _device(core.getFocusDevice, z, "focus device")

    def move_by(self, dy: float, dx: float, dz: float) -> None:
        """Start a move, in micrometres; axes without a stage are ignored."""
        if self._xy and (dy or dx):
            self._core.setRelativeXYPosition(self._xy, dx, dy)
        if self._z and dz:
            self._core.setRelativePosition(self._z, dz)


def _device(current: Callable[[], str], wanted: str | bool, what: str) -> str:
    if wanted is False:
        return ""
    name = current() if wanted is True else str(wanted)
    if not name:
        raise ValueError(f"the microscope has no {what}: load its configuration first")
    return name
