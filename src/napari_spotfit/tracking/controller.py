"""Close the loop: move a stage against the displacement, or hold it and say why."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Literal

from ..models.number_checks import number, one_of
from .displacement import Displacement
from .stage import Stage, StageCalibration

#: y, x and z in micrometres.
Vector = tuple[float, float, float]

#: Number of displacements after a jump until the new position is accepted.
_JUMP_FRAMES = 3


@dataclass(frozen=True, slots=True)
class Correction:
    """The correction of a displacement.

    Threads: any number may share it, as it is immutable.

    Attributes
    ----------
    dy, dx, dz : float
        The move sent to the stage, in micrometres; 0 if it was held.
    state : {"moved", "in the dead band", "held", "not armed"}
        What was done.
    why : str
        Why the stage was held, or which limit was reached; empty otherwise.

    Examples
    --------
    >>> from napari_spotfit import Correction
    >>> Correction(state="held", why="the image jumped").why
    'the image jumped'
    """

    dy: float = 0.0
    dx: float = 0.0
    dz: float = 0.0
    state: Literal["moved", "in the dead band", "held", "not armed"] = "not armed"
    why: str = ""


class Controller:
    """Moves a stage against displacements by proportional-integral control, within limits.

    Nothing moves before :meth:`arm`. The stage is held while displacements are unreliable, along z
    only while z is, and the correction says why.

    Threads: one calls :meth:`step` and :meth:`watch`; any may :meth:`arm` and :meth:`disarm`, from
    the next step on.

    Parameters
    ----------
    stage : Stage
        An object with ``move_by(dy, dx, dz)``, in micrometres.
    calibration : StageCalibration
        The matrix that relates moves of stage and image.
    proportional, integral : float
        Gains: fractions of the displacement, and of its integral over time (per second), by which
        the stage is moved. As moves add up, the proportional part alone leaves a constant error
        under steady drift, which the integral part removes.
    dead_band : float
        Displacement in micrometres below which the stage does not move.
    most_step, most_way : float
        Largest single move, and largest distance from where it was armed, in micrometres.
    jump : float
        Change of the displacement in micrometres above which the stage is held, for three frames.
    least_used : int
        Least number of fiducials.
    timeout : float
        Seconds without a displacement after which the integral is reset, and :meth:`watch` reports
        that there is none.
    on_error : {"hold", "stop"}
        Whether to go on after an error of the stage, or to disarm.

    Raises
    ------
    ValueError
        If a number is out of range.

    Examples
    --------
    >>> from napari_spotfit import Controller, Displacement, StageCalibration
    >>> class Printed:
    ...     def move_by(self, dy, dx, dz):
    ...         print(f"moved by {dy:.3f}, {dx:.3f} µm")
    >>> controller = Controller(Printed(), StageCalibration.of_pixel_size(0.1), integral=0)
    >>> controller.step(Displacement(0, time=0.0, y=0.2, x=0.0, used=5)).state
    'not armed'
    >>> controller.arm()
    >>> controller.step(Displacement(1, time=0.1, y=0.2, x=0.0, used=5)).state
    moved by -0.008, 0.000 µm
    'moved'
    """

    def __init__(
        self,
        stage: Stage,
        calibration: StageCalibration,
        *,
        proportional: float = 0.4,
        integral: float = 0.1,
        dead_band: float = 0.0,
        most_step: float = 0.5,
        most_way: float = 20.0,
        jump: float = 0.2,
        least_used: int = 1,
        timeout: float = 1.0,
        on_error: Literal["hold", "stop"] = "hold",
    ) -> None:
        limits = {
            "proportional": proportional, "integral": integral, "dead_band": dead_band,
            "most_step": most_step, "most_way": most_way, "jump": jump, "timeout": timeout,
        }  # fmt: skip
        for name, value in limits.items():
            number(name, value, 0)
        if proportional >= 2:
            raise ValueError(f"a proportional share of 2 or more never settles; got {proportional}")
        one_of("on_error", on_error, ("hold", "stop"))
        self._stage, self._calibration = stage, calibration
        self._proportional, self._integral = proportional, integral
        self._dead_band, self._most_step, self._most_way = dead_band, most_step, most_way
        self._jump, self._least_used = jump, least_used
        self._timeout, self._on_error = timeout, on_error
        self._armed = False
        self._sum: Vector = (0.0, 0.0, 0.0)
        self._way: Vector = (0.0, 0.0, 0.0)
        self._last: float | None = None
        self._before: Vector | None = None
        self._odd = 0

    @property
    def armed(self) -> bool:
        """Whether the stage may move."""
        return self._armed

    def arm(self) -> None:
        """Let the stage move from the next displacement on."""
        self._forget()
        self._armed = True

    def disarm(self) -> None:
        """Hold the stage from now on."""
        self._armed = False

    def step(self, displacement: Displacement, now: float | None = None) -> Correction:
        """Move the stage against a displacement, or hold it.

        Parameters
        ----------
        displacement : Displacement
            The displacement, from a :class:`~napari_spotfit.Tracker`.
        now : float, optional
            Time in seconds; by default that of the displacement, or else the clock's.

        Returns
        -------
        Correction
            What was done, and why.
        """
        if now is None:
            now = displacement.time if displacement.time is not None else time.monotonic()
        if not self._armed:
            return Correction()
        why = self._why_held(displacement, now)
        if why:
            return Correction(state="held", why=why)
        off = self._calibration.to_stage(displacement)
        no_z = self._why_no_z(displacement)
        if no_z:
            off = *off[:2], 0.0
        passed = 0.0 if self._last is None else max(now - self._last, 0.0)
        if passed > self._timeout:
            self._sum, passed = (0.0, 0.0, 0.0), 0.0
        self._last = now
        if math.hypot(*off) < self._dead_band:
            return Correction(state="in the dead band")
        total = _added(self._sum, off, passed)
        y, x, z = (
            -self._proportional * one - self._integral * s
            for one, s in zip(off, total, strict=True)
        )
        move, why = self._limited((y, x, 0.0 if no_z else z))
        if not why:  # no integral while the stage is held
            self._sum = total
        return self._moved(move, why or no_z)

    def watch(self, now: float | None = None) -> Correction:
        """Report whether displacements have stopped; without them the stage never moves."""
        if now is None:
            now = time.monotonic()
        if not self._armed:
            return Correction()
        if self._last is not None and now - self._last > self._timeout:
            return Correction(state="held", why=f"no displacement for {now - self._last:.1f} s")
        return Correction(state="in the dead band")

    def _forget(self) -> None:
        self._sum = self._way = (0.0, 0.0, 0.0)
        self._last = self._before = None
        self._odd = 0

    def _why_held(self, displacement: Displacement, now: float) -> str:
        if displacement.problem:
            return displacement.problem
        if displacement.used < self._least_used:
            return f"{displacement.used} fiducials take part, {self._least_used} must"
        if not (math.isfinite(displacement.y) and math.isfinite(displacement.x)):
            return "the displacement is not known"
        if self._last is not None and now < self._last:
            return f"the displacement comes too late: {now:g} s after one of {self._last:g} s"
        place, before = self._calibration.to_stage(displacement), self._before
        if before is not None and self._why_no_z(displacement):
            place = *place[:2], before[2]  # z stays where it was last
        self._before = place
        if before is not None and math.dist(place, before) > self._jump:
            self._odd = _JUMP_FRAMES
        if self._odd and before is not None:
            self._odd -= 1
            return (
                f"a jump of {1000 * math.dist(place, before):.0f} nm: waiting for the next frames"
            )
        return ""

    def _why_no_z(self, displacement: Displacement) -> str:
        """Return why z is held, while y and x are moved; empty if it is not."""
        if not self._calibration.has_z:
            return ""
        if not math.isfinite(displacement.z):
            return "z is held: it is not known"
        if displacement.z_used < self._least_used:
            return f"z is held: {displacement.z_used} fiducials take part, {self._least_used} must"
        return ""

    def _limited(self, wanted: Vector) -> tuple[Vector, str]:
        """Limit a move; return it, and which limit was reached."""
        size = math.hypot(*wanted)
        share, why = 1.0, ""
        if size > self._most_step:
            share = self._most_step / size
            why = f"no more than {self._most_step:g} µm are moved at once"
        move = _added((0.0, 0.0, 0.0), wanted, share)
        if math.hypot(*_added(self._way, move)) > self._most_way:
            return (0.0, 0.0, 0.0), (
                f"the stage would be farther than {self._most_way:g} µm from where it was armed"
            )
        return move, why

    def _moved(self, move: Vector, why: str) -> Correction:
        if not any(move):
            return Correction(state="held" if why else "in the dead band", why=why)
        try:
            self._stage.move_by(*move)
        except Exception as error:
            if self._on_error == "stop":
                self._armed = False
            after = "the loop is disarmed" if self._on_error == "stop" else "it is tried again"
            return Correction(state="held", why=f"error of the stage: {error}; {after}")
        self._way = _added(self._way, move)
        # The stage's own move is no jump.
        if self._before is not None:
            self._before = _added(self._before, move)
        return Correction(*move, state="moved", why=why)


def _added(one: Vector, other: Vector, times: float = 1.0) -> Vector:
    return one[0] + times * other[0], one[1] + times * other[1], one[2] + times * other[2]
