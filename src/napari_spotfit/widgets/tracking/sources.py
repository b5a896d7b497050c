"""Where frames come from: the simulated microscope, a layer, or pymmcore-plus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from ...analysis.drift import Drift
from ...tracking.controller import Controller
from ...tracking.microscope import SimulatedMicroscope
from ...tracking.session import FrameQueue, SimulatedCamera, Snapshot
from ...tracking.stage import CoreStage, Stage, StageCalibration

if TYPE_CHECKING:
    from napari.layers import Image

#: So many frames of a camera may wait.
_WAITING = 256


class Source(Protocol):
    """Puts frames into its queue from :meth:`start` to :meth:`stop`."""

    queue: FrameQueue
    #: What holds the sample still; None where there is no stage.
    controller: Controller | None
    #: A stage that has to be calibrated before there is a controller; None where there is none.
    stage: Stage | None

    def look(self) -> Any:
        """Return a frame as they will be, to show before the first comes; None if there is none."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End."""


class SimulatedSource:
    """A simulated microscope in real time, whose sample drifts and trembles.

    Parameters
    ----------
    rate : float
        Frames a second.
    pixel_size : float
        Nanometres.
    on_error : {"hold", "stop"}
        What becomes of the loop when the stage raises an error.
    """

    def __init__(
        self, rate: float, pixel_size: float, on_error: Literal["hold", "stop"] = "hold"
    ) -> None:
        self.scope = SimulatedMicroscope(
            drift=(0.004, -0.002), vibration=0.003, pixel_size=pixel_size / 1000, seed=1
        )
        self.queue = FrameQueue(_WAITING)
        calibration = StageCalibration.of_pixel_size(pixel_size / 1000)
        self.controller: Controller | None = Controller(
            self.scope.stage, calibration, on_error=on_error
        )
        self.stage: Stage | None = None
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


class LayerSource:
    """The frames of a layer: those that are there, and those that come while it grows.

    A layer of one frame gives it each time it is replaced.

    Parameters
    ----------
    layer : napari.layers.Image
        The layer.
    """

    def __init__(self, layer: Image) -> None:
        self.layer = layer
        # They are views of what the layer holds: none needs to be dropped.
        self.queue = FrameQueue(2**62)
        self.controller: Controller | None = None
        self.stage: Stage | None = None
        self._seen = 0

    def look(self) -> Any:
        """Return nothing: the layer shows its frames itself."""

    def start(self) -> None:
        """Give what is there, and follow the layer."""
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
    """Return the drift of a layer's frames, of which a session has told all.

    Raises
    ------
    ValueError
        If no displacement is known, or the first frames are no longer kept.
    """
    known = np.isfinite(seen.y) & np.isfinite(seen.x)
    if not known.any():
        raise ValueError("no frame has told a displacement: nothing can be corrected")
    if seen.frames > len(seen.time):
        raise ValueError(
            f"the movie has {seen.frames} frames, of which {len(seen.time)} are kept here: "
            "use the page Drift of Spots"
        )
    at = np.arange(round(seen.time[-1]) + 1)
    y, x, y_stderr, x_stderr = (
        np.asarray(np.interp(at, seen.time[known], column[known]))
        for column in (seen.y, seen.x, seen.y_stderr, seen.x_stderr)
    )
    return Drift(y, x, y_stderr, x_stderr, np.isin(at, seen.time[known]).astype(np.int64))


class CoreSource:
    """What pymmcore-plus' acquisitions bring, and the microscope's XY stage, if it has one.

    Parameters
    ----------
    core : CMMCorePlus
        The microscope.
    """

    def __init__(self, core: Any) -> None:
        self.queue = FrameQueue(_WAITING)
        self.controller: Controller | None = None
        self.stage: Stage | None = CoreStage(core) if core.getXYStageDevice() else None
        self._ready = core.mda.events.frameReady

    def look(self) -> Any:
        """Return nothing: no light is spent before the acquisition."""

    def start(self) -> None:
        """Follow the acquisition."""
        self._ready.connect(self._on_frame)

    def stop(self) -> None:
        """Follow it no more."""
        self._ready.disconnect(self._on_frame)

    def _on_frame(self, frame: Any, event: Any, meta: Any) -> None:
        self.queue.put(frame)
