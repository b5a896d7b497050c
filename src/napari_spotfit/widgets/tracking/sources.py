"""Sources of frames: the simulated microscope, a layer, or pymmcore-plus."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...analysis.drift import Drift
from ...images.arrays import to_host
from ...models.astigmatism import AstigmatismCalibration
from ...models.calibration import Calibration
from ...models.measured_psf import MeasuredPsf
from ...tracking.controller import Controller
from ...tracking.microscope import SimulatedCamera, SimulatedMicroscope
from ...tracking.session import FrameQueue, Snapshot
from ...tracking.stage import CoreStage, Stage, StageCalibration

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image

#: Frames of a camera that may wait.
_WAITING = 256
_NAME = "camera"


class Source(ABC):
    """Puts frames into its queue from :meth:`start` to :meth:`stop`.

    Parameters
    ----------
    waiting : int
        How many frames may wait.
    """

    #: Holds the sample still; None without a stage, or before it is calibrated.
    controller: Controller | None = None
    #: A stage that has to be calibrated before there is a controller, and whether it moves z.
    stage: Stage | None = None
    has_z = False

    def __init__(self, waiting: int = _WAITING) -> None:
        self.queue = FrameQueue(waiting)

    def look(self) -> Any:
        """Return a frame to show before the first one comes; None if there is none."""
        return None

    @abstractmethod
    def start(self) -> None:
        """Begin."""

    @abstractmethod
    def stop(self) -> None:
        """End."""


class SimulatedSource(Source):
    """A simulated microscope in real time, whose sample drifts and trembles.

    Parameters
    ----------
    rate : float
        Frames a second.
    pixel_size : float
        Nanometres.
    on_error : {"hold", "stop"}
        What the loop does when the stage raises an error.
    model : Calibration, optional
        What fiducials look like at each z, in which they drift, too.
    """

    def __init__(
        self,
        rate: float,
        pixel_size: float,
        on_error: Literal["hold", "stop"] = "hold",
        model: Calibration | None = None,
    ) -> None:
        super().__init__()
        seen = model if isinstance(model, (AstigmatismCalibration, MeasuredPsf)) else None
        self.scope = SimulatedMicroscope(
            drift=(0.004, -0.002), vibration=0.003, pixel_size=pixel_size / 1000, model=seen,
            height=lambda time: 0.005 * time, seed=1,
        )  # fmt: skip
        calibration = StageCalibration.of_pixel_size(
            pixel_size / 1000, None if seen is None else 1.0
        )
        self.controller = Controller(self.scope.stage, calibration, on_error=on_error)
        self._camera = SimulatedCamera(self.scope, self.queue, rate)

    def look(self) -> Any:
        """Return what the camera sees now."""
        return self.scope.frame(self.scope.now)

    def start(self) -> None:
        """Begin to stream."""
        self._camera.start()

    def stop(self) -> None:
        """Stop streaming."""
        self._camera.stop()


class LayerSource(Source):
    """The frames of a layer, and those that come while it grows.

    A layer of one frame gives it each time it is replaced.

    Parameters
    ----------
    layer : napari.layers.Image
        The layer.
    """

    def __init__(self, layer: Image) -> None:
        # Views of the layer's data: none needs to be dropped.
        super().__init__(waiting=2**62)
        self.layer, self._seen = layer, 0

    def start(self) -> None:
        """Queue the frames that are there, and follow the layer."""
        self._on_data()
        self.layer.events.data.connect(self._on_data)

    def stop(self) -> None:
        """Follow it no more."""
        self.layer.events.data.disconnect(self._on_data)

    def _on_data(self, event: Any = None) -> None:
        data = self.layer.data
        if data.ndim == 2:
            self.queue.put(data)
            return
        for number in range(self._seen, len(data)):
            self.queue.put(data[number], float(number))
        self._seen = max(self._seen, len(data))


def drift_of(seen: Snapshot) -> Drift:
    """Return the drift of a layer's frames from the displacements of a session.

    Raises
    ------
    ValueError
        If no displacement is known, or the first frames are no longer kept.
    """
    known = np.isfinite(seen.y) & np.isfinite(seen.x)
    if not known.any():
        raise ValueError("no frame has yielded a displacement: nothing can be corrected")
    if seen.frames > len(seen.time):
        raise ValueError(
            f"the movie has {seen.frames} frames, and only the last {len(seen.time)} are kept: "
            "use the page Drift of Results"
        )
    at = np.arange(round(seen.time[-1]) + 1)
    y, x, y_stderr, x_stderr = (
        np.asarray(np.interp(at, seen.time[known], column[known]))
        for column in (seen.y, seen.x, seen.y_stderr, seen.x_stderr)
    )
    return Drift(y, x, y_stderr, x_stderr, np.isin(at, seen.time[known]).astype(np.int64))


class CoreSource(Source):
    """The frames of pymmcore-plus' acquisitions, and the microscope's XY stage, if it has one.

    Parameters
    ----------
    core : CMMCorePlus
        The microscope.
    z : bool
        Whether to move its focus, too, if it has a motor.
    """

    def __init__(self, core: Any, z: bool = False) -> None:
        super().__init__()
        #: Whether the stage moves z.
        self.has_z = z and bool(core.getFocusDevice())
        if core.getXYStageDevice():
            self.stage = CoreStage(core, z=self.has_z)
        self._ready = core.mda.events.frameReady

    def start(self) -> None:
        """Follow the acquisition."""
        self._ready.connect(self._on_frame)

    def stop(self) -> None:
        """Follow it no more."""
        self._ready.disconnect(self._on_frame)

    def _on_frame(self, frame: Any, event: Any, meta: Any) -> None:
        self.queue.put(frame)


class LiveFrames:
    """An image layer of the newest frame, in which fiducials can be clicked.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer; the layer is added with the first frame, and again if it was removed.
    """

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self.layer: Image | None = None

    def show(self, frame: Any) -> None:
        """Show a frame in the place of the one before."""
        pixels, layers = to_host(frame), self._viewer.layers
        if (
            self.layer is not None
            and self.layer in layers
            and self.layer.data.shape == pixels.shape
        ):
            self.layer.data = pixels
            return
        selected = set(layers.selection)
        self.layer = self._viewer.add_image(pixels, name=_NAME)
        if selected:
            layers.selection = selected
