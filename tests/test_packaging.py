"""Every kind of install has the manifest, the kernels and the compiled library, and is light."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import build
import pytest
import yaml
from checkout import ROOT, share_compiled
from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import parse_wheel_filename

import napari_spotfit

INSTALLS = ["wheel from the checkout", "wheel from the sdist", "editable"]

BASE_DEPENDENCIES = {
    "click",
    "magicgui",
    "numpy",
    "pandas",
    "pyqtgraph",
    "qtpy",
    "scipy",
    "superqt",
}
BASE_DEPENDENCIES |= {"tifffile"}

#: What the public names must leave to the functions that need it.
HEAVY = {"cupy", "magicgui", "napari", "pandas", "pyarrow", "pyqtgraph", "qtpy", "scipy", "superqt"}
HEAVY |= {"click", "nd2", "ndtiff", "tifffile", "yaml", "zarr"}
HEAVY |= {"PyQt5", "PyQt6", "PySide2", "PySide6"}


def run(*command: object) -> str:
    """Run a command and return its output."""
    # With no PYTHONPATH, which would bring in the checkout itself.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(
        [str(part) for part in command], capture_output=True, encoding="utf-8", env=environment
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packaging")


@pytest.fixture(scope="module")
def sdist(folder: Path) -> Path:
    return Path(build.ProjectBuilder(ROOT).build("sdist", folder))


@pytest.fixture(scope="module")
def source_tree(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    tree = folder / sdist.name.removesuffix(".tar.gz")
    share_compiled(tree)
    return tree


@pytest.fixture(scope="module")
def wheels(source_tree: Path, folder: Path) -> dict[str, Path]:
    """Return the wheel that pip installs, for every kind of install."""
    # The editable one comes first, so that its links lie in wait for the next build.
    builds = {
        "editable": (source_tree, "editable"),
        "wheel from the sdist": (source_tree, "wheel"),
        "wheel from the checkout": (ROOT, "wheel"),
    }
    return {
        kind: Path(build.ProjectBuilder(tree).build(target, folder / kind))
        for kind, (tree, target) in builds.items()
    }


@pytest.fixture(scope="module", params=INSTALLS)
def python(request: pytest.FixtureRequest, wheels: dict[str, Path], folder: Path) -> Path:
    """Python of a fresh environment with the package, its dependencies borrowed from ours."""
    place = folder / f"environment for {request.param}"
    venv.create(place, with_pip=False)
    paths = sysconfig.get_paths("venv", vars={"base": str(place), "platbase": str(place)})
    python = Path(paths["scripts"]) / ("python.exe" if sys.platform == "win32" else "python")
    pip = [sys.executable, "-m", "pip", f"--python={python}"]
    run(*pip, "install", "--no-deps", "--no-index", wheels[request.param])
    borrowed = Path(paths["purelib"]) / "borrowed.pth"
    borrowed.write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return python


@pytest.fixture(scope="module")
def metadata(wheels: dict[str, Path]) -> Message:
    with zipfile.ZipFile(wheels["wheel from the checkout"]) as wheel:
        (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(wheel.read(name).decode())


def test_package_comes_from_the_fresh_environment(python: Path, folder: Path) -> None:
    code = "import napari_spotfit; print(napari_spotfit.__file__)"
    assert Path(run(python, "-c", code).strip()).is_relative_to(folder)


def test_command_is_installed(python: Path) -> None:
    command = python.with_name(f"napari-spotfit{python.suffix}")
    assert run(command, "--version").split()[-1] == napari_spotfit.__version__


def test_npe2_finds_the_manifest_and_its_commands_exist(python: Path) -> None:
    code = (
        "import npe2, pkgutil;"
        "manifest = npe2.PluginManifest.from_distribution('napari-spotfit');"
        "names = [command.python_name for command in manifest.contributions.commands];"
        "print(*(name for name in names if callable(pkgutil.resolve_name(name))))"
    )
    commands = run(python, "-c", code).split()
    assert commands[0] == "napari_spotfit.widgets.fit_spots:FitSpots"
    for name in ("results:Results", "track:Track"):
        assert f"napari_spotfit.widgets.{name}" in commands
    manifest = (ROOT / "napari.yaml").read_text(encoding="utf-8")
    assert len(commands) == manifest.count("python_name:")


def test_kernels_are_found(python: Path) -> None:
    code = (
        "from importlib.resources import files; from pathlib import Path;"
        "kernels = Path(files('napari_spotfit') / 'kernels');"
        "print(*(path.relative_to(kernels).as_posix() for path in kernels.rglob('*')))"
    )
    kernels = ROOT / "kernels"
    assert set(run(python, "-c", code).split()) == {
        path.relative_to(kernels).as_posix() for path in kernels.rglob("*")
    }


def test_library_is_found_and_no_other_is_built(python: Path, folder: Path) -> None:
    code = (
        "from napari_spotfit.engine.cpu.library import load;"
        "print(load().path); print(load().description)"
    )
    path, description = run(python, "-c", code).splitlines()
    assert Path(path).is_relative_to(folder)
    version = re.escape(napari_spotfit.__version__)
    assert re.fullmatch(rf"library {version}, (sse42|avx2|avx512|neon)", description)


@pytest.mark.parametrize("names", ["", "from napari_spotfit import *"])
def test_import_is_light(python: Path, names: str) -> None:
    code = (
        f"import sys, napari_spotfit; {names or 'pass'};"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    assert not HEAVY & set(run(python, "-c", code).split())


def test_wheels_have_the_same_files(wheels: dict[str, Path]) -> None:
    contents = {}
    for kind in ("wheel from the checkout", "wheel from the sdist"):
        with zipfile.ZipFile(wheels[kind]) as wheel:
            contents[kind] = sorted(wheel.namelist())
        assert len(contents[kind]) == len(set(contents[kind]))
    assert contents["wheel from the checkout"] == contents["wheel from the sdist"]


def test_wheel_is_for_this_machine_and_any_python(wheels: dict[str, Path]) -> None:
    for kind in ("wheel from the checkout", "wheel from the sdist"):
        tags = parse_wheel_filename(wheels[kind].name)[3]
        assert {(tag.interpreter, tag.abi) for tag in tags} == {("py3", "none")}
        assert "any" not in {tag.platform for tag in tags}
        assert tags & set(sys_tags())


def test_base_install_brings_no_qt_binding(metadata: Message) -> None:
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    base = [requirement for requirement in requirements if requirement.marker is None]
    assert {requirement.name for requirement in base} == BASE_DEPENDENCIES
    for requirement in base:
        assert [clause.operator for clause in requirement.specifier] == [">="]


def test_extras(metadata: Message) -> None:
    assert set(metadata.get_all("Provides-Extra", [])) == {
        "all",
        "analysis",
        "cuda12",
        "cuda13",
        "dask",
        "hdf5",
        "images",
        "microscope",
        "nd2",
        "ndtiff",
        "parquet",
        "tracking",
    }


def test_sdist_has_what_development_needs(source_tree: Path) -> None:
    for name in ("Makefile", "tests/test_packaging.py", "tools/system-packages.sh", "LICENSE"):
        assert (source_tree / name).is_file()


def test_requirements_are_the_same_wherever_they_are_written() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    required = project["build-system"]["requires"]
    assert project["dependency-groups"]["build"] == required
    text = (ROOT / "tools" / "conda-recipe" / "recipe.yaml").read_text(encoding="utf-8")
    recipe = yaml.safe_load(text)
    assert recipe["context"]["version"] == napari_spotfit.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == napari_spotfit.__version__
    python = f"python{project['project']['requires-python']}"
    run = {Requirement(text) for text in recipe["requirements"]["run"]}
    assert run == {Requirement(text) for text in [python, *project["project"]["dependencies"]]}
