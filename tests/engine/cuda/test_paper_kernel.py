"""What the benchmark compares with, the paper's design, compiles."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import nvrtc
import pytest

from napari_spotfit.engine.cuda.compile import options

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.parametrize("shape", [(7, 7), (32, 32)])
def test_the_kernel_compiles_without_a_word(shape):
    spec = importlib.util.spec_from_file_location("paper_kernel", BENCHMARKS / "paper_kernel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows, columns = shape
    made = nvrtc.compiler().compile(module.text(), 90, options(ROWS=rows, COLUMNS=columns))
    assert made.log == ""
