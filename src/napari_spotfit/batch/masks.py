"""Find the mask of each image of a batch by its name, and count spots in its cells."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..analysis.labels import LabelSums, label_sizes, label_spots
from ..files.table import as_text
from ..images.channels import Channel
from ..images.files.opening import ENDINGS, open_image
from ..images.frames import FrameReader
from ..results.spot_fits import SpotFits

if TYPE_CHECKING:
    import pandas as pd

#: The column with the label of a spot's cell.
LABEL = "label"
#: Columns that are summed in each cell.
_COLUMNS = ("photons",)
_ENDING = ".cells.csv"


def mask_of(image: Path, labels: str, images: Sequence[Path] = ()) -> Path:
    """Return the file with the mask of an image.

    Parameters
    ----------
    image : path
        The image file.
    labels : str
        A pattern, in which ``*`` stands for the image's name without its ending; a folder of masks
        whose names begin with those of the images; an ending that follows the image's name, of
        masks in the images' folders; or one file for all images.
    images : sequence of path
        The other images. A mask in a folder belongs to the image with the longest name that it
        begins with, including images in the same folder.

    Raises
    ------
    FileNotFoundError
        If there is no mask; the message names the expected file.
    ValueError
        If there are several, or it would be the image itself.

    Examples
    --------
    >>> mask_of(Path("images/a.tif"), "masks/*_cells.tif")
    Traceback (most recent call last):
    ...
    FileNotFoundError: “a.tif” has no mask: there is no file “masks/a_cells.tif”
    """
    stem, place = _stem(image), Path(labels)
    if "*" in labels:
        named = Path(labels.replace("*", stem))
        # A pattern without a folder means the image's folder.
        found = [named if named.parent != Path() else image.parent / named]
    elif place.is_dir() and not _is_image(place):
        found = _in_folder(place, image, images)
    elif place.exists():
        found = [place]
    else:
        found = [image.parent / f"{stem}{labels}"]
    if len(found) > 1:
        names = ", ".join(f"“{one.name}”" for one in found)
        raise ValueError(f"“{image.name}” has several masks: {names}; choose one by a pattern")
    if not found[0].exists():
        also = "" if "*" in labels else f", nor a file or folder “{labels}”"
        raise FileNotFoundError(
            f"“{image.name}” has no mask: there is no file “{found[0].as_posix()}”{also}"
        )
    if _real(found[0]) == _real(image):
        raise ValueError(
            f"“{image.name}” would be its own mask; name the masks by their folder, a pattern in "
            "which * stands for the image's name, or what comes after it, such as _cells.tif"
        )
    return found[0]


def without_masks(images: Sequence[Path], labels: str) -> list[Path]:
    """Return images without those that are masks of others."""
    masks = set()
    for image in images:
        with suppress(OSError, ValueError):  # reported when the image is fitted
            masks.add(_real(mask_of(image, labels, images)))
    return [image for image in images if _real(image) not in masks]


def open_cells(
    image: Path, labels: str, images: Sequence[Path], channels: Sequence[Channel]
) -> Cells:
    """Return the cells of an image, to count the spots of its channels in them.

    Raises
    ------
    FileNotFoundError, ValueError
        If :func:`open_mask` does, or the labels are too large.
    """
    mask = open_mask(image, labels, images, channels)
    try:
        every = [int(one.number or 0) for one in channels if one.is_one_of_all]
        return Cells(mask, every)
    except ValueError as error:
        name = mask_of(image, labels, images).name
        raise ValueError(f"the mask “{name}” cannot be used: {error}") from None


def open_mask(image: Path, labels: str, images: Sequence[Path], channels: Sequence[Channel]) -> Any:
    """Open an image's mask of labels, without reading it.

    Parameters are those of :func:`mask_of`, and the channels to fit.

    Raises
    ------
    FileNotFoundError, ValueError
        If :func:`mask_of` does, or the mask cannot be read, is not of integers, or does not match
        the size of the image.
    """
    # Open the image first, so that its error is reported before one of the mask.
    shape = FrameReader(channels[0].image).shape
    path = mask_of(image, labels, images)
    mask = open_image(path)
    if mask.dtype.kind not in "iub":
        raise ValueError(
            f"the mask “{path.name}” must have whole numbers, 0 for the background; its pixels "
            f"are {mask.dtype}"
        )
    if mask.ndim > len(shape) or mask.shape != shape[len(shape) - mask.ndim :]:
        raise ValueError(
            f"the mask “{path.name}” has {_size(mask.shape)} pixels, “{image.name}” "
            f"{_size(shape)}: a mask is as large as a frame, or as the whole image"
        )
    return np.asarray(mask) if mask.ndim == 2 else mask


def _in_folder(folder: Path, image: Path, images: Sequence[Path]) -> list[Path]:
    """Return the masks in a folder that can belong to an image, the same name first."""
    stem = _stem(image)
    masks = [one for one in sorted(folder.iterdir()) if _is_image(one) and one != image]
    same = [one for one in masks if _stem(one) == stem]
    longer = [] if same else [one for one in masks if _begins(one, stem)]
    if longer:
        others = [*images, *_beside(image, folder)]
        longer = [one for one in longer if not _has_nearer(one, stem, others)]
    return same or longer or [folder / f"{stem}{image.suffix}"]


def _beside(image: Path, masks: Path) -> list[Path]:
    """Return the images in an image's folder; none if the masks lie there, too."""
    if _real(image.parent) == _real(masks):
        return []
    try:
        return [one for one in image.parent.iterdir() if _is_image(one)]
    except OSError:
        return []


