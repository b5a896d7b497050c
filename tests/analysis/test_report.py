"""Reports can be read by themselves, and are of the image that was fitted."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import tifffile
from commands import run

from napari_spotfit import (
    Drift,
    Flag,
    SimulatedMicroscope,
    SpotFits,
    link_spots,
    load_fits,
    localize,
    merge_blinks,
    save_report,
    simulate_movie,
    subtract_drift,
)
from napari_spotfit.engine.flags import RULES, main_reasons


class Page(HTMLParser):
    """The texts of a page, and its pictures in order."""

    def __init__(self, path):
        super().__init__()
        self.texts, self.pictures = [], []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.text = " ".join(self.texts)

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            kind, _, data = dict(attrs)["src"].partition(",")
            assert kind == "data:image/png;base64"
            pillow = pytest.importorskip("PIL.Image")
            self.pictures.append(np.asarray(pillow.open(io.BytesIO(base64.b64decode(data)))))

    def handle_data(self, data):
        self.texts.append(" ".join(data.split()))


@pytest.fixture(scope="module")
def crowd():
    """Return a movie with doubtful fits, and all its fits."""
    movie, _ = simulate_movie(8, shape=(128, 128), spots_per_frame=60, photons=400, seed=4)
    return movie, localize(movie, false_spots=3000)


def test_it_has_everything_and_needs_nothing_else(crowd, tmp_path):
    movie, fits = crowd
    save_report(fits, tmp_path / "a.html", movie, title="A <b> & c")
    page = Page(tmp_path / "a.html")
    assert "A <b> & c" in page.text
    for heading in ("Counts", "Precision", "Drift", "Picture", "Doubtful fits", "Settings"):
        assert heading in page.texts
    assert not re.search(r"(src|href)=.(?!data:)", page.source)
    assert f"{int(fits.good.sum())} are good and {int((~fits.good).sum())} doubtful" in page.text
    reasons = main_reasons(fits.flags)
    assert len(reasons) > 1
    examples = sum(min(6, count) for count in reasons.values())
    assert len(page.pictures) == 2 + examples
    for flag, count in reasons.items():
        assert f"{RULES[flag].word}: {count}" in page.texts
    assert f"{fits.settings.sigma}" in page.texts


def test_cut_outs_are_the_pixels_of_their_fits(crowd, tmp_path):
    movie, fits = crowd
    one = fits[np.flatnonzero(fits.good)[:9]]
    one.columns["flags"][:] = int(Flag.WIDE)
    y, x = 60, 30
    movie = movie.copy()
    one = one[:1]
    for name, value in (("y", y), ("x", x), ("frame", 3)):
        one.columns[name][:] = value
    movie[3, y, x] = 60_000
    save_report(one, tmp_path / "a.html", movie)
    page = Page(tmp_path / "a.html")
    (cut,) = page.pictures
    assert cut.shape == (21, 21)
    brightest = np.unravel_index(cut.argmax(), cut.shape)
    assert brightest == (10, 10)
    (circle,) = re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', page.source)
    assert [float(at) // 6 for at in reversed(circle)] == list(brightest)


def test_spots_of_another_program_have_no_verdict(crowd, tmp_path):
    _, fits = crowd
    names = (*fits.index_names, "y", "x", "photons")
    others = SpotFits({name: fits.columns[name] for name in names}, fits.index_names)
    save_report(others, tmp_path / "a.html")
    text = Page(tmp_path / "a.html").text
    assert f"0 are good and 0 doubtful, and {len(fits)} of another program have no verdict" in text
    assert "and of spots without a verdict" in text
    assert "Unknown, as no fit has a verdict." in text


def test_steps_after_the_fit_are_listed(crowd, tmp_path):
    movie, fits = crowd
    save_report(merge_blinks(fits), tmp_path / "a.html", movie)
    assert "After the fit: merge_blinks(" in Page(tmp_path / "a.html").text


def test_cut_outs_without_the_drift_are_named(crowd, tmp_path):
    movie, fits = crowd
    drift = Drift(*(np.zeros(len(movie)) for _ in range(4)), np.ones(len(movie), int))
    save_report(subtract_drift(fits, drift), tmp_path / "a.html", movie)
    assert "still in the image" in Page(tmp_path / "a.html").text
    save_report(fits, tmp_path / "a.html", movie)
    assert "still in the image" not in Page(tmp_path / "a.html").text


def test_without_the_image_a_sentence_says_so(crowd, tmp_path):
    _, fits = crowd
    save_report(fits, tmp_path / "a.html")
    page = Page(tmp_path / "a.html")
    assert "made without the image" in page.text
    assert len(page.pictures) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda movie: movie[:3], "has 3 along frame"),
        (lambda movie: movie[0], "has shape"),
        (lambda movie: movie[:, :60], "has 60 along y"),
        (lambda movie: movie[::-1], "no light where the table has spots"),
        (lambda movie: movie[:, ::-1], "no light where the table has spots"),
    ],
)
def test_another_image_is_refused(crowd, tmp_path, change, words):
    movie, fits = crowd
    with pytest.raises(ValueError, match=words):
        save_report(fits[fits.good], tmp_path / "a.html", change(movie))
    assert not list(tmp_path.iterdir())


def test_of_nothing_and_of_what_is_not_good(crowd, tmp_path):
    movie, fits = crowd
    save_report(fits[:0], tmp_path / "a.html", movie)
    assert "0 spots" in Page(tmp_path / "a.html").text
    save_report(fits[~fits.good], tmp_path / "a.html", movie)
    assert "No fit is good." in Page(tmp_path / "a.html").texts
    with pytest.raises(ValueError, match=r"must end in \.html"):
        save_report(fits, tmp_path / "a.pdf")


@pytest.mark.parametrize("axis", ["y", "x"])
def test_spots_without_positions_have_no_picture(crowd, tmp_path, axis):
    movie, fits = crowd
    lost = fits.with_columns(fits.columns | {axis: np.full(len(fits), np.nan, np.float32)})
    for image in (movie, None):
        save_report(lost, tmp_path / "a.html", image)
        page = Page(tmp_path / "a.html")
        assert "no good spot has a position" in page.text
        assert not page.pictures


def test_spots_of_several_files(crowd, tmp_path):
    movie, fits = crowd
    names = np.where(fits.frame < 3, "a.tif", "b.tif")
    both = fits.with_columns({"file": names} | fits.columns)
    with pytest.raises(ValueError, match="spots of 2 files, and the image is one"):
        save_report(both, tmp_path / "a.html", movie)
    save_report(both, tmp_path / "a.html")
    page = Page(tmp_path / "a.html")
    own = both[names == "b.tif"]
    assert f"b.tif {len(own)} {int(own.good.sum())}" in page.text
    assert "of all files" in page.text
    assert "spots by frame" not in page.text
    save_report(own, tmp_path / "a.html", movie)


def test_volumes_and_two_leading_axes(tmp_path):
    movie, _ = simulate_movie(6, shape=(64, 64), spots_per_frame=12, seed=2)
    stack = movie.reshape(2, 3, 64, 64)
    save_report(localize(stack, sigma=1.3), tmp_path / "a.html", stack)
    z, y, x = np.ogrid[:9, :48, :48]
    light = 400 * np.exp(-((z - 4) ** 2) / 4 - ((y - 20) ** 2 + (x - 25) ** 2) / 3.4)
    volume = np.random.default_rng(1).poisson(light + 10).astype(np.uint16)
    fits = localize(volume, model="gaussian_3d", sigma=1.3, sigma_z=1.4, false_spots=10_000)
    save_report(fits, tmp_path / "b.html", volume)
    assert len(Page(tmp_path / "b.html").pictures) >= 2


def test_one_channel_of_an_image(tmp_path):
    movie, _ = simulate_movie(6, shape=(64, 64), spots_per_frame=12, seed=2)
    tifffile.imwrite(
        tmp_path / "a.ome.tif", np.stack([movie[::-1], movie], 1), metadata={"axes": "TCYX"}
    )
    localize(tmp_path / "a.ome.tif", channel=1).save(tmp_path / "a.spots.csv")
    place = ("report", tmp_path / "a.spots.csv", "--image", tmp_path / "a.ome.tif")
    assert "or its channel" in run(*place, code=1).stderr
    run(*place, "--channel", 1)
    assert "no light" in run(*place, "--channel", 0, code=1).stderr


def test_the_drift_of_tracks(tmp_path):
    pytest.importorskip("trackpy")
    scope = SimulatedMicroscope(5, (128, 128), drift=(0.05, 0.0), seed=3)
    movie = np.array([frame for _, frame in scope.frames(rate=20, count=20)])
    linked = link_spots(localize(movie, sigma=1.3), max_distance=2)
    save_report(linked, tmp_path / "a.html", movie)
    assert "fiducials in most frames" in Page(tmp_path / "a.html").text


def test_the_drift_of_molecules_that_are_seen_again(tmp_path):
    random = np.random.default_rng(1)
    count = 20_000
    molecule, frame = random.integers(0, 300, count), np.sort(random.integers(0, 1000, count))
    y, x = (random.uniform(0, 64, 300)[molecule] + random.normal(0, 0.1, count) for _ in "yx")
    columns = {"frame": frame, "y": y + 0.002 * frame, "x": x, "photons": np.full(count, 1e3)}
    columns |= {f"{axis}_stderr": np.full(count, 0.1) for axis in "yx"}
    columns |= {"stop_condition": np.full(count, 2), "flags": np.zeros(count, np.uint32)}
    save_report(SpotFits(columns, ["frame"]), tmp_path / "a.html")
    found = re.search(
        r"<p>([\d.]+) px in all, by \d+\s+spots that", Page(tmp_path / "a.html").source
    )
    assert float(found[1]) == pytest.approx(2, abs=0.1)


def test_the_precision_of_molecules_in_successive_frames(tmp_path):
    random = np.random.default_rng(1)
    frame, molecule = np.repeat(np.arange(4), 500), np.tile(np.arange(500), 4)
    columns = {"frame": frame, "photons": np.full(2000, 1e3)}
    for axis in "yx":
        columns[axis] = random.uniform(0, 400, 500)[molecule] + random.normal(0, 0.1, 2000)
        columns[f"{axis}_stderr"] = np.full(2000, 0.05)
    columns |= {"stop_condition": np.full(2000, 2), "flags": np.zeros(2000, np.uint32)}
    save_report(SpotFits(columns, ["frame"]), tmp_path / "a.html")
    found = re.search(
        r"([\d.]+) px along an axis, ([\d.]+) standard errors", Page(tmp_path / "a.html").text
    )
    assert float(found[1]) == pytest.approx(0.1, rel=0.05)
    assert float(found[2]) == pytest.approx(2, rel=0.05)
    assert "the drift there is interpolated" in Page(tmp_path / "a.html").text


def test_the_command(crowd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    movie, fits = crowd
    np.save("m.npy", movie)
    fits.save("m.spots.csv")
    done = run("report", "m.spots.csv", "--image", "m.npy")
    assert f"a report of {len(load_fits('m.spots.csv'))} spots" in done.stderr
    assert "Spots of m.spots.csv" in Page(tmp_path / "m.spots.csv.html").text
    np.save("m.npy", movie[:2])
    done = run("report", "m.spots.csv", "--image", "m.npy", "-o", "other.html", code=1)
    assert "choose the image that was fitted" in done.stderr
