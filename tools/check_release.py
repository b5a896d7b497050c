"""Check what is released: the files in dist/, and the wheel in environments that have little.

`make release-check` builds the files first. Environments are made in .venv-release; those of napari
need a display.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

from build_library import TARGETS
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename
from test_napari import REQUIREMENTS

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".venv-release"
#: What the hub shows of a plugin, and needs to find it.
NEEDED = ("Name", "Version", "Summary", "Author", "License-Expression", "Requires-Python",
          "Description-Content-Type", "Keywords")  # fmt: skip
LINKS = {"Homepage", "Documentation", "Source", "Issues", "Changelog"}

#: What a user sees who has neither Qt, napari, GPU, network nor pyarrow.
BARE = """
import socket
def refused(*_): raise AssertionError("the network was used")
socket.socket.connect = socket.getaddrinfo = refused
import napari_spotfit as spotfit
movie, truth = spotfit.simulate_movie(10, seed=1)
fits = spotfit.localize(movie)
assert 400 < fits.good.sum() < 460, fits.good.sum()
def message(work):
    try:
        work()
    except (ImportError, RuntimeError) as error:
        return str(error)
print(json.dumps({
    "gpu": message(lambda: spotfit.localize(movie, backend="cuda")),
    "parquet": message(lambda: fits.save("a.spots.parquet")),
    "napari": message(lambda: spotfit.to_points_layer(fits)),
    "tracks": message(lambda: spotfit.link_spots(fits, 1)),
}))
"""
#: Opens every widget by its name in the manifest, and fits the sample.
VIEWER = """
import napari, npe2
from qtpy.QtCore import QEventLoop, QTimer
viewer = napari.Viewer()
manifest = npe2.PluginManifest.from_distribution("napari-spotfit")
viewer.open_sample("napari-spotfit", "molecules")
widgets = {}
for one in manifest.contributions.widgets:
    name = one.display_name
    widgets[name] = viewer.window.add_plugin_dock_widget("napari-spotfit", name)[1]
widget, wait = widgets["Fit spots"], QEventLoop()
widget.finished.connect(wait.quit)
widget.fit_button.click()
QTimer.singleShot(300_000, wait.quit)
wait.exec()
layers = [one for one in viewer.layers if one.name.endswith(" spots")]
assert len(layers) == 1, f"no fits after five minutes: {widget.status.text()}"
layer = layers[0]
assert layer.features["good"].mean() > 0.9 and len(layer.data) > 1000, len(layer.data)
print(napari.__version__, len(widgets), "widgets,", len(layer.data), "spots")
viewer.close()
"""


def run(*command: object, ok: bool = True, **more: str) -> str:
    """Run a command without the checkout on its path; return its output, or why it failed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, encoding="utf-8",
        env=kept | more, cwd=ENVIRONMENTS,
    )  # fmt: skip
    if ok != (done.returncode == 0):
        said = " ".join(str(part) for part in command[:4])
        raise SystemExit(f"{said} … ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    # Warnings are no part of what is read.
    return done.stdout if ok else done.stdout + done.stderr


def environment(name: str, *requirements: object) -> Path:
    """Return the Python of a new environment with some packages."""
    folder = ENVIRONMENTS / name
    venv.create(folder, clear=True, with_pip=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    run(python, "-m", "pip", "install", "--quiet", *requirements)
    return python


def check_files(dist: Path) -> Path:
    """Check names, metadata, manifest and licence of all files; return this machine's wheel."""
    wheels, sources = sorted(dist.glob("*.whl")), sorted(dist.glob("*.tar.gz"))
    if not wheels or len(sources) != 1:
        sys.exit(f"{dist} must have wheels and one sdist: make wheels builds them")
    (source,) = sources
    platforms = {tag.platform for one in wheels for tag in parse_wheel_filename(one.name)[3]}
    print(f"{source.name}, {len(wheels)} of {len(TARGETS)} wheels: {', '.join(sorted(platforms))}")
    run(sys.executable, "-m", "twine", "check", "--strict", source, *wheels)
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            (info,) = (name for name in names if name.endswith(".dist-info/METADATA"))
            about = Parser().parsestr(wheel.read(info).decode())
            licence = wheel.read(f"{Path(info).parent.as_posix()}/licenses/LICENSE").decode()
        missing = [name for name in NEEDED if not about[name]]
        links = {one.partition(",")[0] for one in about.get_all("Project-URL", [])}
        assert not missing, f"{path.name} lacks {missing}"
        assert links >= LINKS, f"{path.name} lacks links: {LINKS - links}"
        assert "Framework :: napari" in about.get_all("Classifier", []), path.name
        assert about["Description-Content-Type"] == "text/markdown", path.name
        pictures = re.findall(r"!\[[^]]*\]\(([^)]+)", str(about.get_payload()))
        assert pictures, "the description has no picture"
        assert all(one.startswith("https://") for one in pictures), pictures
        # All that is bundled is ours: the library's runtime of LLVM and zig may be linked into it
        # without a notice, and no other file comes along.
        assert licence == (ROOT / "LICENSE").read_text(encoding="utf-8"), path.name
        more = {name.split("/")[0] for name in names} - {"napari_spotfit", info.split("/")[0]}
        assert not more, f"{path.name} also has {sorted(more)}"
    with tarfile.open(source) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    lacks = {"LICENSE", "CITATION.cff", "kernels/README.md", "tools/build_library.py"} - inside
    assert not lacks, f"{source.name} lacks {sorted(lacks)}"
    here = set(sys_tags())
    ours = [one for one in wheels if parse_wheel_filename(one.name)[3] & here]
    if not ours:
        sys.exit(f"{dist} has no wheel for this machine: make wheels builds one")
    return ours[0]


def check_bare(wheel: Path, source: Path) -> None:
    """Check the base package alone: fits work, and what is missing is named with its cure."""
    python = environment("bare", wheel)
    said = json.loads(run(python, "-c", f"import json{BARE}").splitlines()[-1])
    for what, words in {"gpu": "NVIDIA", "parquet": "pip install", "napari": "pip install",
                        "tracks": "pip install"}.items():  # fmt: skip
        assert words in (said[what] or ""), f"{what}: {said[what]!r}"
        print(f"without {what}: {said[what].splitlines()[0]}")
    command = python.with_name("napari-spotfit")
    print(run(command, "demo", "-o", ENVIRONMENTS).strip())
    print(run(command, "info").strip())
    failed = run(
        python, "-m", "pip", "install", "--no-deps", "--force-reinstall", source,
        CXX=str(ENVIRONMENTS / "no-compiler"), ok=False,
    )  # fmt: skip
    assert "no-compiler" in failed, failed
    print("without a compiler: the build names the one that is missing")


def main() -> None:
    """Check everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist", help="[dist]")
    dist = parser.parse_args().folder.resolve()
    ENVIRONMENTS.mkdir(exist_ok=True)
    wheel = check_files(dist)
    check_bare(wheel, next(dist.glob("*.tar.gz")))
    oldest, *_, newest = REQUIREMENTS.values()
    for name, requirement in (("oldest", oldest), ("newest", newest)):
        python = environment(name, requirement, wheel)
        run(python, "-m", "npe2", "validate", "napari_spotfit")
        print(f"{name} napari:", run(python, "-c", VIEWER).strip().splitlines()[-1])


if __name__ == "__main__":
    main()
