"""What a preview works out in the background: the fits of a frame, as those of all frames."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from napari_spotfit import localize, noise_model, simulate_movie
from napari_spotfit.engine.detection_settings import score_for
from napari_spotfit.estimation.image_estimates import MeasuredNoise
from napari_spotfit.localization.detect_spots import peak_heights
from napari_spotfit.settings.settings import Settings
from napari_spotfit.widgets.fitting.detection_panel import Previewer, PreviewJob
from napari_spotfit.widgets.layers.maps import LayerMaps


@pytest.mark.parametrize("lengths", [(), (3,), (2, 3)])
def test_a_job_gives_what_the_batch_gives(make_movie, lengths):
    movie = make_movie(*lengths)
    index = tuple(length - 1 for length in lengths)
    mask = np.zeros(movie.shape, bool)
    mask[..., 25:] = True
    previewer = Previewer()
    for settings in (
        Settings(sigma=1.3, roi_size=9),
        Settings(sigma=1.3, false_spots=900, roi_size=7),
        Settings(sigma=1.3, roi_size=9, threshold=40),
    ):
        for maps in ({}, {"mask": mask}, {"bad_pixels": mask}):
            job = PreviewJob(movie, index, 1, settings, LayerMaps(lambda maps=maps: dict(maps)))
            result = previewer(job)
            limits = {"frames": index or None, **maps}
            expected = localize(movie, settings=settings, **limits)
            assert result.fits.columns.keys() == expected.columns.keys()
            for name, values in expected.columns.items():
                np.testing.assert_array_equal(result.fits.columns[name], values)
            np.testing.assert_array_equal(result.heights, peak_heights(movie, settings, **limits))
            least = settings.threshold or score_for(settings.false_spots, settings.sigma)
            # Of maxima that are one spot, which one it is depends on all that there are.
            assert abs((result.heights > least).sum() - len(expected)) <= 1
            everywhere = movie[index].size
            searched = {"mask": mask[index].sum(), "bad_pixels": (~mask[index]).sum()}
            assert result.searched == searched.get(next(iter(maps), ""), everywhere)
            noise = noise_model(movie, settings=settings, bad_pixels=maps.get("bad_pixels"))
            assert result.fits.settings == expected.settings.changed(noise=noise)


def test_the_width_of_a_crowd_is_measured_again_with_other_neighbours():
    # Of single fits it is wider, as light of neighbours is in them.
    light = {"photons": 1000, "background": 10, "sigma": 1.3}
    movie, _ = simulate_movie(1, shape=(128, 128), spots_per_frame=491, seed=1, **light)
    noise, found = MeasuredNoise(), []
    for neighbours in ("exclude", "auto"):
        settings = Settings(neighbours=neighbours)
        result = Previewer()(PreviewJob(movie, (0,), 1, settings, noise=noise))
        expected = localize(movie, settings=settings)
        found.append(result.fits.settings.sigma)
        for name, values in expected.columns.items():
            np.testing.assert_array_equal(result.fits.columns[name], values)
    assert found[0] > found[1]


def changing(count):
    """Return frames whose background, and noise, change twentyfold; and spots for the last."""
    y, x = np.indices((64, 64))
    rng, places = np.random.default_rng(5), [(12.3, 14.8), (40.2, 20.1), (30.7, 50.4)]
    light = sum(60 * np.exp(-((y - a) ** 2 + (x - b) ** 2) / (2 * 1.3**2)) for a, b in places)
    levels = np.geomspace(10, 200, count)
    return np.stack([rng.poisson(level + light) for level in levels]).astype(np.uint16), places


def test_a_job_goes_by_the_noise_of_the_whole_movie():
    movie, _ = changing(9)
    noise, settings = MeasuredNoise(), Settings(sigma=1.3, roi_size=9, false_spots=1000)
    expected = localize(movie, settings=settings)
    for frame in (0, 8):
        result = Previewer()(PreviewJob(movie, (frame,), 1, settings, noise=noise))
        assert result.fits.settings.noise == noise_model(movie, settings=settings)
        here = expected.frame == frame
        assert len(result.fits) == here.sum()
        for name, values in expected.columns.items():
            if name != "group":  # is numbered through all frames
                np.testing.assert_array_equal(result.fits.columns[name], values[here])


def test_threads_that_ask_for_the_noise_measure_it_once():
    reads, movie = [], np.random.default_rng(1).poisson(50, (40, 64, 64)).astype(np.uint16)

    class Movie:
        shape, dtype = movie.shape, movie.dtype

        def __getitem__(self, index):
            reads.append(index)
            return movie[index]

    lazy, noise = Movie(), MeasuredNoise()
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(noise.put_into, Settings(sigma=1.3, roi_size=9), lazy, {}) for _ in range(8)
        ]
        found = {one.result().noise for one in asked}
    assert found == {noise_model(movie)}
    count = len(reads)
    wider = noise.put_into(Settings(roi_size=9, sigma=2), lazy, {})
    assert wider.noise == noise_model(movie, settings=Settings(roi_size=9, sigma=2))
    assert len(reads) == count == len({repr(index) for index in reads})


def test_the_frame_is_read_once_and_maxima_are_kept_while_false_spots_change(make_movie):
    reads = []

    class Movie:
        shape, dtype = (2, 48, 50), np.dtype("uint16")
        frames = make_movie(2)

        def __getitem__(self, index):
            reads.append(index)
            return self.frames[index]

    movie, previewer, noise = Movie(), Previewer(), MeasuredNoise()
    noise.put_into(Settings(sigma=1.3, roi_size=9), movie, {})
    reads.clear()
    first, second = (
        previewer(
            PreviewJob(movie, (1,), 1, Settings(sigma=1.3, roi_size=9, false_spots=f), noise=noise)
        )
        for f in (10.0, 1.0)
    )
    assert len(reads) == 1
    assert first.heights is second.heights
    wider = previewer(PreviewJob(movie, (1,), 1, Settings(roi_size=9, sigma=2), noise=noise))
    assert wider.heights is not first.heights
    in_counts = [
        previewer(
            PreviewJob(movie, (1,), 1, Settings(sigma=1.3, roi_size=9, threshold=t), noise=noise)
        ).heights
        for t in (5.0, 8.0)
    ]
    assert in_counts[0] is in_counts[1]
    assert in_counts[0].min() < 1 < first.heights.min()  # in counts, down to 0
    assert len(reads) == 1
    previewer(PreviewJob(movie, (0,), 1, Settings(sigma=1.3, roi_size=9), noise=noise))
    previewer(PreviewJob(movie, (0,), 2, Settings(sigma=1.3, roi_size=9), noise=noise))
    assert len(reads) == 3
