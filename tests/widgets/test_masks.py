"""Labels and Shapes layers as masks in the image's pixels."""

from __future__ import annotations

import numpy as np
import pytest
from napari.layers import Image, Labels, Shapes

from napari_spotfit.widgets.layers.maps import search_mask

BOX = np.array([(4, 4), (4, 12), (10, 12), (10, 4)], float)


def image(shape=(20, 30), **transform):
    return Image(np.zeros(shape), name="movie", **transform)


def test_labels_above_zero():
    labels = np.zeros((20, 30), int)
    labels[3:5, 7] = 2
    labels[0, 0] = -1
    mask = search_mask(Labels(labels), image((6, 20, 30)))()
    assert mask.shape == (20, 30)
    np.testing.assert_array_equal(mask, labels > 0)


def test_labels_with_frames_stay_lazy():
    da = pytest.importorskip("dask.array")
    labels = da.zeros((6, 20, 30), chunks=(1, 20, 30), dtype=int)
    mask = search_mask(Labels(labels), image((6, 20, 30)))()
    assert isinstance(mask, da.Array)
    assert mask.shape == (6, 20, 30)
    assert mask.dtype == bool


def test_labels_of_a_volume_count_for_every_time():
    labels = np.zeros((4, 20, 30), int)
    labels[2, 5, 5] = 1
    mask = np.asarray(search_mask(Labels(labels), image((3, 4, 20, 30)))())
    assert mask.shape == (3, 4, 20, 30)
    assert np.argwhere(mask).tolist() == [[time, 2, 5, 5] for time in range(3)]


def test_labels_on_a_coarser_shifted_grid():
    labels = np.zeros((10, 15), int)
    labels[2, 3] = 1
    # A label pixel covers 2×2 image pixels; its centre lies between them.
    coarse = Labels(labels, scale=(1.0, 1.0), translate=(0.25, 0.25))
    mask = search_mask(coarse, image(scale=(0.5, 0.5)))()
    assert np.argwhere(mask).tolist() == [[4, 6], [4, 7], [5, 6], [5, 7]]


def test_labels_smaller_than_the_image():
    mask = search_mask(Labels(np.ones((5, 6), int)), image())()
    assert mask[:5, :6].all()
    assert mask.sum() == 30


def test_labels_that_do_not_fit():
    with pytest.raises(ValueError, match="“cells” lies on another grid"):
        search_mask(Labels(np.ones((5, 20, 30), int), name="cells"), image((6, 20, 30)))
    with pytest.raises(ValueError, match="“cells” has 3 axes"):
        search_mask(Labels(np.ones((5, 20, 30), int), name="cells"), image())


@pytest.mark.parametrize("frames", [(), (6,), (2, 3)])
def test_shapes_count_for_every_frame(frames):
    corners = np.column_stack([*(np.full(4, 1.0) for _ in frames), BOX])
    mask = search_mask(Shapes([corners], shape_type="rectangle"), image((*frames, 20, 30)))()
    expected = np.zeros((20, 30), bool)
    expected[4:11, 4:13] = True
    np.testing.assert_array_equal(mask, expected)


def test_shapes_follow_both_transforms():
    shapes = Shapes([BOX], shape_type="polygon", scale=(2, 2), translate=(1, 0))
    mask = search_mask(shapes, image(scale=(1, 2), translate=(-1, 0)))()
    rows, columns = np.nonzero(mask)
    assert (rows.min(), rows.max()) == (10, 22 - 3)
    assert (columns.min(), columns.max()) == (4, 12)


def test_ellipse():
    mask = search_mask(Shapes([BOX], shape_type="ellipse"), image())()
    y, x = np.indices((20, 30))
    distance = ((y - 7) / 3) ** 2 + ((x - 8) / 4) ** 2
    assert mask[distance < 0.9].all()
    assert not mask[distance > 1.01].any()


def test_several_shapes_and_lines():
    far = BOX + np.array([8, 15])
    kinds = ["polygon", "polygon", "line"]
    mask = search_mask(Shapes([BOX, far, BOX[:2]], shape_type=kinds), image())()
    assert mask[7, 8]
    assert mask[15, 23]
    assert not mask[12, 13]


def test_shapes_without_an_inside():
    with pytest.raises(ValueError, match="“marks” has no rectangle, ellipse or polygon"):
        search_mask(Shapes([BOX[:2]], shape_type="line", name="marks"), image())
