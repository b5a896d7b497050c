"""A simulated microscope: fiducials on a drifting, vibrating sample, a camera, and a stage."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ..models.astigmatism import AstigmatismCalibration
from ..models.measured_psf import MeasuredPsf
from .session import FrameQueue

Floats = NDArray[np.float64]

#: Half the side of a fiducial's image in σ; number of background images.
_REACH, _FRINGES = 5.0, 16
#: The same in pixels where a calibration gives the image, and nanometres in a micrometre.
_MODEL_REACH, _NM = 10, 1000.0
#: The camera's offset in counts; seconds in which fringes move by one period.
_OFFSET, _FRINGE_PERIOD = 100.0, 60.0
#: Number of time constants after which a stage is at rest: e⁻¹² of a µm is less than 0.01 nm.
_AT_REST = 12.0


class SimulatedStage:
    """A stage with lag, backlash and noise.

    Parameters
    ----------
    lag : float
        Time constant of a move in seconds.
    backlash : float
        Micrometres lost when the direction reverses.
    noise : float
        R.m.s. error of a move in micrometres.
    seed : int
        The same seed gives the same noise.

    Examples
    --------
    >>> stage = SimulatedStage(lag=0.1, backlash=0.0, noise=0.0)
    >>> stage.move_by(0.0, 1.0, 0.0)
    >>> [round(float(stage.place(time)[1]), 2) for time in (0.0, 0.1, 1.0)]
    [0.0, 0.63, 1.0]
    """

    def __init__(self, lag: float, backlash: float, noise: float, seed: int = 0) -> None:
        self.lag, self.backlash, self.noise = lag, backlash, noise
        #: Time of the next move in seconds.
        self.now = 0.0
        self._random = np.random.default_rng((seed, 1))
        self._begun, self._from, self._to = 0.0, np.zeros(3), np.zeros(3)
        self._direction = np.zeros(3)

    def move_by(self, dy: float, dx: float, dz: float) -> None:
        """Start a move, in micrometres."""
        if not all(map(math.isfinite, (dy, dx, dz))):
            raise ValueError(f"a stage moves by finite numbers of µm; got {dy!r}, {dx!r}, {dz!r}")
        move = np.array([dy, dx, dz], float)
        direction = np.sign(move)
        turned = (direction != 0) & (self._direction != 0) & (direction != self._direction)
        self._direction = np.where(direction != 0, direction, self._direction)
        move[turned] -= direction[turned] * np.minimum(self.backlash, np.abs(move[turned]))
        self._from, self._begun = self.place(self.now), self.now
        self._to = self._to + move + (move != 0) * self._random.normal(0.0, self.noise, 3)

    def place(self, time: float) -> Floats:
        """Return the position, y, x and z in micrometres from the start."""
        passed = max(time - self._begun, 0.0)
        share = math.exp(-passed / self.lag) if self.lag > 0 else 0.0
        return np.asarray(self._to + (self._from - self._to) * share)


class SimulatedMicroscope:
    """A camera, fiducials on a sample that drifts and vibrates, and a stage.

    The background has slowly moving fringes, like those of back-thinned sensors.

    Threads: one takes frames, and the same or another one moves the stage.

    Parameters
    ----------
    count : int
        Number of fiducials.
    shape : (int, int)
        Rows and columns of a frame.
    photons, sigma, background : float
        Photons of a fiducial in a frame, its width in pixels, and background photons per pixel.
    fringes : float
        Amplitude of fringes relative to the background; their slope shifts fits.
    pixel_size : float
        Side of a pixel in micrometres.
    angle : float
        Angle between the axes of stage and camera in degrees.
    drift : (float, float)
        Micrometres per second along y and x of the stage.
    step, step_every : float
        Micrometres by which the sample slips along x, and the interval in seconds.
    vibration, frequency : float
        Amplitude along y in micrometres, and frequency in hertz.
    lag, backlash, stage_noise : float
        Parameters of the stage, see :class:`SimulatedStage`.
    model : AstigmatismCalibration or MeasuredPsf, optional
        What fiducials look like at each z; without it they are round and z does nothing.
    height : callable, optional
        z of the sample in micrometres at a time in seconds, without the stage.
    z_gain : float
        Micrometres by which the image is refocused per micrometre of the stage.
    seed : int
        The same seed gives the same sample and noise.

    Attributes
    ----------
    fiducials : ndarray of float64, shape (count, 2)
        Initial positions, y and x in pixels.
    matrix : ndarray of float64, shape (2, 2) or (3, 3)
        Pixels of the image per micrometre of the stage; with a model also z, in nm.
    stage : SimulatedStage
        The stage that moves the sample.
    now : float
        Its own clock in seconds, which :meth:`frame` sets.

    Examples
    --------
    >>> from napari_spotfit import SimulatedMicroscope
    >>> scope = SimulatedMicroscope(5, (96, 96), drift=(0.0, 0.01), seed=2)
    >>> scope.frame(0.5).shape, scope.displacement(10.0).round(2).tolist()
    ((96, 96), [0.0, 1.0])
    """

    def __init__(
        self,
        count: int = 20,
        shape: tuple[int, int] = (256, 256),
        *,
        photons: float = 10_000.0,
        sigma: float = 1.3,
        background: float = 20.0,
        fringes: float = 0.25,
        pixel_size: float = 0.1,
        angle: float = 0.0,
        drift: tuple[float, float] = (0.0, 0.0),
        step: float = 0.0,
        step_every: float = 60.0,
        vibration: float = 0.0,
        frequency: float = 30.0,
        lag: float = 0.005,
        backlash: float = 0.002,
        stage_noise: float = 0.0005,
        model: AstigmatismCalibration | MeasuredPsf | None = None,
        height: Callable[[float], float] = lambda time: 0.0,
        z_gain: float = 1.0,
        seed: int = 0,
    ) -> None:
        reach = math.ceil(_REACH * sigma) if model is None else _MODEL_REACH
        self._reach, self._photons, self._seed = reach, photons, seed
        self._image, self._height = _image_of(model, sigma), height
        self._drift, self._step, self._step_every = np.array(drift, float), step, step_every
        self._vibration, self._frequency = vibration, frequency
        turned = math.radians(angle)
        rotation = np.array(
            [[math.cos(turned), math.sin(turned)], [-math.sin(turned), math.cos(turned)]]
        )
        self.matrix: Floats = rotation / pixel_size
        if model is not None:
            self.matrix = np.zeros((3, 3))
            self.matrix[:2, :2], self.matrix[2, 2] = rotation / pixel_size, _NM * z_gain
        self.stage = SimulatedStage(lag, backlash, stage_noise, seed)
        self.now = 0.0
        random = np.random.default_rng((seed, 0))
        self.fiducials = _places(count, shape, 4.0 * reach, random)
        expected = _backgrounds(background, fringes, shape)
        self._expected = expected
        # Outside the fiducials, one frame of noise is reused at random offsets to save time; it
        # grows with the light, so that the camera's gain can be estimated.
        self._level = (expected + _OFFSET + 0.5).astype(np.float32)  # 0.5 for rounding
        self._strength = np.sqrt(expected).astype(np.float32)
        noise = (random.poisson(background, shape) - background) / math.sqrt(background or 1.0)
        self._noise = np.tile(noise.astype(np.float32), (2, 2))

    def displacement(self, time: float) -> Floats:
        """Return the image's displacement since time 0: y and x in pixels, with a model z in nm."""
        sample = np.append(self._drift * time, self._height(time))
        sample[0] += self._vibration * math.sin(2.0 * math.pi * self._frequency * time)
        sample[1] += self._step * math.floor(time / self._step_every)
        return np.asarray(self.matrix @ (sample + self.stage.place(time))[: len(self.matrix)])

    def frame(self, time: float) -> NDArray[np.uint16]:
        """Set the clock to a time in seconds, and return the camera's frame.

        It depends only on seed, time and stage.
        """
        self.now = self.stage.now = time
        number = int(time / _FRINGE_PERIOD * _FRINGES) % _FRINGES
        random = np.random.default_rng((self._seed, 2, round(time * 1e6)))
        level = self._level[number]
        (rows, columns), (y, x) = level.shape, random.integers(0, level.shape)
        noise = self._noise[y : y + rows, x : x + columns]
        pixels = level + self._strength[number] * noise
        frame: NDArray[np.uint16] = pixels.astype(np.uint16)
        moved = self.displacement(time)
        places = self.fiducials + moved[:2]
        size, reach = frame.shape, self._reach
        corners = np.rint(places).astype(int) - reach
        inside = ((corners >= 0) & (corners + 2 * reach < np.array(size) - 1)).all(axis=1)
        places, corners = places[inside], corners[inside]
        if not len(places):
            return frame
        along = np.arange(2 * reach + 1)
        down, across = corners[:, :1] + along, corners[:, 1:] + along
        where = down[:, :, np.newaxis], across[:, np.newaxis, :]
        y, x = down - places[:, :1], across - places[:, 1:]
        light = self._photons * self._image(y[:, :, np.newaxis], x[:, np.newaxis, :], moved)
        light += self._expected[number][where]
        frame[where] = random.poisson(light) + _OFFSET
        return frame

    def frames(self, rate: float, count: int) -> Iterator[tuple[float, NDArray[np.uint16]]]:
        """Yield times and frames at a rate in hertz, in simulated time."""
        begin = self.now
        for number in range(1, count + 1):
            time = begin + number / rate
            yield time, self.frame(time)

    def grab_at_rest(self) -> NDArray[np.uint16]:
        """Return a frame once the stage has come to rest."""
        return self.frame(self.now + max(_AT_REST * self.stage.lag, 1e-3))


