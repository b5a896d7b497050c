"""Controls made from the settings."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_type_hints

import pytest
from event_loop import settle
from qtpy.QtCore import QEvent, QObject, QPoint, QPointF, Qt
from qtpy.QtGui import QWheelEvent
from qtpy.QtWidgets import QApplication, QLabel, QToolTip

from napari_spotfit import Settings
from napari_spotfit.settings.settings import parameters
from napari_spotfit.settings.validation import Parameter, setting
from napari_spotfit.widgets.parts.boxes import NumberBox
from napari_spotfit.widgets.parts.form import SettingsForm, control_of, widget_for

#: What is held or bounded, and the noise, has no control of its own.
_APART = ("fixed", "bounds", "noise", "voxel_size")
NAMES = tuple(name for name in parameters() if name not in _APART)


def make_widget(name):
    """Return what magicgui has made for a setting."""
    hint, default = get_type_hints(Settings)[name], getattr(Settings(), name)
    return widget_for(name, hint, default, parameters()[name])


def make_control(name):
    """Return its Qt control, which the widget around it would take along."""
    widget = make_widget(name)
    control = control_of(widget)
    control.widget = widget
    return control


@pytest.fixture
def typed(qtbot):
    """Type into a control, as a user does, and leave it."""

    def type_into(control, text):
        qtbot.addWidget(control)
        control.lineEdit().selectAll()
        qtbot.keyClicks(control, text)
        qtbot.keyClick(control, Qt.Key.Key_Return)
        return control.get()

    return type_into


def test_every_setting_shows_its_default(qtbot):
    controls = SettingsForm()
    assert Settings(**controls.get()) == Settings()
    for name in controls.controls:
        assert parameters()[name].doc.split()[0] in control_of(controls[name]).toolTip()


def test_a_new_setting_has_its_row_without_any_widget_code(qtbot, typed):
    """All that a form knows is what the fields say of themselves."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Lamp:
        glow: float | None = setting(
            None, "Glow", "How bright it is.", "camera",
            unit="lm", minimum=0, step=0.5, none_means="dark",
        )  # fmt: skip
        bulbs: int = setting(3, "Bulbs", "How many.", "run", minimum=1, maximum=9, odd=True, step=2)
        colour: Literal["r", "g"] = setting(
            "r", "Colour", "What it shines.", "camera", words={"r": "red", "g": "green"}
        )
        lit: bool = setting(True, "Lit", "Whether it shines.", "run", shown="first")
        shade: str = setting("", "Shade", "What lies on it.", "fit", shown="apart")

    form = SettingsForm(Lamp)
    qtbot.addWidget(form.first.native)
    qtbot.addWidget(form.folded.native)
    rows = form.folded.native.layout()
    words = []
    for place in range(rows.count()):
        widget = rows.itemAt(place).widget()
        label = widget if isinstance(widget, QLabel) else widget.findChild(QLabel)
        words.append((label.text(), None if label is widget else label.buddy().accessibleName()))
        assert label is widget or label.toolTip() == label.buddy().toolTip() != ""
    groups = [("Camera", None), ("Glow", "Glow"), ("Colour", "Colour"), ("Run", None)]
    assert words == [*groups, ("Bulbs", "Bulbs")]
    assert form.get() == {"glow": None, "bulbs": 3, "colour": "r", "lit": True}
    assert (form["glow"].box.text(), form["colour"].native.currentText()) == ("dark", "red")
    assert form["lit"].native.text() == "Lit"
    assert typed(form["bulbs"].box, "5") == 5
    for _ in range(2):
        form["glow"].box.stepBy(1)
    form["colour"].native.setCurrentText("green")
    assert form.get() == {"glow": 0.5, "bulbs": 5, "colour": "g", "lit": True}
    assert "At least 0 lm; default dark" in form["glow"].tooltip


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("sigma", "1.75", 1.75),
        ("sigma", "1,75", 1.75),
        ("min_delta", "1e-4", 1e-4),
        ("roi_size", "13", 13),
        ("max_iterations", "50", 50),
        ("gain", "2.2", 2.2),
        ("background_min", "-5", -5),
        ("threads", "3", 3),
    ],
)
def test_typing(typed, name, text, value):
    assert typed(make_control(name), text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "before", "text", "accepts"),
    [
        ("sigma", 1.7, "99", "from 0.5 to 10 px"),
        ("sigma", None, "0.1", "from 0.5 to 10 px"),
        ("roi_size", 9, "8", "from 5 to 4095 px, odd"),
        ("roi_size", None, "9999", "from 5 to 4095 px, odd"),
        ("gain", 2.0, "0", "above 0 counts/e⁻"),
        ("threads", 2, "2.5", "from 1 to 1024"),
    ],
)
def test_what_is_out_of_range_is_refused_where_it_is_typed(
    typed, qtbot, name, before, text, accepts
):
    control = make_control(name)
    control.put(before)
    qtbot.addWidget(control)
    control.show()
    qtbot.waitExposed(control)
    control.lineEdit().selectAll()
    qtbot.keyClicks(control, text)
    assert "color" in control.lineEdit().styleSheet()  # before it is entered
    qtbot.keyClick(control, Qt.Key.Key_Return)
    assert control.get() == before
    assert QToolTip.text() == f"“{text}” is not accepted: {accepts}"
    assert control.lineEdit().styleSheet() == ""


