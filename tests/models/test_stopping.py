"""Stop conditions are the same in Python and in the kernels."""

from __future__ import annotations

import re

import pytest
from checkout import ROOT

from napari_spotfit import StopCondition
from napari_spotfit.models.estimators import ROUNDING

KERNELS = (ROOT / "kernels" / "stopping.h").read_text(encoding="utf-8")


def constant(name):
    return float(re.search(rf"\b{name} = ([-+.e\d]+)f\b", KERNELS)[1])


def test_rounding_is_that_of_the_kernels():
    assert constant("ROUNDING") == ROUNDING


@pytest.mark.parametrize("condition", [one for one in StopCondition if one.name != "UNKNOWN"])
def test_conditions_have_the_codes_of_the_kernels(condition):
    assert constant(f"STOP_{condition.name}") == condition
    assert "STOP_UNKNOWN" not in KERNELS
