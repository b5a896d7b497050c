"""Messages on why no GPU can be used: each has a cause and a remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from napari_spotfit.engine.cuda import devices
from napari_spotfit.engine.cuda.devices import Computer

PAGE = (Path(__file__).parents[3] / "docs" / "gpu.md").read_text(encoding="utf-8")

CUPY12 = Computer(driver=12040, cupy=12090, packages=("cupy-cuda12x",))
CUPY13 = CUPY12._replace(cupy=13020, packages=("cupy-cuda13x",))


def test_the_driver_decides_which_cupy():
    for driver, extra in (
        (12020, "cuda12"),
        (12090, "cuda12"),
        (13000, "cuda13"),
        (14000, "cuda13"),
    ):
        said = devices.not_installed(Computer(driver=driver))
        assert said.endswith(f'Run:\npip install "napari-spotfit[{extra}]"')


def test_a_driver_for_the_other_cupy():
    assert devices.failed(CUPY13, 35, "").splitlines() == [
        "The NVIDIA driver (for CUDA 12.4) is too old for the installed CuPy (for CUDA 13.2). "
        "Update the driver, or install the CuPy for it:",
        "pip uninstall cupy-cuda13x",
        'pip install "napari-spotfit[cuda12]"',
    ]


def test_no_driver_although_cupy_is_there():
    said = devices.failed(CUPY13._replace(driver=0), 35, "")
    assert said == devices.no_driver(CUPY13)
    assert "pip" not in said
    assert "pip install" in devices.no_driver(Computer())
    assert "Mac" in devices.no_driver(Computer(platform="darwin"))


def test_the_compiler_is_the_one_for_cupy():
    """A new driver runs the older CuPy, whose compiler is the older one too."""
    said = devices.no_compiler(CUPY12._replace(driver=13000), RuntimeError("no libnvrtc.so.12"))
    assert "(RuntimeError: no libnvrtc.so.12)" in said
    assert said.endswith('pip install "napari-spotfit[cuda12]"')


def test_a_cupy_from_elsewhere_is_replaced():
    said = devices.no_compiler(CUPY12._replace(packages=("cupy",)), RuntimeError("no libnvrtc"))
    assert "pip uninstall cupy\n" in said
    said = devices.not_cuda(Computer(driver=13000, packages=("cupy-rocm-7-0",)))
    assert "pip uninstall cupy-rocm-7-0\n" in said


def test_an_old_gpu():
    said = devices.too_old("NVIDIA GeForce GTX 1080", (6, 1))
    assert said.startswith("NVIDIA GeForce GTX 1080 is too old: its compute capability is 6.1")


def test_a_full_gpu():
    said = devices.no_memory("NVIDIA T4", 12 << 20)
    assert said.startswith("NVIDIA T4 has only 12 MB of its memory free, and 128 MB are needed.")
    assert "nvidia-smi" in said


@pytest.mark.parametrize(
    ("value", "hides"),
    [
        (None, False), ("", True), (" ", True), ("-1", True), ("NoDevFiles", True),
        ("0", False), ("0,-1", False), ("GPU-8932f937", False),
    ],
)  # fmt: skip
def test_what_hides_all_gpus(value, hides):
    assert devices.hides_all(value) is hides


def everything() -> list[str]:
    """Return all messages, for different computers."""
    error = RuntimeError("no such file")
    several = CUPY12._replace(packages=("cupy-cuda12x", "cupy-cuda13x"))
    hidden = CUPY12._replace(visible="7")
    codes = (2, 34, 46, 100, 803, 999)
    return [
        devices.hidden(Computer(visible="")),
        devices.no_driver(Computer()),
        devices.no_driver(Computer(platform="darwin")),
        devices.not_installed(Computer(driver=12040)),
        devices.not_installed(Computer(driver=11040)),
        devices.not_importable(CUPY12, error),
        devices.not_importable(several, error),
        devices.not_cuda(Computer(driver=13000, packages=("amd-cupy",))),
        devices.no_compiler(CUPY12, error),
        devices.failed(CUPY13, 35, ""),
        devices.failed(CUPY13._replace(driver=11080), 35, ""),
        devices.failed(hidden, 100, ""),
        *(devices.failed(CUPY12, code, "cudaError: no") for code in codes),
        devices.too_old("NVIDIA GeForce GTX 1080", (6, 1)),
        devices.no_memory("NVIDIA T4", 12 << 20),
    ]


def test_sentences_end_as_sentences_and_commands_as_commands():
    for said in everything():
        first, *commands = said.splitlines()
        assert first.endswith(":" if commands else "."), said
        assert all(re.match(r"pip (un)?install |nvidia-smi ", line) for line in commands), said


def test_the_page_on_gpus_quotes_what_is_said():
    table = PAGE.partition("| What is said |")[2].partition("\n\n")[0]
    quoted = re.findall(r"^\| “(.+?)” \|", table, re.MULTILINE)
    assert len(quoted) >= 10
    for words in quoted:
        parts = [part.strip() for part in words.split("…") if part.strip()]
        assert any(all(part in said for part in parts) for said in everything()), words