def test_nothing_means_none(typed):
    control = make_control("sigma_min")
    assert control.text() == parameters()["sigma_min"].none_means
    control.put(1.5)
    assert control.get() == 1.5
    assert typed(control, "") == 1.5
    control.lineEdit().clear()
    assert control.get() is None


def test_a_look_at_the_numbers_draws_nothing(qtbot):
    """Beside a canvas of OpenGL, Qt would compose the whole window for it."""
    form, drawn = SettingsForm(), []

    class Watch(QObject):
        def eventFilter(self, watched, event):
            drawn.extend([watched] * (event.type() == QEvent.Type.Paint))
            return False

    qtbot.addWidget(form.folded.native)
    form.folded.native.show()
    qtbot.waitExposed(form.folded.native)
    settle()
    watch = Watch()
    for control in form.controls.values():
        control_of(control).installEventFilter(watch)
    form.get()
    settle()
    assert drawn == []


@pytest.mark.parametrize("text", ["a", "auto", "Automatic"])
def test_the_word_is_typed_for_automatic(typed, text):
    control = make_control("sigma")
    control.put(1.5)
    assert typed(control, text) is None
    assert control.text() == "automatic"


def test_what_an_image_tells_is_shown_and_begun_with(typed, qtbot):
    control, roi = make_control("sigma"), make_control("roi_size")
    control.show_estimate(1.3056)
    roi.show_estimate((9, 13))
    assert (control.get(), control.text()) == (None, "automatic (1.31 px)")
    assert (roi.get(), roi.text()) == (None, "automatic (9×13 px)")
    control.stepBy(1)
    assert control.get() == pytest.approx(1.4056)
    control.put(0.5)
    control.stepBy(-1)
    assert control.text() == "automatic (1.31 px)"
    control.show_estimate(None)
    assert control.text() == "automatic"


def test_words_that_stand_for_a_number_are_typed_over(qtbot):
    control = make_control("sigma")
    qtbot.addWidget(control)
    control.show()
    control.setFocus()
    edit = control.lineEdit()
    edit.deselect()
    edit.setCursorPosition(4)
    qtbot.keyClicks(control, "2.")
    control.show_estimate(1.31)  # what is found meanwhile does not disturb
    qtbot.keyClicks(control, "5")
    qtbot.keyClick(control, Qt.Key.Key_Return)
    assert control.get() == 2.5
    for _ in range(8):
        qtbot.keyClick(control, Qt.Key.Key_Backspace)
    qtbot.keyClick(control, Qt.Key.Key_Return)
    assert (control.get(), control.text()) == (None, "automatic (1.31 px)")
    edit.end(False)
    qtbot.keyClick(control, Qt.Key.Key_Backspace)
    qtbot.keyClicks(control, "3")
    qtbot.keyClick(control, Qt.Key.Key_Return)
    assert control.get() == 3


