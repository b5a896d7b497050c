"""Comparison with Picasso: fits, and files that it opens; `make test-peers` runs this."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from napari_spotfit import (
    FormatWarning,
    fit_spots,
    load_fits,
    localize,
    simulate_movie,
    simulate_spots,
)

#: Ours, and Picasso's in its order.
PARAMETERS = {
    "gaussian": ("amplitude", "x", "y", "sigma", "background"),
    "gaussian_elliptical": ("amplitude", "x", "y", "sigma_x", "sigma_y", "background"),
}


@pytest.fixture(scope="module")
def picasso():
    """Fit spots with Picasso until convergence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is as it is
        pytest.importorskip("picasso")
        from picasso.fitting import gaussfit, seeds

    def fit(spots, model, mle):
        spherical = model == "gaussian"
        start = seeds.initial_parameters_gauss(spots, spots.shape[1], spherical=spherical)
        kind = gaussfit.SPHERICAL if spherical else gaussfit.ELLIPTIC
        values, _, states, _ = gaussfit.fit_spots(kind, spots, start, mle, 1e-8, 200)
        return values, states == gaussfit.FIT_STATE_CONVERGED

    return fit


@pytest.mark.parametrize("size", [7, 9, 13])
@pytest.mark.parametrize("estimator", ["lse", "mle"])
@pytest.mark.parametrize("model", PARAMETERS)
def test_the_best_fit_is_picassos(picasso, model, estimator, size):
    spots, _ = simulate_spots(1000, size, photons=2000, background=5, sigma=1.2, seed=size)
    spots = spots.astype(np.float32)
    theirs, found = picasso(spots, model, estimator == "mle")
    ours = fit_spots(spots, model=model, estimator=estimator, backend="cpu")
    both = found & ours.converged
    assert both.mean() > 0.97
    for name, values in zip(PARAMETERS[model], theirs.T, strict=True):
        # A search ends within a small part of the standard error.
        apart = np.abs(ours.columns[name] - values) / ours.columns[f"{name}_stderr"]
        assert np.quantile(apart[both], 0.99) < 0.02, name
        assert np.median(apart[both]) < 0.004, name


@pytest.fixture(scope="module")
def picasso_io():
    """Picasso's own reading and writing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("picasso.io")


@pytest.mark.parametrize("sidecar", [True, False])
@pytest.mark.parametrize("model", PARAMETERS)
def test_picasso_opens_what_is_written_for_it(picasso_io, tmp_path, model, sidecar):
    movie, _ = simulate_movie(20, shape=(64, 96), spots_per_frame=20, seed=1)
    fits = localize(movie, gain=1.0, model=model, backend="cpu")
    columns = fits.columns
    columns["x"] = columns["x"].copy()
    columns["x"][0] = -0.2
    fits = type(fits)(columns, fits.index_names, fits.settings)
    path = tmp_path / "a_locs.hdf5"
    with pytest.warns(FormatWarning, match="that Picasso will drop") as warned:
        fits.save(path, pixel_size=130, shape=movie.shape)
    if not sidecar:
        path.with_suffix(".yaml").unlink()
    locs, info = picasso_io.load_locs(str(path))
    warned = str(warned[0].message)
    dropped = int(warned.split(" that Picasso will drop")[0].split()[-2])
    placed = fits[np.isfinite(fits.x)]
    assert len(locs) == len(placed) - dropped
    assert 1 <= dropped < len(placed) / 4
    assert (info[0]["Width"], info[0]["Height"], info[0]["Frames"]) == (96, 64, 20)
    assert info[0]["Pixelsize"] == 130
    keys = zip(placed.frame, placed.x.astype("f4"), placed.y.astype("f4"), strict=True)
    ours = {key: row for row, key in enumerate(keys)}
    rows = [ours[key] for key in zip(locs["frame"], locs["x"], locs["y"], strict=True)]
    assert len(set(rows)) == len(rows)
    for theirs, name in (("photons", "photons"), ("bg", "background"), ("lpx", "x_stderr")):
        np.testing.assert_array_equal(locs[theirs], placed.columns[name][rows])
    # And what it writes comes back from it.
    picasso_io.save_locs(str(tmp_path / "b.hdf5"), locs, info)
    back = load_fits(tmp_path / "b.hdf5")
    np.testing.assert_array_equal(back.x, locs["x"])
    assert ("sigma" in back) == (model == "gaussian")
