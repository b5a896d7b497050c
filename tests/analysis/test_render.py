"""The super-resolved image: its light, where it lies, its parts, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import erf

from napari_spotfit import SpotFits, render
from napari_spotfit.analysis.render import RenderIndex
from napari_spotfit.engine import threads

#: Cut of the Gaussians in σ, and their least σ in rendered pixels.
CUT, LEAST = 3.0, 0.7
#: Against sums in double precision, relative to the maximum.
SINGLE = 3e-6


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def table(rng, count=500, side=24.0, **others):
    """Localisations all over a square field, with errors of 0.02 to 0.5 pixels."""
    columns = {
        "y": rng.uniform(-0.5, side - 0.5, count), "x": rng.uniform(-0.5, side - 0.5, count),
        "y_stderr": rng.uniform(0.02, 0.5, count).astype(np.float32),
        "x_stderr": rng.uniform(0.02, 0.5, count).astype(np.float32),
        "sigma": np.full(count, 1.3, np.float32), "frame": np.arange(count),
        "stop_condition": np.full(count, 2, np.uint8),
    }  # fmt: skip
    units = {"z": others.pop("unit")} if "unit" in others else {}
    return SpotFits(columns | others, ("frame",), units=units)


def profile(edges, centre, sigma):
    """The light of a cut Gaussian between edges of pixels."""
    width = max(sigma, LEAST)
    reached = np.clip((edges - centre) / width, -CUT, CUT)
    return np.diff(erf(reached / np.sqrt(2))) / (2 * erf(CUT / np.sqrt(2)))


def reference(fits, oversampling, sides, widths):
    """The same image by sums over all pixels, in double precision."""
    image = np.zeros(sides)
    edges = [np.arange(side + 1) for side in sides]
    for row in range(len(fits)):
        along = [
            profile(edge, (fits.columns[axis][row] + 0.5) * oversampling, width[row] * oversampling)
            for axis, edge, width in zip("yx", edges, widths, strict=True)
        ]
        image += np.outer(*along)
    return image


@pytest.mark.parametrize("oversampling", [1, 7.5, 40])
def test_each_localisation_is_a_gaussian_of_its_own_errors(rng, oversampling):
    fits = table(rng, 200)
    sides = (round(24 * oversampling),) * 2
    expected = reference(fits, oversampling, sides, (fits.y_stderr, fits.x_stderr))
    image = render(fits, oversampling, shape=(24, 24))
    assert image.dtype == np.float32
    np.testing.assert_allclose(image, expected, rtol=0, atol=SINGLE * expected.max())


@pytest.mark.parametrize("by", ["precision", "histogram", "psf", 0.3])
def test_the_image_sums_to_the_number_of_localisations(rng, by):
    fits = table(rng, 20_000, y=rng.uniform(8, 16, 20_000), x=rng.uniform(8, 16, 20_000))
    assert render(fits, 6, shape=(24, 24), by=by).sum(dtype=float) == pytest.approx(2e4, rel=1e-5)


def test_a_bright_pixel_counts_every_localisation(rng):
    one = table(rng, 1, y=np.array([5.0]), x=np.array([5.0]))
    many = SpotFits({name: np.repeat(values, 200_000) for name, values in one.columns.items()})
    image, alone = render(many, 10, shape=(12, 12)), render(one, 10, shape=(12, 12))
    np.testing.assert_allclose(image, 2e5 * alone, rtol=1e-6, atol=0.01)


def test_centroids_are_right_to_a_thousandth_of_a_pixel(rng):
    for _ in range(100):
        y, x = rng.uniform(4, 20, 2)
        errors = rng.uniform(0.001, 0.5, (2, 1)).astype(np.float32)
        fits = table(
            rng, 1, y=np.array([y]), x=np.array([x]), y_stderr=errors[0], x_stderr=errors[1]
        )
        image = render(fits, 10, shape=(24, 24)).astype(float)
        found = [np.average(np.arange(240) + 0.5, weights=image.sum(axis)) for axis in (1, 0)]
        np.testing.assert_allclose(found, [(y + 0.5) * 10, (x + 0.5) * 10], rtol=0, atol=1e-3)


def test_parts_are_equal_to_the_bit_whatever_the_threads(rng, monkeypatch):
    fits = table(rng, 30_000)
    index = RenderIndex(fits, shape=(24, 24))
    whole = index.render(30)
    for _ in range(20):
        (top, left), (height, width) = rng.integers(0, 600, 2), rng.integers(1, 300, 2)
        bottom, right = min(top + height, 720), min(left + width, 720)
        part = index.part((30, 30), (int(top), int(bottom)), (int(left), int(right)))
        assert (part == whole[top:bottom, left:right]).all()
    for cores in (1, 7):
        monkeypatch.setattr(threads, "available", lambda cores=cores: cores)
        assert (RenderIndex(fits, shape=(24, 24)).render(30) == whole).all()


def test_light_of_wide_spots_in_far_cells_is_there(rng):
    """A few wide spots among many narrow ones reach farther than the cells around them."""
    fits = table(rng, 5000, y_stderr=np.full(5000, 0.02, np.float32))
    fits.y_stderr[::500] = 0.2
    expected = reference(fits, 25, (600, 600), (fits.y_stderr, fits.x_stderr))
    image = render(fits, 25, shape=(24, 24))
    np.testing.assert_allclose(image, expected, rtol=0, atol=SINGLE * expected.max())


def test_errors_above_ten_medians_count_as_that(rng):
    fits = table(rng, 101, y_stderr=np.full(101, 0.1, np.float32))
    fits.y_stderr[0] = 50
    widths = (np.minimum(fits.y_stderr, 1.0), fits.x_stderr)
    expected = reference(fits, 10, (240, 240), widths)
    np.testing.assert_allclose(
        render(fits, 10, shape=(24, 24)), expected, rtol=0, atol=SINGLE * expected.max()
    )


def test_a_histogram_counts_and_invalid_fits_are_left_out(rng):
    fits = table(rng, 1000)
    fits.y[::10] = np.nan
    known = np.isfinite(fits.y)
    expected = np.histogram2d(
        fits.y[known], fits.x[known], bins=96, range=[[-0.5, 23.5], [-0.5, 23.5]]
    )[0]
    assert (render(fits, 4, shape=(9, 24, 24), by="histogram") == expected).all()


def test_widths_of_spots_and_fixed_ones(rng):
    fits = table(rng, 50)
    for by, width in (("psf", 1.3), (0.4, 0.4)):
        expected = reference(fits, 8, (192, 192), np.full((2, 50), width))
        image = render(fits, 8, shape=(24, 24), by=by)
        np.testing.assert_allclose(image, expected, rtol=0, atol=SINGLE * expected.max())
    elliptical = SpotFits(fits.columns | {"sigma_y": np.full(50, 2.0), "sigma_x": np.full(50, 1.0)})
    expected = reference(fits, 8, (192, 192), (np.full(50, 2.0), np.ones(50)))
    image = render(elliptical, 8, shape=(24, 24), by="psf")
    np.testing.assert_allclose(image, expected, rtol=0, atol=SINGLE * expected.max())


def test_the_field_ends_after_the_last_localisation(rng):
    fits = table(rng, 300)
    image = render(fits, 10)
    ends = [(fits.columns[axis] + 3 * fits.columns[f"{axis}_stderr"]).max() + 0.5 for axis in "yx"]
    assert image.shape == tuple(int(np.ceil(10 * end - 1e-6)) for end in ends)
    shorter = render(fits, 10, shape=(24, 24))
    assert (image[:240, :240] == shorter[: image.shape[0], : image.shape[1]]).all()


def test_rendered_pixels_are_squares_where_those_of_the_camera_are_not(rng):
    image = render(table(rng), 10, shape=(24, 24), pixel_size=(200, 100))
    assert image.shape == (480, 240)


def test_colours_run_from_blue_to_red_and_add(rng):
    fits = table(rng, 3, y=np.array([2.0, 10, 18]), x=np.full(3, 10.0), z=np.array([-9.0, 0, 9]))
    image = render(fits, 5, shape=(24, 24), colour_by="z")
    light = image.reshape(3, 40, 120, 3).sum(axis=(1, 2))
    np.testing.assert_allclose(light[[0, 2]], [[0, 0, 1], [1, 0, 0]], atol=1e-5)
    assert light[1].argmax() == 1
    assert light[1].max() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("by", ["precision", "histogram"])
def test_volumes(rng, by):
    fits = table(
        rng, 400, z=rng.normal(0, 200, 400), z_stderr=np.full(400, 80, np.float32), unit="nm"
    )
    volume = render(fits, (1, 2, 4), shape=(24, 24), pixel_size=100, by=by)
    assert volume.shape[1:] == (48, 96)
    if by == "histogram":
        assert volume.sum() == 400
        low, step = fits.z.min(), 100
        planes = np.floor((fits.z - low) / step).astype(int)
        assert (volume.sum(axis=(1, 2)) == np.bincount(planes, minlength=len(volume))).all()
        return
    low = (fits.z - 240).min()
    expected = sum(profile(np.arange(len(volume) + 1), (z - low) / 100, 0.8) for z in fits.z)
    flat = render(fits, 4, shape=(24, 24), pixel_size=(50, 100))
    np.testing.assert_allclose(volume.sum(axis=0), flat, atol=2e-6)
    # The rest of the light lies beyond the field.
    np.testing.assert_allclose(volume.sum(axis=(1, 2)), expected * flat.sum() / 400, atol=1.5)


def test_slices_are_images_of_their_rows(rng):
    z = rng.uniform(-300, 300, 500)
    z[:3] = np.nan, -100.0, 100.0  # a slice begins at its first z, and ends before its last
    fits = table(rng, z=z, unit="nm")
    shape = (24, 24)
    one = render(fits, 4, shape=shape, z=(-100, 100))
    same = render(fits[(z >= -100) & (z < 100)], 4, shape=shape)
    np.testing.assert_allclose(one, same, atol=SINGLE * same.max())
    stack = render(fits, 4, shape=shape, z=(-100, 150, 100))
    assert stack.shape == (3, 96, 96)
    for number, ends in enumerate(((-100, 0), (0, 100), (100, 150))):
        inside = (z >= ends[0]) & (z < ends[1])
        same = render(fits[inside], 4, shape=shape)
        np.testing.assert_allclose(stack[number], same, atol=SINGLE * same.max())
    parts = [fits[:200], fits[200:]]
    added = render(parts, 4, shape=shape, z=(-100, 150, 100), by=0.1)
    whole = render(fits, 4, shape=shape, z=(-100, 150, 100), by=0.1)
    np.testing.assert_allclose(added, whole, atol=1e-5 * whole.max())
    coloured = render(fits, 4, shape=shape, z=(-100, 150, 100), colour_by="frame")
    assert coloured.shape == (3, 96, 96, 3)
    # All slices have the field of all localisations.
    assert render(fits, 4, z=(-100, -90)).shape == render(fits, 4).shape


@pytest.mark.parametrize(
    ("z", "message"),
    [
        ((0, 0), "in rising order"), ((1, 0), "in rising order"), ((0, 1, -1), "in rising order"),
        ((0, np.nan), "in rising order"), ((0, np.inf), "in rising order"), (5, "must be"),
        ((1, 2, 3, 4), "must be"), ("ab", "must be"), ((0, 1, 1e-9), "1000000000 slices"),
        ((900, 1000), "has z from 900 to 1000, in nm"),
    ],
)  # fmt: skip
def test_what_is_no_slice_is_refused(rng, z, message):
    with pytest.raises(ValueError, match=message):
        render(table(rng, z=rng.uniform(0, 9, 500), unit="nm"), 4, z=z)


def test_slices_need_z_and_no_volume(rng):
    with pytest.raises(ValueError, match="no column z"):
        render(table(rng), 4, z=(0, 1))
    with pytest.raises(ValueError, match="a volume has all z"):
        render(table(rng, z=np.zeros(500), unit="planes"), (1, 4, 4), z=(0, 1), by="histogram")


def test_parts_without_localisations_in_the_image_add_nothing(rng):
    fits = table(rng)
    outside = fits.with_columns(fits.columns | {"y": fits.y + 1000})
    lost = fits.with_columns(fits.columns | {"y": np.full(500, np.nan)})
    parts = [fits[:0], outside, fits, lost]
    assert np.array_equal(
        render(parts, 4, shape=(24, 24)), render(fits, 4, shape=(24, 24))
    )  # fmt: skip
    with pytest.raises(ValueError, match="no part has localisations in the image"):
        render([outside, lost], 4, shape=(24, 24))


def test_spots_without_z_are_left_out_of_volumes(rng):
    fits = table(rng, 40, z=np.where(np.arange(40) < 10, np.nan, 1.0), unit="planes")
    assert render(fits, (1, 1, 1), shape=(24, 24), by="histogram").sum() == 30


def test_hidden_rows_are_not_rendered(rng):
    fits = table(rng, 2000)
    index, shown = RenderIndex(fits, shape=(24, 24)), fits.frame < 700
    index.show(shown)
    # The same widths: the median of fewer would clip others.
    expected = reference(fits[shown], 10, (240, 240), (fits.y_stderr[shown], fits.x_stderr[shown]))
    np.testing.assert_allclose(index.render(10), expected, rtol=0, atol=SINGLE * expected.max())
    index.show(None)
    assert (index.render(10) == render(fits, 10, shape=(24, 24))).all()


def test_parts_are_added(rng):
    fits = table(rng, 3000)
    parts = [fits[:1000], fits[:0], fits[1000:]]
    expected = render(fits, 10, shape=(24, 24), by=0.2)
    image = render(iter(parts), 10, shape=(24, 24), by=0.2)
    np.testing.assert_allclose(image, expected, rtol=0, atol=SINGLE * expected.max())
    for arguments in ({}, {"shape": (24, 24), "colour_by": "frame"}):
        with pytest.raises(ValueError, match="parts are rendered"):
            render(parts, **arguments)
    with pytest.raises(ValueError, match="no part"):
        render([fits[:0]], shape=(24, 24))


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (lambda fits: fits[:0], {}, r"table is empty.*fits\[fits\.accepted\]"),
        (lambda fits: SpotFits(fits.columns | {"y": np.full(500, np.nan)}), {}, "no positions"),
        (lambda fits: SpotFits({"y": fits.y, "x": fits.x}), {}, "no column y_stderr.*errors=True"),
        (
            lambda fits: SpotFits(fits.columns | {"x_stderr": np.full(500, np.nan, np.float32)}),
            {}, "500 of 500 localisations have no x_stderr above 0",
        ),
        (lambda fits: SpotFits(fits.columns | {"y_stderr": 0 * fits.y_stderr}), {}, "above 0"),
        (lambda fits: SpotFits(fits.columns | {"y": fits.y + 99}), {"shape": (24, 24)}, "none of"),
        (lambda fits: fits, {"by": "sharp"}, "by must be"),
        (lambda fits: fits, {"by": -1.0}, "by must be"),
        (lambda fits: fits, {"oversampling": 0}, "oversampling must be"),
        (lambda fits: fits, {"oversampling": np.nan}, "oversampling must be"),
        (lambda fits: fits, {"oversampling": (1, 2)}, "oversampling must be"),
        (lambda fits: fits, {"oversampling": (1, 2, 3)}, "no column z"),
        (lambda fits: fits, {"oversampling": 1e-9}, "raise the oversampling"),
        (
            lambda fits: SpotFits(fits.columns | {"y": np.append(fits.y[:-1], 1e300)}), {},
            "pass the shape",
        ),
        (lambda fits: fits, {"oversampling": 1e5}, "lower the oversampling"),
        (lambda fits: fits, {"colour_by": "depth"}, "no column depth"),
        (lambda fits: fits, {"shape": (24,)}, "shape must be"),
        (lambda fits: fits, {"pixel_size": 0}, "pixel_size must be"),
    ],
)  # fmt: skip
def test_what_is_missing_or_wrong_is_said(rng, change, arguments, message):
    with pytest.raises(ValueError, match=message):
        render(change(table(rng)), **arguments)


@pytest.mark.parametrize("oversampling", ["10", "123", None, True, np.array(5.0)])
def test_what_is_no_oversampling_is_refused(rng, oversampling):
    with pytest.raises(TypeError, match="oversampling must be a finite number above 0"):
        render(table(rng), oversampling)


def test_colours_of_unknown_values_are_refused(rng):
    fits = table(rng, 10, z=np.where(np.arange(10) < 3, np.nan, 1.0))
    with pytest.raises(ValueError, match="3 localisations have no z"):
        render(fits, colour_by="z")