class SimulatedCamera:
    """Puts frames of a simulated microscope into a queue in real time.

    Threads: it has one of its own; start and stop it from the same thread.

    Parameters
    ----------
    scope : SimulatedMicroscope
        The microscope.
    queue : FrameQueue
        The queue for its frames.
    rate : float
        Frames per second; fewer if the computer is too slow.

    Examples
    --------
    >>> from napari_spotfit import FrameQueue, SimulatedCamera, SimulatedMicroscope
    >>> queue = FrameQueue()
    >>> camera = SimulatedCamera(SimulatedMicroscope(4, (96, 96), seed=1), queue, rate=50)
    >>> camera.start()
    >>> frame, seconds, arrived = queue.take(timeout=60)
    >>> camera.stop()
    >>> frame.shape, seconds
    ((96, 96), 0.02)
    """

    def __init__(self, scope: SimulatedMicroscope, queue: FrameQueue, rate: float) -> None:
        if not rate > 0:
            raise ValueError(f"rate must be above 0 frames per second; got {rate!r}")
        self._scope, self._queue, self._rate = scope, queue, rate
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spotfit camera", daemon=True)

    def start(self) -> None:
        """Start streaming."""
        self._thread.start()

    def stop(self) -> None:
        """Stop streaming, and wait for the current frame."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        begin, due = self._scope.now, time.perf_counter()
        number = 0
        while not self._stopping.is_set():
            number += 1
            at = begin + number / self._rate
            frame = self._scope.frame(at)
            due += 1.0 / self._rate
            early = due - time.perf_counter()
            if early > 0:
                self._stopping.wait(early)
            else:
                due -= early
            self._queue.put(frame, at)


def _image_of(
    model: AstigmatismCalibration | MeasuredPsf | None, sigma: float
) -> Callable[[Floats, Floats, Floats], Floats]:
    """Return the fraction of a fiducial's light at y and x from its centre, once it has moved."""
    if isinstance(model, MeasuredPsf):
        lattice = model.lattice
        return lambda y, x, moved: np.maximum(lattice.sample(moved[2], y, x), 0.0)

    def gaussian(y: Floats, x: Floats, moved: Floats) -> Floats:
        width_x = width_y = sigma
        if model is not None:
            z = moved[2] / model.index_factor
            width_x, width_y = float(model.x(z)), float(model.y(z))
            if model.wobble_x is not None and model.wobble_y is not None:
                y, x = y - model.wobble_y(z), x - model.wobble_x(z)
            angle = math.radians(model.angle)
            along = math.cos(angle) * x + math.sin(angle) * y
            y, x = math.cos(angle) * y - math.sin(angle) * x, along
        u, v = x / width_x, y / width_y
        return np.asarray(np.exp(-0.5 * (u * u + v * v)) / (2.0 * math.pi * width_x * width_y))

    return gaussian


