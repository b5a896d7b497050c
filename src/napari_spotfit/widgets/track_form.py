"""The settings of tracking as a form of magicgui, and the sources of frames that it offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from magicgui.widgets import ComboBox, Container, LineEdit, Widget
from numpy.typing import NDArray

from ..analysis.drift import Drift
from ..images.arrays import to_host
from ..models.astigmatism import AstigmatismCalibration
from ..models.calibration import Calibration
from ..models.measured_psf import MeasuredPsf
from ..settings.options import Options
from ..tracking.controller import Controller
from ..tracking.log import TrackingLog
from ..tracking.microscope import SimulatedCamera, SimulatedMicroscope
from ..tracking.session import FrameQueue, Snapshot
from ..tracking.stage import CoreStage, Stage, StageCalibration
from ..tracking.tracker import Tracker
from .fitting.calibration_choice import CalibrationChoice
from .napari_compat import is_image, is_points
from .parts.form import explained_rows, spin_row
from .parts.layout import fill

if TYPE_CHECKING:
    from napari import Viewer
    from napari.layers import Image

#: Frames of a camera that may wait.
_WAITING = 256
_NAME = "camera"
SIMULATED, CORE = "simulated microscope", "pymmcore-plus"
_FOUND = "found in the first frame"
_SOURCE_TIP = (
    "<p>Where frames come from: a microscope that is simulated in real time, with a stage; the "
    "acquisitions of pymmcore-plus; or an image layer, its present frames and those added "
    "while it grows or is replaced.</p>"
)
_FIDUCIALS_TIP = (
    "<p>What is followed: the bright spots of the first frame that stand alone, or the points of a "
    "layer. <b>Pick</b> makes one: click the fiducials in the image.</p>"
)
_SIGMA_TIP = "<p>Standard deviation of a fiducial's image, in pixels.</p>"
_PIXEL_TIP = "<p>Side of a pixel in the sample, in nanometres; displacements are shown so.</p>"
_DEPTH_TIP = (
    "<p>A calibration of the microscope on beads, from which fiducials have a z, in nm: one that "
    "<b>Calibrate PSF</b> has made, or a file. The sample is then held in z, too; it decides σ.</p>"
)
_RATE_TIP = "<p>Frames a second of the simulated microscope.</p>"
_HOLD, _END = "hold, and go on", "stop"
_TROUBLE_TIP = (
    "<p>What happens when a frame yields no displacement, or the stage raises an error: the stage "
    "is held, and moves again once all is well; or tracking stops, with the reason. The stage is "
    "held either way.</p>"
)
_LOG_TIP = (
    "<p>A Parquet file that gets every displacement while it is tracked, and stays readable should "
    "the program be killed: <i>name.parquet</i>, in an existing folder. Empty: none. Rows are "
    "added to an existing log.</p>"
)


@dataclass(eq=False)
class Source:
    """Frames, which are put into a queue from start to stop.

    Parameters
    ----------
    queue : FrameQueue
        The queue.
    start, stop : callable
        Begin and end.
    look : callable
        Returns a frame to show before the first one comes; None if there is none.
    controller : Controller, optional
        Holds the sample still; None without a stage, or before it is calibrated.
    stage : Stage, optional
        A stage that has to be calibrated before there is a controller.
    has_z : bool
        Whether that stage moves z.
    layer : napari.layers.Image, optional
        The layer whose frames these are.
    """

    queue: FrameQueue
    start: Callable[[], object]
    stop: Callable[[], object]
    look: Callable[[], Any] = lambda: None
    controller: Controller | None = None
    stage: Stage | None = None
    has_z: bool = False
    layer: Image | None = None


def frames_of_simulation(
    rate: float, pixel_size: float, on_error: Literal["hold", "stop"], model: Calibration | None
) -> Source:
    """Return a simulated microscope in real time, whose sample drifts and trembles.

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
    seen = model if isinstance(model, (AstigmatismCalibration, MeasuredPsf)) else None
    scope = SimulatedMicroscope(
        drift=(0.004, -0.002), vibration=0.003, pixel_size=pixel_size / 1000, model=seen,
        height=lambda time: 0.005 * time, seed=1,
    )  # fmt: skip
    calibration = StageCalibration.of_pixel_size(pixel_size / 1000, None if seen is None else 1.0)
    controller = Controller(scope.stage, calibration, on_error=on_error)
    queue = FrameQueue(_WAITING)
    camera = SimulatedCamera(scope, queue, rate)
    return Source(queue, camera.start, camera.stop, lambda: scope.frame(scope.now), controller)


def frames_of_layer(layer: Image) -> Source:
    """Return the frames of a layer, and those that come while it grows.

    A layer of one frame gives it each time it is replaced.
    """
    # Views of the layer's data: none needs to be dropped.
    queue, seen = FrameQueue(2**62), 0

    def put(event: Any = None) -> None:
        nonlocal seen
        data = layer.data
        if data.ndim == 2:
            queue.put(data)
            return
        for number in range(seen, len(data)):
            queue.put(data[number], float(number))
        seen = max(seen, len(data))

    def start() -> None:
        put()
        layer.events.data.connect(put)

    return Source(queue, start, lambda: layer.events.data.disconnect(put), layer=layer)