def _has_nearer(mask: Path, stem: str, images: Sequence[Path]) -> bool:
    """Whether a mask's name begins with that of another image, which is longer."""
    return any(
        len(other) > len(stem)
        and (other == _stem(mask) or _begins(mask, other))
        and _real(one) != _real(mask)
        for one in images
        for other in [_stem(one)]
    )


def _begins(mask: Path, stem: str) -> bool:
    return mask.name.startswith((f"{stem}_", f"{stem}-"))


def _real(path: Path) -> str:
    """Return a path without links; unlike pathlib, also for circular links."""
    return os.path.realpath(path)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


def _stem(path: Path) -> str:
    """Return a name without its ending, or both endings of OME's files."""
    stem = path.stem
    return stem[:-4] if stem.lower().endswith(".ome") else stem


def _size(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))


class Cells:
    """Counts spots in the cells of one image.

    Parameters
    ----------
    labels : array of int
        As accepted by :func:`~napari_spotfit.label_spots`.
    channels : sequence of int
        The channels of the spots, if they are fitted separately.
    """

    def __init__(self, labels: Any, channels: Sequence[int] = ()) -> None:
        self._labels = labels
        self._sums = LabelSums(label_sizes(labels), _COLUMNS, channels)

    def labelled(self, part: SpotFits) -> SpotFits:
        """Add the column ``label`` to spots, and count the good ones in their cells."""
        part = part.to_host()
        label, good = label_spots(part, self._labels), np.asarray(part.good)
        self._sums.add(label[good], part[good].columns)
        return part.with_columns({**part.columns, LABEL: label})

    def table(self, file: str | None = None) -> pd.DataFrame:
        """Return a table of one row per cell, with a column ``file`` if one is given."""
        table = self._sums.table()
        if file is not None:
            table.insert(0, "file", as_text(file))
        return table


def cells_path(table: Path) -> Path:
    """Return the path of the table of cells that belongs to a table of spots.

    Examples
    --------
    >>> cells_path(Path("out/a.tif.spots.parquet")).as_posix()
    'out/a.tif.cells.csv'
    """
    name = table.name[: -len(table.suffix)]
    return table.with_name(name.removesuffix(".spots") + _ENDING)
