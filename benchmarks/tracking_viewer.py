"""Tracking with the widget open: frames a second, frames dropped, latency.

The simulated camera streams from a thread of the same process, and takes time of it, too.
"""

from __future__ import annotations

import argparse
import time

import napari
from qtpy.QtWidgets import QApplication

from napari_spotfit.widgets.track import Track

ASKED = 1000.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--rate", type=float, default=ASKED, help="frames a second")
    given = parser.parse_args()
    viewer = napari.Viewer()
    widget = Track(viewer)
    viewer.window.add_dock_widget(widget, name=Track.title)
    widget.form.rate.value = given.rate
    widget.start()
    end = time.perf_counter() + given.seconds
    while time.perf_counter() < end and widget.running:
        QApplication.processEvents()
        time.sleep(0.001)
    begun = time.perf_counter()
    widget.stop()
    seen = widget.seen
    assert seen is not None
    seconds = given.seconds + time.perf_counter() - begun
    missed = "" if seen.frames / seconds >= 0.99 * ASKED and not seen.dropped else ": MISSED"
    print(
        f"20 fiducials, {given.seconds:.0f} s, {given.rate:.0f}/s asked: "
        f"{seen.frames / seconds:.0f} frames/s, {seen.dropped} dropped{missed}; latency "
        f"{1000 * seen.latency:.2f} ms, worst {1000 * seen.worst:.1f}, {seen.late} late"
    )
    viewer.close()


if __name__ == "__main__":
    main()
