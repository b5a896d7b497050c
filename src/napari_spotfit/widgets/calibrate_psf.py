"""The widget "Calibrate PSF": z of spots from the widths of beads in a z-stack."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from magicgui.widgets import SpinBox
from qtpy.QtWidgets import QHBoxLayout, QTabWidget, QVBoxLayout, QWidget

from ..calibration.astigmatism import calibrate_astigmatism
from ..calibration.microscope_quality import MicroscopeQuality, microscope_quality
from ..models.astigmatism import AstigmatismCalibration
from ..settings.settings import Settings
from .calibration_results import BeadTable, CalibrationPlots, QualityPage
from .fitting.calibration_choice import KNOWN
from .layers.images import full_resolution
from .napari_compat import is_image
from .parts.boxes import LayerChoice
from .parts.docking import Docked
from .parts.form import SettingsForm, explained_rows, spin_row
from .parts.layout import Scrolled, TwoParts, ask_to_save, button, explain, fill
from .parts.messages import StatusLine
from .parts.work import Latest

if TYPE_CHECKING:
    import napari
    from napari.layers import Image, Layer, Points

_SAVED = "Calibration (*.h5)"
#: Diameter of what marks a bead, in pixels of the image, and its colours: used, and not.
_RING, _USED, _UNUSED = 12.0, "#009e73", "#d55e00"
_STACK_TIP = (
    "<p>A z-stack of beads (planes, rows, columns) through the astigmatic lens, recorded in steps "
    "of 10 to 50 nm from below to above the focus.</p>"
)
_CALIBRATE_TIP = "Find the beads and fit them in all planes; again with those that are ticked."
_BEADS_TIP = (
    "<p>The beads that were found: untick those that are not to count, and calibrate again.</p>"
)
_DZ_TIP = "<p>Distance of the planes in nm. z rises with the number of the plane.</p>"
_ROI_TIP = "<p>Side of the ROI in pixels, which fits with the calibration have; 0: about 9 σ.</p>"
_PIXEL_TIP = "<p>Side of a pixel in nm; it is kept with the calibration.</p>"
_INDEX_TIP = (
    "<p>What heights in the sample are of those of the stage, for a sample that refracts less than "
    "the immersion: 1 for beads on the glass. z and its error are multiplied by it.</p>"
)
_QUALITY_TIP = (
    "<p>Measure the beads' widths along x, y and z. With the numerical aperture and the wavelength "
    "they stand beside those behind perfect optics.</p>"
)
#: The settings that both take, and those of the widths alone.
_CAMERA, _OPTICS = ("gain", "offset"), ("numerical_aperture", "wavelength", "refractive_index")


class CalibratePsf(Docked):
    """Calibrates z on the beads of an image layer; they are shown, and can be unticked.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer; napari passes it in.
    """

    title = "Calibrate PSF"

    def __init__(self, viewer: napari.viewer.Viewer):
        super().__init__(viewer, below=True)
        self.stack = LayerChoice(self._viewer.layers, _is_stack, nothing="no z-stack")
        self.dz = spin_row("Step [nm]", _DZ_TIP, 20, 0.1, 10_000, 5)
        self.pixel = spin_row("Pixel [nm]", _PIXEL_TIP, 100, 1, 100_000)
        self.roi_size = SpinBox(label="ROI [px]", tooltip=_ROI_TIP, value=0, min=0, max=31)
        self.index = spin_row("Index factor", _INDEX_TIP, 1, 0.1, 2, 0.05)
        self.known = SettingsForm(only=(*_CAMERA, *_OPTICS))
        self.known.put({"gain": 1.0})
        self.calibrate_button = button("Calibrate", _CALIBRATE_TIP, self.calibrate)
        self.save_button = button("Save…", "Save the calibration as a file (.h5).", self._ask_save)
        self.use_button = button("Use in Fit spots", "Let Fit spots take z from it.", self._on_use)
        self.quality_button = button("Quality", _QUALITY_TIP, self.measure_quality)
        self.beads, self.plots, self.status = BeadTable(), CalibrationPlots(), StatusLine()
        self.quality, self.pages = QualityPage(), QTabWidget()
        #: The calibration that is shown.
        self.calibration: AstigmatismCalibration | None = None
        self._shown: Image | None = None
        self._points: Points | None = None
        self._latest = Latest(self, self._on_done, self._on_failed)
        self._lay_out()
        self.index.changed.connect(self._on_index)
        self._allow()
        self.bind()

    def follow_viewer(self) -> None:
        """List the viewer's layers, and follow them."""
        self.stack.bind()

    def leave_viewer(self) -> None:
        """Stop what runs, and leave no callback behind."""
        self._latest.drop()
        self.stack.unbind()

    def calibrate(self) -> None:
        """Calibrate on the ticked beads, or at first on all that are found."""
        try:
            layer = self._bead_stack()
            settings = self._settings(_CAMERA, roi_size=self.roi_size.value or None)
        except (TypeError, ValueError) as error:
            self.status.fail(str(error))
            return
        again = layer is self._shown and self.beads.ticked.any()
        chosen = self.beads.places[self.beads.ticked] if again else None
        if not again:
            self.beads.show_beads(())
        self._shown, self.calibration = layer, None
        self.status.say(f"Fitting the beads of “{layer.name}” in all planes…")
        self._ask(
            self._show_lens, calibrate_astigmatism, full_resolution(layer), self.dz.value,
            beads=chosen, settings=settings,
        )  # fmt: skip

    def measure_quality(self) -> None:
        """Measure the widths of the beads along x, y and z."""
        try:
            layer, settings = self._bead_stack(), self._settings((*_CAMERA, *_OPTICS))
        except (TypeError, ValueError) as error:
            self.status.fail(str(error))
            return
        self.status.say(f"Fitting the beads of “{layer.name}” in three dimensions…")
        self._ask(
            self._show_widths, microscope_quality, full_resolution(layer), settings.voxel_size,
            settings=settings,
        )  # fmt: skip

    def save(self, path: Path) -> None:
        """Save the calibration as a file."""
        if self.calibration is None:
            return
        place = path if path.suffix else path.with_suffix(".h5")
        try:
            self.calibration.save(place)
        except (ImportError, OSError, ValueError) as error:
            self.status.fail(str(error))
            return
        KNOWN.add(place.name, self.calibration)
        self.status.say(f"Saved “{place.name}”; Fit spots has it under “z from”.")

    def _bead_stack(self) -> Image:
        if not is_image(layer := self.stack.layer):
            raise ValueError("Choose a z-stack of beads first: an image layer of three axes.")
        return layer

    def _settings(self, names: tuple[str, ...], **more: Any) -> Settings:
        voxel = self.dz.value, self.pixel.value, self.pixel.value
        values = self.known.get()
        return Settings(voxel_size=voxel, **{name: values[name] for name in names}, **more)

    def _ask(
        self, show: Callable[[Any], str], measure: Callable[..., Any], *given: Any, **known: Any
    ) -> None:
        """Calibrate, or measure, in a worker thread, and show what was found."""
        job = partial(_warned, measure, *given, **known)
        self._latest.ask(lambda: (show, *job()))
        self._allow()

    def _on_done(self, done: tuple[Callable[[Any], str], Any, list[str]]) -> None:
        show, found, warned = done
        self.status.say(" ⚠ ".join((show(found), *warned)))
        self._allow()

    def _show_lens(self, found: AstigmatismCalibration) -> str:
        """Show a calibration, and return it in words."""
        self.pages.setCurrentWidget(self.plots)
        self.calibration = lens = found.with_index(self.index.value)
        self.beads.show_beads(lens.beads, keep=True)
        self.plots.show_calibration(lens)
        self._show_points()
        quality = lens.quality
        scatter = np.median(quality.scatter) if quality is not None else np.nan
        return f"{lens.words[0].upper()}{lens.words[1:]}; they scatter by {scatter:.1f} nm in z."

    def _show_widths(self, found: MicroscopeQuality) -> str:
        self.quality.show_quality(found)
        self.pages.setCurrentWidget(self.quality)
        return "The widths of the beads are under Quality."

    def _on_failed(self, error: Exception) -> None:
        if self.calibration is None:
            self.plots.show_calibration(None)
        self.status.fail(str(error))
        self._allow()

    def _on_index(self, factor: float) -> None:
        if self.calibration is not None:
            self.calibration = self.calibration.with_index(factor)

    def _on_use(self) -> None:
        if self.calibration is None or self._shown is None:
            return
        KNOWN.add(f"of “{self._shown.name}”", self.calibration, offer=True)
        self.status.say("Fit spots takes z from it: see “z from” there, under More settings.")

    def _show_points(self) -> None:
        """Mark the beads in the image, those that are used in another colour."""
        layer = self._shown
        if layer is None or not self.bound:
            return
        used = self.beads.ticked
        colors = [_USED if one else _UNUSED for one in used]
        if self._points is not None and self._points in self._viewer.layers:
            self._viewer.layers.remove(self._points)
        self._points = self._viewer.add_points(
            self.beads.places, name=f"beads of {layer.name}", face_color="transparent",
            border_color=colors, size=_RING, scale=layer.scale[-2:],
            translate=layer.translate[-2:], units=layer.units[-2:],
        )  # fmt: skip
        self._viewer.layers.selection.active = layer

    def _ask_save(self) -> None:
        if chosen := ask_to_save(self, "Save the calibration", "lens", ".h5", _SAVED):
            self.save(chosen[0])

    def _allow(self) -> None:
        for one in (self.calibrate_button, self.quality_button):
            one.setEnabled(not self._latest.busy)
        for one in (self.save_button, self.use_button):
            one.setEnabled(self.calibration is not None and not self._latest.busy)

    def _lay_out(self) -> None:
        rows, form = explained_rows((self.dz, self.pixel, self.roi_size, self.index)), QWidget()
        fill(QVBoxLayout(form), rows.native, self.known.folded.native, spacing=4)
        explain(self.stack, "Bead stack", _STACK_TIP)
        explain(self.beads, "Beads", _BEADS_TIP)
        buttons = fill(
            QHBoxLayout(), self.calibrate_button, self.quality_button, self.save_button,
            self.use_button,
        )  # fmt: skip
        self.pages.addTab(self.plots, "Calibration")
        self.pages.addTab(self.quality, "Quality")
        parts = (self.stack, Scrolled(form, least=60), buttons, self.status)
        TwoParts(self, (*parts, (self.beads, 1)), self.pages, (1, 2))


def _is_stack(layer: Layer) -> bool:
    return is_image(layer) and layer.ndim == 3 and not layer.rgb


def _warned(measure: Callable[..., Any], *given: Any, **known: Any) -> tuple[Any, list[str]]:
    """Return what was measured, and what was warned of meanwhile."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = measure(*given, **known)
    return found, [str(one.message) for one in caught]
