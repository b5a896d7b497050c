"""Usable GPUs, or the reasons why there are none.

CUDA's own runtime, as CuPy brings it, runs here against a driver that is made on the
spot: it has a version, and starting it fails with a chosen error.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from napari_spotfit.engine.backend import BackendUnavailableError
from napari_spotfit.engine.cuda import devices

needs_cupy = pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")

PRINT_REASON = """
from napari_spotfit.engine.cuda import devices
from napari_spotfit.engine.backend import BackendUnavailableError
try:
    devices.usable()
except BackendUnavailableError as error:
    print(error)
"""

#: As if CuPy were not installed.
WITHOUT_CUPY = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "cupy":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Finder())
"""

DRIVER = """
extern "C" int cuDriverGetVersion(int *version) { *version = VERSION; return 0; }
extern "C" int cuInit(unsigned) { return INIT; }
"""


def run(code: str, *options: str, **environment: str) -> str:
    """Run a fresh Python with warnings as errors, and return its output."""
    inherited = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    command = [sys.executable, "-W", "error", *options, "-c", code]
    process = subprocess.run(
        command, env=inherited | environment, capture_output=True, encoding="utf-8"
    )
    assert process.returncode == 0, process.stderr
    assert not process.stderr
    return process.stdout.strip()


@pytest.fixture
def driver(tmp_path):
    """Return a function that makes a fake driver and returns an environment with it."""
    compiler = shutil.which("g++")
    if not sys.platform.startswith("linux") or compiler is None:
        pytest.skip("needs Linux and g++")

    def make(version: int = 13000, error: int = 100) -> dict[str, str]:
        source, library = tmp_path / "driver.cpp", tmp_path / "libcuda.so.1"
        source.write_text(DRIVER, encoding="utf-8")
        numbers = [f"-DVERSION={version}", f"-DINIT={error}"]
        subprocess.run([compiler, "-shared", "-fPIC", *numbers, "-o", library, source], check=True)
        return {"LD_LIBRARY_PATH": str(tmp_path)}

    return make


@pytest.fixture
def packages(tmp_path):
    """Return a folder in which packages can be put before the installed ones."""
    folder = tmp_path / "packages"
    folder.mkdir()
    return folder


def test_no_driver():
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        said = run(PRINT_REASON)
        assert "Macs" in said if sys.platform == "darwin" else "No NVIDIA driver" in said
    else:
        pytest.skip("has an NVIDIA driver")


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (13000, ["not installed", 'pip install "napari-spotfit[cuda13]"']),
        (14010, ["not installed", 'pip install "napari-spotfit[cuda13]"']),
        (12040, ["not installed", 'pip install "napari-spotfit[cuda12]"']),
        (11040, ["not installed", "CUDA 11.4", "Update the driver", "[cuda13]"]),
    ],
)
def test_cupy_is_not_installed(driver, version, words):
    said = run(WITHOUT_CUPY + PRINT_REASON, **driver(version))
    assert all(word in said for word in words), said


def test_cupy_installed_meanwhile_is_found(driver, packages):
    """The reason for a missing CuPy is not kept; the next one, once it is there, is."""
    (packages / "cupy.py").write_text("raise ImportError('broken')", encoding="utf-8")
    code = f"{WITHOUT_CUPY}{PRINT_REASON}\nsys.meta_path.pop(0)\n{PRINT_REASON}"
    said = run(code, **driver(), PYTHONPATH=str(packages))
    assert said.index("not installed") < said.index("ImportError: broken")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("from cupy import _core", "ImportError: cannot import name '_core'"),
        ("", "AttributeError: module 'cupy' has no attribute 'cuda'"),
        (
            "try:\n import ctypes; ctypes.CDLL('libnothing.so')\n"
            "except OSError as e:\n raise ImportError('=====\\nhelp\\n=====') from e",
            "OSError: libnothing.so: cannot open shared object file",
        ),
    ],
)
def test_a_broken_cupy(driver, packages, text, words):
    (packages / "cupy").mkdir()
    (packages / "cupy" / "__init__.py").write_text(text, encoding="utf-8")
    said = run(PRINT_REASON, **driver(12020), PYTHONPATH=str(packages))
    assert words in said
    assert "Reinstall it:\n" in said
    assert 'pip install "napari-spotfit[cuda12]"' in said


