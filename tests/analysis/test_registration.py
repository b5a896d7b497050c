"""Known maps are found within their errors, and unrelated channels are refused."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from scenes_of_channels import fits_at, textured_cells, two_channels

from napari_spotfit import ChannelRegistration, SpotFits, register_channels

CASES = {
    "shift": {"shift": (37, -80)},
    "large shift": {"shift": (400, -100)},
    "turned": {"turned": 5.0},
    "half alone": {"turned": 5.0, "scale": 1.05, "alone": 0.5, "shift": (20, 5)},
    "mirrored": {"mirrored": (1, -1), "alone": 0.3, "turned": -2},
    "both mirrored": {"mirrored": (-1, -1), "alone": 0.3},
    "dense": {"count": 5000, "alone": 0.5, "error": 0.2, "shift": (3, 4)},
    "dense and turned": {"count": 5000, "alone": 0.5, "error": 0.2, "turned": 5, "scale": 0.95},
    "few": {"count": 12},
    "few in each frame": {"count": 3000, "frames": 2000, "alone": 0.4, "shift": (30, 8)},
    "frames": {"count": 5000, "frames": 500, "alone": 0.5, "shift": (3, 8), "turned": 3},
}


def missed(registration, mapped, side=512):
    """Return the errors of mapped positions all over the hull, and the expected ones."""
    places = np.random.default_rng(9).uniform(0, side, (3000, 2))
    fits = fits_at(places, 0.0)
    fits = fits[registration.covers(fits)]
    moved = registration.apply(fits)
    true = mapped(np.column_stack([fits.y, fits.x]))
    away = np.column_stack([moved.y, moved.x]) - true
    expected = np.sqrt((moved.y_stderr**2 + moved.x_stderr**2).mean())
    return np.sqrt((away**2).sum(axis=1).mean()), expected


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_known_maps_are_found(case, seed):
    a, b, mapped = two_channels(seed, **CASES[case])
    registration = register_channels(a, b)
    away, expected = missed(registration, mapped)
    assert away < 2.5 * expected
    # The distance of partners has the errors of both along two axes.
    assert registration.error == pytest.approx(2 * CASES[case].get("error", 0.05), rel=0.4)
    true = round(len(b) * (1 - CASES[case].get("alone", 0)))
    assert 0.93 * true <= registration.pairs <= 1.05 * true


def test_the_error_is_that_which_the_errors_allow():
    ratios, scatter = [], []
    for seed in range(40):
        a, b, mapped = two_channels(seed, 100, turned=2, alone=0.2, shift=(5, 5))
        registration = register_channels(a, b)
        away, expected = missed(registration, mapped)
        ratios.append((away / expected) ** 2)
        left_out = np.sqrt(4 * 0.05**2 * (1 + 3 / registration.pairs))
        scatter.append(registration.error / left_out)
    assert np.sqrt(np.mean(ratios)) < 1.1
    assert np.mean(scatter) == pytest.approx(1, abs=0.1)


def test_a_translation_needs_few_and_moves_only():
    a, b, _ = two_channels(3, 20, shift=(3, -4))
    registration = register_channels(a, b, "translation")
    np.testing.assert_allclose(registration.matrix[:2, :2], np.eye(2), atol=1e-12)
    np.testing.assert_allclose(registration.matrix[:2, 2], [3, -4], atol=0.1)
    with pytest.raises(ValueError, match="than by chance"):
        register_channels(*two_channels(3, 200, turned=4)[:2], "translation")


@pytest.mark.parametrize("more", [{}, {"turned": 3, "scale": 1.03, "alone": 0.5, "count": 1000}])
def test_bent_channels_need_a_polynomial(more):
    for seed in range(3):
        a, b, mapped = two_channels(seed, **{"count": 300, "bent": 4.0} | more)
        registration = register_channels(a, b, "polynomial")
        away, expected = missed(registration, mapped)
        assert away < 2.5 * expected
        assert registration.error < 0.15
        with pytest.raises(ValueError, match="a polynomial has no matrix"):
            _ = registration.matrix


def test_bent_channels_are_warned_of_with_an_affine_map():
    a, b, _ = two_channels(0, 300, bent=3.0)
    with pytest.warns(UserWarning, match="register by 'polynomial'"):
        registration = register_channels(a, b)
    assert registration.error > 0.5


def test_independent_channels_are_refused():
    random, accepted = np.random.default_rng(0), 0
    for count in (6, 8, 10, 15, 30, 100):
        for model in ("translation", "affine", "polynomial"):
            for _ in range(3 if count > 20 else 10):
                a, b = random.uniform(0, 100, (2, count, 2))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    try:
                        register_channels(fits_at(a, 0.2), fits_at(b, 0.2), model)
                        accepted += 1
                    except ValueError:
                        pass
    assert accepted == 0


@pytest.mark.parametrize("model", ["translation", "affine", "polynomial"])
def test_cells_that_channels_share_are_no_map(model):
    _, a, b = textured_cells(1, per_cell=30)
    with pytest.raises(ValueError, match="than by chance"):
        register_channels(fits_at(a), fits_at(b), model)


def test_channels_of_other_frames_are_refused():
    a, b, _ = two_channels(0, 60)
    frames = [SpotFits({"frame": np.full(60, number)} | fits.columns, ("frame",))
              for number, fits in enumerate((a, b))]  # fmt: skip
    with pytest.raises(ValueError, match="than by chance"):
        register_channels(*frames)


def test_lattices_are_refused():
    lattice = 20.0 * np.indices((12, 12)).reshape(2, -1).T
    random = np.random.default_rng(0)
    a, b = (lattice + random.normal(0, 0.05, lattice.shape) for _ in range(2))
    for model in ("translation", "affine"):
        with pytest.raises(ValueError, match="in several ways"):
            register_channels(fits_at(a), fits_at(b + np.array([3, 4])), model)


def line(random):
    return np.column_stack([np.linspace(0, 300, 60) + random.normal(0, 3, 60), np.zeros(60)])


REFUSED = {
    "empty": (lambda random: random.uniform(0, 99, (0, 2)), "has 0 spots"),
    "one": (lambda random: random.uniform(0, 99, (1, 2)), "has 1 spots"),
    "nowhere": (lambda random: np.full((50, 2), np.nan), "has 0 spots"),
    "one place": (lambda random: np.full((50, 2), 7.0), "at one place"),
    "a line": (line, "on one line"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_spots_that_tell_no_map_are_refused(case):
    random = np.random.default_rng(2)
    place, why = REFUSED[case]
    places = place(random)
    noise = 0 if case == "one place" else random.normal(0, 0.05, places.shape)
    with pytest.raises(ValueError, match=why):
        register_channels(fits_at(places), fits_at(places + np.array([3, 2]) + noise))


def test_one_far_pair_that_no_other_can_check_is_refused():
    random = np.random.default_rng(0)
    places = np.concatenate([random.uniform(0, 60, (40, 2)), [[4000.0, 4000.0]]])
    b = places + np.array([1, 2]) + random.normal(0, 0.05, places.shape)
    with pytest.raises(ValueError, match=r"y 4000\.9, x 4001\.9 of channel b decides a part"):
        register_channels(fits_at(places), fits_at(b))
    assert register_channels(fits_at(places), fits_at(b), "translation").pairs >= 40


def test_duplicates_and_spots_without_a_place_do_no_harm():
    random = np.random.default_rng(4)
    places = random.uniform(0, 300, (60, 2))
    b = np.concatenate([places, places, places[:10], np.full((5, 2), np.nan)])
    b += np.array([5, -7])
    b += random.normal(0, 0.05, b.shape)
    a = np.concatenate([places, places]) + random.normal(0, 0.05, (120, 2))
    registration = register_channels(fits_at(a), fits_at(b))
    np.testing.assert_allclose(registration.matrix[:2, 2], [-5, 7], atol=0.1)


def test_without_errors_the_scatter_tells_them():
    a, b, _ = two_channels(1, 200, turned=1)
    bare = [fits_at(np.column_stack([fits.y, fits.x]), None) for fits in (a, b)]
    registration = register_channels(*bare)
    assert registration.error == pytest.approx(0.1, rel=0.2)
    places = fits_at([[200.0, 200.0]], 0.0)
    with_errors = register_channels(a, b).apply(places)
    assert registration.apply(places).y_stderr == pytest.approx(with_errors.y_stderr, rel=0.3)


def test_applied_fits_say_so_and_know_their_errors():
    a, b, _ = two_channels(2, 300, turned=4, scale=1.05)
    registration = register_channels(a, b)
    fits = SpotFits(b.columns | {"z": np.arange(300.0)})
    with pytest.raises(ValueError, match="are outside of the"):
        registration.apply(fits_at([[256, 256], [-50, 40]]))
    assert len(registration.apply(fits_at([[256, 256], [-50, 40]]), "drop")) == 1
    inside = registration.covers(fits)
    moved = registration.apply(fits, "drop")
    assert len(moved) == inside.sum() > 250
    assert moved.registered.all()
    np.testing.assert_array_equal(moved.z, fits.z[inside])
    assert (moved.y_stderr > 0.05 * 1.049).all()
    with pytest.raises(ValueError, match="registered already"):
        registration.apply(moved)
    nowhere = registration.apply(fits_at([[np.nan, 3.0]]))
    assert np.isnan(nowhere.y).all()
    with pytest.raises(ValueError, match="outside must be"):
        registration.apply(fits, "keep")


def test_files_bring_the_same_back(tmp_path):
    a, b, _ = two_channels(0, 300, bent=2.0)
    registration = register_channels(a, b, "polynomial")
    path = tmp_path / "map.json"
    registration.save(path)
    same = ChannelRegistration.load(path)
    fits = fits_at([[100.0, 200.0]])
    for name in ("y", "x", "y_stderr", "x_stderr"):
        moved = (one.apply(fits).columns[name] for one in (registration, same))
        np.testing.assert_array_equal(*moved)
    assert (same.model, same.error, same.pairs) == ("polynomial", registration.error, same.pairs)
    with pytest.raises(ValueError, match=r"must end in \.json"):
        registration.save(tmp_path / "map.txt")


@pytest.mark.parametrize("change", [
    {"napari-spotfit registration": 99}, {"napari-spotfit registration": None}, {"hull": [[0, 0]]},
    {"model": "cubic"}, {"coefficients": [[1.0, 2.0]]}, {"more": 3},
])  # fmt: skip
def test_damaged_files_say_so(change, tmp_path):
    path = tmp_path / "map.json"
    register_channels(*two_channels(0, 50)[:2]).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=r"“map\.json” is no registration"):
        ChannelRegistration.load(path)


def test_layers_lie_on_each_other():
    layers = pytest.importorskip("napari.layers")
    a, b, mapped = two_channels(0, 200, turned=3, shift=(8, 2))
    registration = register_channels(a, b)
    places = np.random.default_rng(0).uniform(50, 450, (5, 2))
    one = layers.Image(np.zeros((3, 512, 512)), scale=(1, 0.1, 0.2), translate=(0, 5, 6))
    for onto, kind in ((None, {"scale": (1, 0.1, 0.2), "translate": (0, 5, 6)}), (one, {})):
        other = layers.Image(np.zeros((3, 512, 512)), **kind)
        for _ in range(2):  # a second time changes nothing
            registration.apply_to_layer(other, onto)
            for place, there in zip(places, mapped(places), strict=True):
                own = other.data_to_world((1, *place))
                np.testing.assert_allclose(own, one.data_to_world((1, *there)), atol=0.01)


def test_wrong_models_are_named():
    with pytest.raises(ValueError, match="model must be 'translation', 'affine' or 'polynomial'"):
        register_channels(fits_at([[1, 1]]), fits_at([[1, 1]]), "rigid")
