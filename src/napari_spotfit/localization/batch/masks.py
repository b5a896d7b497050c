"""The mask of each image of a batch: its cells, by the image's name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...images.files.opening import ENDINGS, open_image


def mask_of(image: Path, labels: str) -> Path:
    """Return the file with the mask of an image.

    Parameters
    ----------
    image : path
        The image file.
    labels : str
        A pattern in which the image's name without its ending takes the place of ``*``; a folder
        with masks that are called as the images, or so and something more; what comes after the
        image's name, of masks beside the images; or one file for all images.

    Raises
    ------
    FileNotFoundError
        If there is none; the message says where it was looked for.
    ValueError
        If there are several.

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
        # Without a folder it is meant beside the image.
        found = [named if named.parent != Path() else image.parent / named]
    elif place.is_dir() and not _is_image(place):
        found = _in_folder(place, stem, image)
    elif place.exists():
        found = [place]
    else:
        found = [image.parent / f"{stem}{labels}"]
    if len(found) > 1:
        names = ", ".join(f"“{one.name}”" for one in found)
        raise ValueError(f"“{image.name}” has several masks: {names}; say which, with a pattern")
    if not found[0].exists():
        raise FileNotFoundError(
            f"“{image.name}” has no mask: there is no file “{found[0].as_posix()}”"
        )
    return found[0]


def without_masks(images: Sequence[Path], labels: str) -> list[Path]:
    """Return images without those that are the mask of another one of them."""
    masks = set()
    for image in images:
        with suppress(OSError, ValueError):  # told when its turn comes
            mask = mask_of(image, labels)
            masks |= {mask.resolve()} - {image.resolve()}
    return [image for image in images if image.resolve() not in masks]


def open_mask(path: Path, image: Path) -> Any:
    """Return the labels of a mask: an array, or of a movie an image that reads its frames.

    Raises
    ------
    ValueError
        If it cannot be read, has no whole numbers, or is not as large as the image.
    """
    mask, shape = open_image(path), open_image(image).shape
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


def _in_folder(folder: Path, stem: str, image: Path) -> list[Path]:
    """Return the masks in a folder that an image may have: of the same name before others."""
    there = [one for one in sorted(folder.iterdir()) if _is_image(one) and one != image]
    same = [one for one in there if _stem(one) == stem]
    found = same or [one for one in there if one.name.startswith((f"{stem}_", f"{stem}-"))]
    return found or [folder / f"{stem}{image.suffix}"]


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS


def _stem(path: Path) -> str:
    """Return a name without its ending, of OME's files without both."""
    stem = path.stem
    return stem[:-4] if stem.lower().endswith(".ome") else stem


def _size(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