@pytest.mark.parametrize(
    ("unit", "text", "value"),
    [
        ("nm", "100 µm", 100_000), ("nm", "0,1um", 100), ("nm", "130 nm", 130), ("nm", "130", 130),
        ("nm", "1e-4 mm", 100), ("µm", "130 nm", 0.13), ("µm", "2 \u03bcm", 2),
        # No unit is dropped that is known: the whole is refused while it is not typed to its end.
        ("nm", "100 µ", 7),
    ],
)  # fmt: skip
def test_lengths_in_other_units_are_converted(unit, text, value, qtbot, typed):
    about = Parameter("Pixel size", "", "camera", unit=unit, minimum=0, step=0.01)
    box = NumberBox(about)
    box.put(7)
    qtbot.addWidget(box)
    box.lineEdit().selectAll()
    QApplication.clipboard().setText(text)
    box.lineEdit().paste()
    qtbot.keyClick(box, Qt.Key.Key_Return)
    assert box.get() == pytest.approx(value)
    if text.isascii():
        assert typed(box, text) == pytest.approx(value)
    assert box.text().endswith(f" {unit}")


@pytest.mark.parametrize(
    ("unit", "one", "two"),
    [("frames", "1 frame", "2 frames"), ("counts/px", "1 count/px", "2 counts/px"),
     ("px", "1 px", "2 px"), ("", "1", "2")],
)  # fmt: skip
def test_one_of_a_unit_is_singular(unit, one, two, qtbot, typed):
    parameter = Parameter("Length", "", "fit", unit=unit, none_means="all")
    box = NumberBox(parameter, optional=True)
    qtbot.addWidget(box)
    box.put(2)
    assert box.text() == two
    assert NumberBox(parameter, value=1).text() == one
    assert typed(box, "1") == 1
    assert box.text() == one
    box.show_number(2)
    assert box.text() == two
    box.stepBy(-1)
    assert box.text() == one
    box.show_number(None)
    assert box.text() == "all"
    assert typed(box, "2") == 2
    assert box.text() == two


def test_numbers_are_short(qtbot):
    assert make_control("min_delta").text() == "1e-6"
    sigma, roi = make_control("sigma"), make_control("roi_size")
    assert sigma.text() == roi.text() == "automatic"
    sigma.put(1.3)
    roi.put(9)
    assert (sigma.text(), roi.text()) == ("1.3 px", "9 px")
    assert make_control("offset").text() == "0 counts"


@pytest.mark.parametrize(
    ("name", "steps", "value"),
    [
        ("sigma", 2, 1.5),
        ("roi_size", 1, 11),
        ("roi_size", -9, 5),
        ("false_spots", 1, 100),
        ("false_spots", -2, 0.1),
        ("min_delta", 1, 1e-5),
        ("min_delta", -1, 1e-7),
        ("gain", 1, 0.1),
        ("amplitude_min", 1, 0),
        ("roi_size", -1, 7),
    ],
)
def test_steps(qtbot, name, steps, value):
    control = make_control(name)
    control.stepBy(steps)
    assert control.get() == pytest.approx(value)
    Settings(**{name: control.get()})


@pytest.mark.parametrize("name", NAMES)
def test_both_ends_are_valid_settings(qtbot, name):
    control = make_control(name)
    # σ has a lower bound by itself, so that not every upper one goes without another.
    others = {"sigma_min": 1e-3} if name == "sigma_max" else {}
    if isinstance(control, NumberBox):
        for steps in (100_000, -200_000):
            control.stepBy(steps)
            Settings(**{name: control.get()}, **others)


def test_values_that_are_no_settings_are_left_out(qtbot):
    controls = SettingsForm()
    controls.put({"sigma": -1, "roi_size": [7, 9], "gain": "much", "nonsense": 3, "offset": 90})
    assert Settings(**controls.get()) == Settings(offset=90)


def test_reset(qtbot):
    controls = SettingsForm()
    controls.put(dataclasses.asdict(Settings(roi_size=9, sigma=2, gain=3, errors=False, threads=1)))
    controls.reset()
    assert Settings(**controls.get()) == Settings()


@pytest.mark.parametrize("name", ["sigma", "backend"])
def test_the_wheel_does_not_change_a_control_in_passing(qtbot, name):
    control = make_widget(name)
    qtbot.addWidget(control.native)
    before = control.value
    place = QPointF(5, 5)
    down = QPoint(0, -120)
    none = Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False
    wheel = QWheelEvent(place, place, down, down, Qt.MouseButton.NoButton, *none)
    QApplication.sendEvent(control_of(control), wheel)
    assert control.value == before