@needs_cupy
@pytest.mark.parametrize("warnings", ["error", "always"])
def test_several_cupys(driver, packages, warnings):
    """CuPy's own warning is neither raised nor printed."""
    for number in (12, 13):
        folder = packages / f"cupy_cuda{number}x-14.0.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: cupy-cuda{number}x\nVersion: 14.0.0\n", encoding="utf-8"
        )
    said = run(PRINT_REASON, "-W", warnings, **driver(12020), PYTHONPATH=str(packages))
    assert "cupy-cuda12x and cupy-cuda13x are installed at once" in said
    assert "pip uninstall cupy-cuda12x cupy-cuda13x" in said
    assert 'pip install "napari-spotfit[cuda12]"' in said


@needs_cupy
def test_the_driver_is_too_old_for_cupy(driver):
    said = run(PRINT_REASON, **driver(11040))
    assert "The NVIDIA driver (for CUDA 11.4) is too old for the installed CuPy" in said
    assert said.endswith("Update the driver.")


@needs_cupy
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (2, "out of memory). Close other programs"),
        (34, "LD_LIBRARY_PATH"),
        (46, "nvidia-smi -c 0"),
        (100, "The NVIDIA driver finds no GPU"),
        (802, "cudaErrorSystemNotReady: system not yet initialized). Start napari"),
        (803, "Restart it"),
        (999, "cudaErrorUnknown: unknown error). Start napari"),
    ],
)
def test_a_driver_that_does_not_start(driver, error, words):
    said = run(PRINT_REASON, **driver(99000, error))
    assert words in said


@pytest.mark.parametrize("value", ["", "-1", "-1,0"])
def test_hidden_gpus(driver, value):
    said = run(PRINT_REASON, **driver(), CUDA_VISIBLE_DEVICES=value)
    assert f"CUDA_VISIBLE_DEVICES={value!r} hides every GPU" in said
    assert "Remove this environment variable" in said


@needs_cupy
def test_gpus_that_do_not_exist(driver):
    said = run(PRINT_REASON, **driver(99000), CUDA_VISIBLE_DEVICES="7")
    assert "CUDA_VISIBLE_DEVICES='7' leaves no GPU visible" in said


@needs_cupy
def test_no_compiler(packages):
    import cupy

    installed = Path(cupy.__file__).parents[1]
    needed = ["cupy", "cupy_backends", "cupyx", "numpy", "numpy.libs", "scipy", "scipy.libs"]
    for name in (*needed, "cuda"):
        if (installed / name).exists():
            (packages / name).symlink_to(installed / name)
    source = Path(devices.__file__).parents[3]
    code = (
        "from napari_spotfit.engine.cuda import devices\n"
        "problem = devices.compiler_problem()\n"
        "computer = devices.Computer(driver=12020, cupy=12090, packages=('cupy-cuda12x',))\n"
        "print(devices.no_compiler(computer, problem) if problem else 'found')"
    )
    stub = packages / "pandas.py"
    stub.write_text("", encoding="utf-8")
    said = run(code, "-S", PYTHONPATH=os.pathsep.join([str(packages), str(source)]))
    if said == "found":
        pytest.skip("NVRTC is installed outside Python too")
    assert "NVRTC cannot be loaded" in said
    assert "libnvrtc" in said
    assert said.endswith('Run:\npip install "napari-spotfit[cuda12]"')


def test_nothing_is_imported_before_it_is_needed(driver):
    code = (
        "import sys, napari_spotfit\n"
        "from napari_spotfit.engine.select import select_backend\n"
        "settings = napari_spotfit.Settings()\n"
        "assert select_backend(settings.changed(backend='cpu')).name.startswith('CPU')\n"
        "assert select_backend(settings, use_gpu=False).name.startswith('CPU')\n"
        "print('cupy' in sys.modules)"
    )
    assert run(code, **driver()) == "False"


def test_gpus_have_a_name_together():
    gpus = [devices.Gpu(0, "NVIDIA H200", (9, 0)), devices.Gpu(1, "NVIDIA H200", (9, 0))]
    assert devices.names(gpus[:1]) == "NVIDIA H200"
    assert devices.names(gpus) == "2 × NVIDIA H200"
    gpus.append(devices.Gpu(2, "NVIDIA T4", (7, 5)))
    assert devices.names(gpus) == "2 × NVIDIA H200 + NVIDIA T4"


@pytest.mark.gpu
def test_the_gpu_here(gpu):
    (found,) = devices.usable("one")
    assert found.name
    assert found.capability >= devices.OLDEST
    assert found in devices.usable("all")
    assert devices.count() >= 1


@pytest.mark.gpu
def test_a_gpu_without_free_memory(gpu, monkeypatch):
    """As many bytes are asked for as no GPU has."""
    monkeypatch.setattr(devices, "LEAST_MEMORY", 1 << 60)
    with pytest.raises(BackendUnavailableError, match="MB of its memory free"):
        devices.usable("one")
