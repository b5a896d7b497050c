"""The settings of tracking as a form of magicgui's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from magicgui.widgets import ComboBox, Container, FloatSpinBox, LineEdit, Widget
from numpy.typing import NDArray

from ...settings.options import Options
from ...tracking.log import TrackingLog
from ...tracking.tracker import Tracker
from ..fitting.depth_choice import DepthChoice
from ..napari_compat import is_image, is_points
from ..parts.form import explained_rows
from ..parts.layout import fill
from .sources import CoreSource, LayerSource, SimulatedSource, Source

if TYPE_CHECKING:
    from napari import Viewer

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
        self.sigma = FloatSpinBox(
            label="PSF σ [px]", value=1.3, min=0.3, max=50, step=0.1, tooltip=_SIGMA_TIP
        )
        self.depth = DepthChoice()
        self.pixel_size = FloatSpinBox(
            label="Pixel [nm]", value=100, min=1, max=100_000, step=1, tooltip=_PIXEL_TIP
        )
        self.rate = FloatSpinBox(
            label="Frames/s", value=200, min=1, max=5000, step=50, tooltip=_RATE_TIP
        )
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
            return SimulatedSource(
                self.rate.value, self.pixel_size.value, self.on_error, self.depth.calibration
            )
        if chosen == CORE:
            try:
                from pymmcore_plus import CMMCorePlus
            except ImportError:
                raise ImportError(
                    'pymmcore-plus is missing: pip install "napari-spotfit[microscope]"'
                ) from None
            return CoreSource(CMMCorePlus.instance(), z=self.depth.calibration is not None)
        if chosen.ndim > 3:
            raise ValueError(
                f"“{chosen.name}” has {chosen.ndim} axes; frames are (y, x) or (time, y, x)"
            )
        return LayerSource(chosen)

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