def _places(
    count: int, shape: tuple[int, int], apart: float, random: np.random.Generator
) -> Floats:
    """Return random positions near those of a grid."""
    across = math.ceil(math.sqrt(count))
    down = math.ceil(count / across)
    steps = np.array(shape) / (down, across)
    if steps.min() < apart:
        raise ValueError(
            f"{count} fiducials do not fit into frames of {shape[0]}×{shape[1]} px, "
            f"{apart:.0f} px apart; use fewer, or larger frames"
        )
    grid = np.stack(np.meshgrid(np.arange(down), np.arange(across), indexing="ij"), axis=-1)
    middles = (grid.reshape(-1, 2)[:count] + 0.5) * steps
    return np.asarray(middles + random.uniform(-0.2, 0.2, middles.shape) * apart)


def _backgrounds(background: float, fringes: float, shape: tuple[int, int]) -> Floats:
    """Return images of fringes at several times."""
    y, x = np.indices(shape)
    phase = 2.0 * math.pi * (x / 41.0 + y / 67.0 + 0.3 * np.sin(y / 90.0))
    turns = 2.0 * math.pi * np.arange(_FRINGES) / _FRINGES
    return np.asarray(
        background * (1.0 + fringes * np.cos(phase - turns[:, np.newaxis, np.newaxis]))
    )
