"""The widget "Fit spots": choose an image, press Fit, see its spots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QSize, Signal
from qtpy.QtWidgets import QHBoxLayout, QSizePolicy, QStackedWidget, QVBoxLayout, QWidget
from superqt.utils import qdebounced

from .fit_pages import FitPages, NextSteps
from .fitting.estimates import GainOffer, ImageNoise, SigmaEstimate
from .fitting.fit_status import AdviceLine, FitStatusLine, RunBar
from .fitting.image_fit import FitRequest
from .fitting.layer_fit import FitRun, LayerFit, fits_of, request_of
from .fitting.pick_bar import PickControls
from .fitting.preview import Preview
from .fitting.recovery import LeftResult, Recovery
from .fitting.result_panel import IMAGE_KEY, ResultPanel, hide_spots
from .fitting.settings_menu import SettingsMenu
from .fitting.settings_panel import SettingsPanel
from .layers.appearance import Look
from .layers.history import history_of
from .layers.images import image_of
from .layers.points import is_result
from .napari_compat import draw_thumbnail
from .parts import remember
from .parts.docking import Docked, Follower, Keys
from .parts.layout import Scrolled, button, fill
from .parts.messages import in_words, report

if TYPE_CHECKING:
    import napari
    from napari.layers import Image, Points

_FIT_TIP = (
    "<p>Find and fit the spots of the image. The result is a Points layer named after the "
    "image. Fitting again updates that layer, which Undo takes back, unless you have "
    "renamed it or changed its points: then it is yours, and the new spots come in a new layer.</p>"
)
_SHOWING = "Showing the spots…"
_READING = "Fitting… Frames are still being read, and noise and PSF measured in some of them."
_NOT_KEPT = "The result is not backed up against a crash, so save it soon"
#: Width of the form in pixels, the usual one and that in windows narrower than the last number.
_WIDTH, _LEAST, _SMALL_WINDOW = 320, 270, 1200
#: Least width of the buttons in pixels.
_BUTTONS = 200
#: Milliseconds without a first frame after which the status line explains the wait.
_PATIENCE = 1500
#: Milliseconds after a pick until the form shows its effect: a drag has many picks.
_AFTER_PICKS = 250


class FitSpots(Docked):
    """Find and fit the spots of an image layer.

    Parameters
    ----------
    viewer : napari.Viewer
        The viewer that shows the images; napari passes it in.
    """

    title = "Fit spots"
    #: A fit has ended, whichever way, and the layers and the status line say so.
    finished = Signal()

    def __init__(self, viewer: napari.viewer.Viewer):
        super().__init__(viewer)
        viewer = self._viewer
        self.history = history_of(viewer)
        self._run: FitRun | None = None
        self.settings = SettingsPanel(viewer)
        self.fit_button = button("Fit", _FIT_TIP, self.fit)
        self.running, self.buttons = RunBar(), QStackedWidget()
        self._noise = ImageNoise(self.settings, self)
        self.preview = Preview(viewer, self.settings, self._noise, self)
        self.estimate = SigmaEstimate(viewer, self.settings, self._noise, self)
        self.gain_offer = GainOffer(self.settings, self._noise, self)
        self.picking = PickControls(viewer, self.settings, self._noise, self.history, self)
        self.status, self.advice = FitStatusLine(self.settings), AdviceLine()
        self.result, self.steps = ResultPanel(viewer), NextSteps(viewer)
        self._image_key = Keys(viewer, {IMAGE_KEY: hide_spots})
        self._recovery = Recovery(viewer, self)
        self.left = LeftResult(self._recovery)
        self.settings_menu = SettingsMenu(viewer, self.settings, lambda: self.result.layer)
        self._patience = qdebounced(lambda: self.status.say(_READING), _PATIENCE, parent=self)
        self._picked: Points | None = None
        self._removed, self._active = Follower(self._on_removed), Follower(self._on_active)
        self._picked_soon = qdebounced(self._show_picked, _AFTER_PICKS, parent=self)
        self._estimates_soon = qdebounced(self._noise.show, _AFTER_PICKS, parent=self)
        values = remember.load("fit_spots")
        self.settings.put(values)
        self._show_look(Look.of(values))
        self.picking.snap.setChecked(values.get("snap") is not False)
        self.result.heading.setChecked(values.get("unfolded") is True)
        self.preview.opens = values.get("preview") is not False
        self._lay_out()
        self._connect()
        self.status.fold(self.result.heading.isChecked())
        self.bind()

    def follow_viewer(self) -> None:
        """Connect to the viewer and show its state."""
        self.pages.bind()
        self.settings.bind()
        self._noise.bind()
        self.history.join(self)
        self.picking.bind()
        self._image_key.bind()
        self.result.on_canvas.show_layer(self.result.layer)
        self.left.look()
        layers = self._viewer.layers
        self._removed.follow(layers.events.removed)
        self._active.follow(layers.events.renamed, layers.selection.events.active)
        layer = self.result.layer
        self.result.show_layer(layer if layer in layers else None)
        self._on_active()

    def sizeHint(self) -> QSize:
        """Ask for the usual width, and for less in a small window, whose canvas needs it."""
        window = self.window()
        width = _WIDTH if window is None or window.width() >= _SMALL_WINDOW else _LEAST
        least = self.minimumSizeHint()
        return QSize(max(width, least.width()), least.height())

    def leave_viewer(self) -> None:
        """Cancel a running fit and leave no callback behind."""
        self.pages.unbind()
        self.cancel()
        if self._run is not None:
            self._run.finish()
        self.picking.unbind()
        self._picked_soon.cancel()
        self._estimates_soon.cancel()
        self.history.leave(self)
        self._recovery.release()
        self.preview.unbind()
        self.estimate.drop()
        self.gain_offer.drop()
        self._noise.unbind()
        self.settings.unbind()
        self._image_key.unbind()
        self.result.on_canvas.remove()
        self.result.spots.show_layer(None)
        self.steps.residual.unbind()
        self._removed.follow()
        self._active.follow()

    def fit(self) -> None:
        """Start to fit the ticked images."""
        if self._run is not None:
            return
        try:
            fits = self._fits()
        except (TypeError, ValueError) as error:
            self.status.fail(in_words(error))
            return
        self._run = FitRun(fits, self)
        self._run.progressed.connect(self._on_progress)
        self._run.went_on.connect(self._on_went_on)
        self._run.fitted.connect(self._on_fitted)
        self._run.shown.connect(self._show_fitted)
        self._run.ended.connect(self._on_ended)
        self._show_running(True)
        self._run.start()

    def stop(self) -> None:
        """Stop the fit that is running, and show what was found."""
        if self._run is not None:
            self.running.stop_button.setEnabled(False)
            self._run.stop()

    def cancel(self) -> None:
        """Stop the fit that is running; the layers stay as they are."""
        if self._run is not None:
            self._run.cancel()

    def _fits(self) -> list[LayerFit]:
        """Return the fits of the ticked images, those that cannot be made with the reason.

        Raises
        ------
        TypeError, ValueError
            If the settings do not go together, or the only image cannot be fitted.
        """

        def make(image: Image, look: Look) -> FitRequest:
            settings = self.settings.settings(image)
            frames = self.settings.frames.frames(self._viewer, image)
            noise = self._noise.get(image)
            return request_of(image, settings, self.settings.layers(), frames, noise, look)

        self.settings.current_image()
        ticked = self.settings.image.ticked
        return fits_of(ticked, self._viewer, self._look, make, skip=len(ticked) > 1)

    def _on_progress(self, done: int, total: int) -> None:
        self._patience.cancel()
        self._on_went_on()
        self.running.show_progress(done, total)

    def _on_went_on(self) -> None:
        if self._run is not None:
            self.status.fitting(self._run)

    def _on_image(self) -> None:
        """Show the result of the current image, or which image is being fitted."""
        if self._run is not None:
            self.status.fitting(self._run)
            return
        self.status.look()
        self.advice.show_advice(None)
        image, shown, layers = self.settings.image.layer, self.result.layer, self._viewer.layers
        if image is not None and (shown is None or image_of(shown, layers) not in (image, None)):
            self.result.show_layer(layer := self._last_result())
            if layer is not None:
                self.status.summarize(layer)

    def _last_result(self) -> Points | None:
        """Return the result to describe: the active one, or the topmost, of the current image."""
        image, layers = self.settings.image.layer, self._viewer.layers
        found = (one for one in (layers.selection.active, *reversed(layers)) if is_result(one))
        return next((one for one in found if image_of(one, layers) in (image, None)), None)

    def _on_fitted(self) -> None:
        """Announce what takes napari a while where there are many spots."""
        self._patience.cancel()
        self.running.show_last(_SHOWING)
        self.status.say(_SHOWING)

    def _on_ended(self) -> None:
        """Show how a fit has ended."""
        run, self._run = self._run, None
        assert run is not None
        if any(fit.shown is not None and fit.image is self.preview.image for fit in run.fits):
            # The same spots would lie on top of each other.
            self.preview.box.setChecked(False)
        self._show_running(False)
        self._noise.show()
        self.status.end(run)
        advised = next((fit for fit in run.fits if fit.advice is not None), None)
        if advised is not None:
            name = advised.image.name if len(run.fits) > 1 else ""
            self.advice.show_advice(advised.advice, name)
        self.finished.emit()
        for layer in run.layers:
            self._recovery.keep(layer)

    def _on_put_back(self, layer: Points) -> None:
        # The history outlasts the widget, whatever is undone then.
        if self.bound:
            self._show_result(layer)
            self._recovery.keep(layer)

    def _on_stepped(self, what: str) -> None:
        if self.bound and self._run is None:
            self.status.say(what)
            self.advice.show_advice(None)

    def _on_preview_drawn(self) -> None:
        layer = self.preview.layer
        active = self._viewer.layers.selection.active
        if layer is not None and (active is layer or not is_result(active)):
            self.result.show_layer(layer)

    def _on_pick_awaited(self, awaited: bool) -> None:
        if self._run is None:
            self._patience() if awaited else self._patience.cancel()
        if not awaited:
            self._estimates_soon()

    def _show_picked(self) -> None:
        if self._picked is not None:
            draw_thumbnail(self._picked)
        self.result.show_layer(self._picked)

    def _show_fitted(self, layer: Points) -> None:
        """Describe what was fitted, without returning to an earlier pick."""
        self._picked_soon.flush(restart_timer=False)
        self._show_result(layer)

    def _show_result(self, layer: Points) -> None:
        """Describe a result and look at its image, unless other images are pinned."""
        image = image_of(layer, self._viewer.layers)
        if image is None or self.settings.image.look_at(image):
            self.result.show_layer(layer)

    def _on_picked(self, layer: Points) -> None:
        """Describe the picked spots once they are drawn, which counts more while dragging."""
        self._picked = layer
        self.status.describe(layer)
        self.result.spots.put_off(_AFTER_PICKS)
        self._picked_soon()

    def _on_removed(self, event: Any) -> None:
        self.status.forget(event.value)
        if self._run is not None:
            self._run.cancel_if_gone()
        self._recovery.forget(event.value)
        if event.value is self._picked:
            self._picked_soon.cancel()
            self._picked = None
        if event.value is self.result.layer:
            self.result.show_layer(self._last_result())

    def _on_active(self, event: Any = None) -> None:
        active = self._viewer.layers.selection.active
        self.settings.image.follow()
        if is_result(active):
            self._show_result(active)
            if self.result.layer is active:
                self.status.switch_to(active)

    def _show_look(self, look: Look) -> None:
        """Draw the spots of the next fits, clicks and previews like this."""
        self._look = self.preview.look = self.picking.look = look

    def _on_look(self, **chosen: str) -> None:
        self._show_look(self._look._replace(**chosen))
        self._remember()

    def _remember(self) -> None:
        own = {**self._look._asdict(), "snap": self.picking.snap.isChecked()}
        own |= {"unfolded": self.result.heading.isChecked(), "preview": self.preview.opens}
        remember.save("fit_spots", {**self.settings.values(), **own})

    def _on_advice(self, settings: Mapping[str, Any]) -> None:
        """Fit again with other settings."""
        self.settings.controls.put(settings)
        self.fit()

    def _show_running(self, running: bool) -> None:
        self.advice.show_advice(None)
        self._patience() if running else self._patience.cancel()
        self.running.begin()
        self.buttons.setCurrentIndex(int(running))

    def _connect(self) -> None:
        self.running.stop_button.clicked.connect(self.stop)
        self.running.cancel_button.clicked.connect(self.cancel)
        self.settings.changed.connect(self._remember)
        self.advice.accepted.connect(self._on_advice)
        self.settings.image.changed.connect(self._on_image)
        self.result.heading.toggled.connect(self.status.fold)
        self.result.heading.toggled.connect(self._remember)
        self.status.listen(self.settings_menu, self.left, self.estimate, self.picking.picker)
        self.result.face_chosen.connect(lambda face, map: self._on_look(face=face, colormap=map))
        self.result.marks.chosen.connect(lambda mark: self._on_look(mark=mark))
        self.result.spots.said.connect(self.status.fail)
        self.result.spots.replaced.connect(lambda: self.steps.show_layer(self.result.spots.layer))
        self.result.image.said.connect(self.status.say)
        self.steps.residual.failed.connect(lambda error: self.status.fail(report(error)))
        self.preview.drawn.connect(self._on_preview_drawn)
        self.preview.chosen.connect(self._remember)
        self.preview.drawn.connect(self._noise.show)
        self.preview.failed.connect(lambda error: self.status.preview(report(error), failed=True))
        self.preview.slow.connect(lambda: self.status.preview(_READING))
        self.preview.recovered.connect(self.status.preview)
        self.estimate.failed.connect(self._noise.show)
        self.picking.snap.toggled.connect(self._remember)
        self.picking.picker.missed.connect(self.status.say_briefly)
        self.picking.picker.layers.shown.connect(self._on_picked)
        self.history.shown.connect(self._on_put_back)
        self.history.stepped.connect(self._on_stepped)
        self.picking.picker.layers.shown.connect(self._recovery.keep_soon)
        self._recovery.failed.connect(lambda error: self.status.fail(f"{_NOT_KEPT}: {error}"))
        self.picking.picker.awaited.connect(self._on_pick_awaited)

    def _lay_out(self) -> None:
        self.settings.controls.below("false_spots", self.preview.box)
        fill(self.settings.first_folded, self.picking.snap, 1, self.settings_menu)
        at_rest = QWidget()
        fill(QHBoxLayout(at_rest), (self.fit_button, 1), self.picking.click)
        for page in (at_rest, self.running):
            self.buttons.addWidget(page)
        self.buttons.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        # What they need in the viewer's style, which they have only once they are shown.
        self.buttons.setMinimumWidth(_BUTTONS)
        found = fill(QHBoxLayout(), (self.result.heading, 1), self.picking.undo, self.picking.redo)
        result = (self.status, self.advice, self.steps, self.result)
        fill(self.settings.middle, self.buttons, found, self.result.channels, *result, spacing=4)
        self.area = Scrolled(self.settings, least=200)
        self.area.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
        self.pages = FitPages(self._viewer, self.area, self.left)
        fill(QVBoxLayout(self), self.pages, margins=(4, 4, 0, 4))
