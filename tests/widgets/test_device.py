"""What the widget says of the device that fits, and of a GPU that cannot."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from qtpy.QtCore import Qt

from napari_spotfit.engine.cpu.library import load
from napari_spotfit.engine.fallback import Fallback
from napari_spotfit.engine.select import Description, select_backend
from napari_spotfit.localization import localize
from napari_spotfit.widgets.fit_spots import FitSpots
from napari_spotfit.widgets.fitting import settings_panel

REASON = (
    "NVIDIA's compiler NVRTC cannot be loaded (RuntimeError: no libnvrtc.so.13 in any of the "
    'usual places). Run:\npip uninstall cupy-cuda13x\npip install "napari-spotfit[cuda13]"'
)


@pytest.fixture
def described(monkeypatch):
    """Return a function that makes the panel find other devices than there are."""

    def as_if(name, reason, gpus):
        description = Description(name, reason, gpus)
        monkeypatch.setattr(settings_panel, "describe", lambda settings: description)

    return as_if


def test_the_device_is_named(widget, qtbot):
    controls = widget.settings.controls
    controls["backend"].value = "cpu"
    widget.settings.advanced.expand()
    qtbot.waitUntil(lambda: widget.settings.device.text().startswith("CPU ("), timeout=30_000)
    controls["threads"].value = 1
    line = f"CPU (1 thread)\n{load().description}"
    qtbot.waitUntil(lambda: widget.settings.device.text() == line)
    assert widget.settings.why_no_gpu.isHidden()


def test_automatic_says_why_it_is_not_the_gpu(widget, qtbot, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    widget.settings.advanced.expand()
    why = widget.settings.why_no_gpu
    qtbot.waitUntil(lambda: not why.isHidden(), timeout=30_000)
    assert widget.settings.device.text().startswith("CPU (")
    assert "CUDA_VISIBLE_DEVICES='' hides every GPU" in why.text()
    assert "hides every GPU" in why.toolTip()
    assert why.textInteractionFlags() & Qt.TextInteractionFlag.TextSelectableByMouse
    widget.settings.controls["backend"].value = "cpu"
    qtbot.waitUntil(why.isHidden)


def test_a_missing_gpu_says_why(viewer, widget, qtbot, fit, make_movie, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    viewer.add_image(make_movie(), name="image")
    widget.settings.advanced.expand()
    widget.settings.controls["backend"].value = "cuda"
    message = fit(widget)
    assert "CUDA_VISIBLE_DEVICES" in message
    assert len(viewer.layers) == 1
    why = widget.settings.why_no_gpu
    # The choice before, auto, shows the same reason beside a CPU.
    qtbot.waitUntil(lambda: widget.settings.device.text() == "no GPU")
    assert why.text()
    assert message.endswith(why.text())


@pytest.mark.parametrize("gpus", [0, 1, 2])
def test_one_or_all_gpus(widget, qtbot, described, gpus):
    """There is a choice only where there are several."""
    described("NVIDIA H200", "", gpus)
    control = widget.settings.controls["devices"].native
    assert not control.isEnabled()
    widget.settings.advanced.expand()
    qtbot.waitUntil(lambda: widget.settings.device.text() == "NVIDIA H200")
    assert control.isEnabled() is (gpus > 1)
    assert ("no second GPU" in control.toolTip()) is (gpus <= 1)
    assert ("every GPU of this computer" in control.toolTip()) is (gpus > 1)


def test_the_window_does_not_wait_for_a_driver(widget, qtbot, monkeypatch):
    """The driver is asked on another thread."""
    asked = []

    def slow(settings):
        asked.append(threading.current_thread())
        return Description("CPU (1 thread)")

    monkeypatch.setattr(settings_panel, "describe", slow)
    widget.settings.advanced.expand()
    qtbot.waitUntil(lambda: bool(widget.settings.device.text()))
    assert asked
    assert threading.main_thread() not in asked


@pytest.mark.parametrize("width", [310, 420])
def test_a_long_reason_is_not_cut_off(viewer, qtbot, described, width):
    described("CPU (128 threads)", REASON, 0)
    viewer.add_image(np.zeros((9, 9)))  # without one there is the start page
    widget = FitSpots(viewer)
    qtbot.addWidget(widget)
    widget.resize(width, 1000)
    widget.show()
    panel = widget.settings
    panel.advanced.expand()
    qtbot.waitUntil(panel.why_no_gpu.isVisible)
    qtbot.waitUntil(
        lambda: (
            panel.why_no_gpu.height() >= panel.why_no_gpu.heightForWidth(panel.why_no_gpu.width())
        )
    )
    assert panel.why_no_gpu.height() > 3 * panel.device.fontMetrics().height()
    right = panel.why_no_gpu.mapTo(panel, panel.why_no_gpu.rect().bottomRight()).x()
    assert right < widget.area.viewport().width()
    widget.unbind()


def test_a_gpu_that_fails_is_named_once(viewer, widget, fit, make_movie, monkeypatch):
    pytest.importorskip("cupy")
    from failing_gpu import FailingGpu, errors
    from napari.utils.notifications import notification_manager

    def select_failing(settings, fits=None):
        failing = FailingGpu(errors()["lost"], first=1)
        return Fallback(failing, lambda: select_backend(settings.changed(backend="cpu")))

    monkeypatch.setattr(localize, "select_backend", select_failing)
    viewer.add_image(make_movie(3), name="movie")
    notification_manager.records.clear()
    assert fit(widget).startswith("12 spots in ")
    (warning,) = [r for r in notification_manager.records if "NVIDIA Test failed" in r.message]
    assert str(warning.severity) == "warning"
    assert "does the rest of this run" in warning.message