def frames_of_core(core: Any, z: bool) -> Source:
    """Return the frames of pymmcore-plus' acquisitions, and its XY stage, if it has one.

    Parameters
    ----------
    core : CMMCorePlus
        The microscope.
    z : bool
        Whether to move its focus, too, if it has a motor.
    """
    queue, ready = FrameQueue(_WAITING), core.mda.events.frameReady

    def put(frame: Any, event: Any, meta: Any) -> None:
        queue.put(frame)

    has_z = z and bool(core.getFocusDevice())
    stage = CoreStage(core, z=has_z) if core.getXYStageDevice() else None
    start, stop = (partial(one, put) for one in (ready.connect, ready.disconnect))
    return Source(queue, start, stop, stage=stage, has_z=has_z)


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
        pixels, layers, layer = to_host(frame), self._viewer.layers, self.layer
        if layer is not None and layer in layers and layer.data.shape == pixels.shape:
            layer.data = pixels
            return
        selected = set(layers.selection)
        self.layer = self._viewer.add_image(pixels, name=_NAME)
        if selected:
            layers.selection = selected


class TrackForm:
    """The rows of the form.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer whose layers are offered.
    """

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self.source = ComboBox(label="Frames of", choices=self._sources, tooltip=_SOURCE_TIP)
        self.fiducials = ComboBox(
            label="Fiducials", choices=self._fiducials, tooltip=_FIDUCIALS_TIP
        )
        self.sigma = spin_row("PSF σ [px]", _SIGMA_TIP, 1.3, 0.3, 50, 0.1)
        self.depth = CalibrationChoice()
        self.pixel_size = spin_row("Pixel [nm]", _PIXEL_TIP, 100, 1, 100_000)
        self.rate = spin_row("Frames/s", _RATE_TIP, 200, 1, 5000, 50)
        self.trouble = ComboBox(label="In trouble", choices=(_HOLD, _END), tooltip=_TROUBLE_TIP)
        self.log = LineEdit(label="Log", tooltip=_LOG_TIP)
        z_from = Container[Widget](layout="horizontal", label="z from", tooltip=_DEPTH_TIP)
        fill(z_from.native.layout(), self.depth)
        rows: list[Widget] = [
            self.source, self.fiducials, self.sigma, z_from, self.pixel_size, self.rate,
            self.trouble, self.log,
        ]  # fmt: skip
        self.container = explained_rows(rows)
        self.log.native.setPlaceholderText("none")
        self.depth.changed.connect(self._on_depth)
        self.source.changed.connect(self._on_source)

    def make_source(self) -> Source:
        """Return the chosen source of frames.

        Raises
        ------
        ImportError
            If pymmcore-plus is missing.
        """
        chosen = self.source.value
        if chosen == SIMULATED:
            return frames_of_simulation(
                self.rate.value, self.pixel_size.value, self.on_error, self.depth.calibration
            )
        if chosen == CORE:
            try:
                from pymmcore_plus import CMMCorePlus
            except ImportError:
                raise ImportError(
                    'pymmcore-plus is missing: pip install "napari-spotfit[microscope]"'
                ) from None
            return frames_of_core(CMMCorePlus.instance(), z=self.depth.calibration is not None)
        if chosen.ndim > 3:
            raise ValueError(
                f"“{chosen.name}” has {chosen.ndim} axes; frames are (y, x) or (time, y, x)"
            )
        return frames_of_layer(chosen)

    @property
    def on_error(self) -> Literal["hold", "stop"]:
        """What the loop does in trouble."""
        return "stop" if self.trouble.value == _END else "hold"

    def make_tracker(self) -> Tracker:
        """Return a tracker of the chosen fiducials.

        Raises
        ------
        ValueError
            If a layer of points is empty.
        """
        model = self.depth.calibration
        own: Options = {"sigma": self.sigma.value} if model is None else {"model": model}
        return Tracker(self._places(), stop=self.on_error == "stop", **own)

    def make_log(self) -> TrackingLog | None:
        """Return the log, if one is requested.

        Raises
        ------
        ImportError, OSError, ValueError
            If it cannot be written.
        """
        name = self.log.value.strip()
        return TrackingLog(Path(name).expanduser()) if name else None

    def pixel_in_view(self) -> float:
        """Return the side of a pixel of the frames in the viewer's world."""
        image = self.source.value
        return float(np.mean(image.scale[-2:])) if is_image(image) else 1.0

    def refresh(self, event: Any = None) -> None:
        """List the layers that there are now."""
        self.source.reset_choices()
        self.fiducials.reset_choices()

    def _places(self) -> NDArray[np.float64] | None:
        layer = self.fiducials.value
        if layer == _FOUND:
            return None
        if not len(layer.data):
            raise ValueError(f"“{layer.name}” has no points: click the fiducials in the image")
        data, image = np.asarray(layer.data, float), self.source.value
        if is_image(image):  # wherever the two layers lie
            places = [image.world_to_data(layer.data_to_world(point)) for point in data]
            data = np.array(
                [[*point[:-2], *place[-2:]] for point, place in zip(data, places, strict=True)]
            )
        # Of spots in many frames, those of the first one are followed.
        first = (data[:, :-2] == data[:, :-2].min(axis=0)).all(axis=1)
        return np.asarray(data[first, -2:])

    def _sources(self, widget: Any = None) -> list[tuple[str, Any]]:
        images = [(f"“{one.name}”", one) for one in self._viewer.layers if is_image(one)]
        return [(SIMULATED, SIMULATED), (CORE, CORE), *images]

    def _fiducials(self, widget: Any = None) -> list[tuple[str, Any]]:
        points = [(f"of “{one.name}”", one) for one in self._viewer.layers if is_points(one)]
        return [(_FOUND, _FOUND), *points]

    def _on_depth(self) -> None:
        self.sigma.enabled = self.depth.calibration is None

    def _on_source(self, value: Any) -> None:
        self.rate.enabled = value == SIMULATED
