"""Hostile files cause the documented error or are read right, without running or opening others.

Nor do they take much memory or time.
"""

from __future__ import annotations

import signal
import warnings
from pathlib import Path

import damage
import numpy as np
import pytest
from hostile import RAN, SECRET
from hostile_images import HOSTILE

from napari_spotfit import load_fits, open_image
from napari_spotfit.files.table import UnreadableFileError
from napari_spotfit.images.files.image_file import UnreadableImageError

#: Seconds of the processor, and bytes, beyond what the tests take without.
TIME, MEMORY = 5, 1 << 30


def resident(name):
    """Return a memory size of this process; 0 if the system does not report it."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


@pytest.fixture
def limited():
    """Limit the time, and check the memory."""

    def end(*_):
        raise TimeoutError(f"it took more than {TIME} s of the processor")

    def begin():
        before.append(resident("VmRSS"))
        if (peak := Path("/proc/self/clear_refs")).exists():
            peak.write_text("5")
        signal.setitimer(signal.ITIMER_PROF, TIME)

    before = []
    old = signal.signal(signal.SIGPROF, end)
    yield begin
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, old)
    assert resident("VmHWM") - before[0] < MEMORY


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a system that can stop it")
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name, tmp_path, limited, monkeypatch):
    folder = tmp_path / "inside"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path, message = HOSTILE[name](folder)
        limited()
        if path.suffix in damage.IMAGE_ENDINGS or path.is_dir():
            kind, read = UnreadableImageError, read_image
        else:
            kind, read = UnreadableFileError, read_table
        if message is None:
            assert SECRET not in read(path)
        else:
            with pytest.raises(kind, match=f"^“{name_of(path)}” cannot be .*({message})"):
                read(path)
    assert not (folder / RAN).exists()


def name_of(path):
    """Return the name of a file, or of the folder that is opened with it."""
    return path.parent.name if (path.parent / "NDTiff.index").exists() else path.name


def read_image(path):
    image = open_image(path)
    return np.unique(image[(0,) * (image.ndim - 2)])


def read_table(path):
    if path.suffix == ".toml":
        damage.read_table(path)
    return load_fits(path, pixel_size=100).columns["x"]


def test_there_are_many_kinds():
    assert len(HOSTILE) >= 40
