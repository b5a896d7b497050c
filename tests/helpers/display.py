"""A virtual display for each process with windows.

Only one window of a display has the keyboard, and there is one clipboard: processes that work
side by side need a display each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


def own_display() -> subprocess.Popen[bytes] | None:
    """Start a virtual display for this process if it needs one.

    That is where there is no other display, and for a worker of pytest-xdist. Call it before Qt
    opens the display; the virtual one goes with the process, even when that is killed.
    """
    there_is_one = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    worker = "PYTEST_XDIST_WORKER" in os.environ
    if sys.platform != "linux" or (there_is_one and not (worker and shutil.which("Xvfb"))):
        return None
    reader, writer = os.pipe()
    command = ["Xvfb", "-displayfd", str(writer), "-screen", "0", "1280x1024x24"]
    nothing = subprocess.DEVNULL
    server = subprocess.Popen(
        # It ends when its only client does. Ctrl-C in the terminal is not for it.
        [*command, "-nolisten", "tcp", "-terminate"],
        pass_fds=[writer], start_new_session=True, stdin=nothing, stdout=nothing, stderr=nothing,
    )  # fmt: skip
    os.close(writer)
    with os.fdopen(reader) as answer:
        number = answer.readline().strip()
    assert number, "Xvfb found no free display"
    os.environ |= {"DISPLAY": f":{number}", "QT_QPA_PLATFORM": "xcb"}
    return server
