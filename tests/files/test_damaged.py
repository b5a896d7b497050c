"""Damaged files are read, or cause the documented error, which names them."""

from __future__ import annotations

import warnings

import damage
import pytest

import napari_spotfit as spotfit
from napari_spotfit.analysis.filters import read_filters


@pytest.fixture(scope="module", params=damage.KINDS)
def damaged_files(request, tmp_path_factory):
    """Damaged files of a kind, and their reader."""
    writers, read = damage.KINDS[request.param]
    return damage.Damage(tmp_path_factory.mktemp(request.param), writers), read


def test_files_that_are_whole_are_read(damaged_files):
    files, read = damaged_files
    assert {damage.outcome(path, read) for path in files.whole} == {"read"}


@pytest.mark.parametrize("block", range(20))
def test_damaged_files(damaged_files, block):
    """More of them are read by ``make damaged``."""
    files, read = damaged_files
    for seed in range(block * 20, (block + 1) * 20):
        path = files.path(seed)
        assert damage.outcome(path, read) in damage.GOOD, f"{path.name}, seed {seed}"


OTHERS = {
    "a.drift.csv": (spotfit.load_drift, ValueError),
    "a.drift.txt": (spotfit.load_drift, ValueError),
    "a.parquet": (spotfit.read_log, ValueError),
    "a.json": (spotfit.ChannelRegistration.load, ValueError),
    "a.filters.json": (read_filters, ValueError),
    "a.toml": (spotfit.load_settings, ValueError),
}
CONTENTS = {
    "nothing": b"",
    "zeros": bytes(3000),
    "deep": b"[" * 100_000,
    "deeper": b'{"a":' * 100_000,
    "digits": b"a = " + b"9" * 9000,
    "bytes": bytes(range(256)) * 20,
    "text": b"frame,y,x,y_stderr,x_stderr,used\n0,1e999,a,b,c,9999999999999999999999\n",
    "numbers": b"1 2 3 4\n" * 20,
    "parquet": b"PAR1" + bytes(100) + b"\xff\xff\xff\x7fPAR1",
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", OTHERS)
def test_other_files_end_in_the_documented_error(name, content, tmp_path):
    path, (read, error) = tmp_path / name, OTHERS[name]
    path.write_bytes(CONTENTS[content])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(error, match=f"“{name}”"):
            read(path)
