"""Data, model and residual of a spot that was fitted together with others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..engine.positions import ExcludedPixels
from ..estimation.detection_noise import without_map
from ..models.columns import IN_PLANE
from .group_sample import Array, Group, GroupModel
from .spot_sample import (
    FittedFrame,
    SampledRegion,
    SpotSample,
    excluded_of,
    pixels_of,
    roi_of,
    settings_of,
)

#: How far around a spot, in sides of the ROI, those count that were fitted together with it.
_AROUND = 2
#: How far away, in the same unit, spots count whose light is in those pixels.
GROUP_REACH = _AROUND + 1


def sample_group(
    values: Mapping[str, float], settings: Mapping[str, Any], frame: FittedFrame, group: Group
) -> SpotSample:
    """Cut out a spot and those of its group that are near; lay the model of all beside them.

    Parameters
    ----------
    values, settings, frame
        As :func:`~napari_spotfit.analysis.spot_sample.sample_spot` takes them.
    group : Group
        The spots around this one.

    Raises
    ------
    ValueError
        If the spot's region lies outside the frame or has pixels that are no numbers.
    """
    known, limits = settings_of(values, settings), frame.pixels.shape
    axes, roi = known.profile.axes, roi_of(values, settings, limits)
    sides = roi.shape[-len(axes) :]
    own = tuple(slice(a, a + n) for a, n in zip(roi.corner[-len(axes) :], sides, strict=True))
    bad = None if frame.bad is None else np.broadcast_to(frame.bad, limits)
    pixels_of(frame.pixels, own, False if bad is None else bad[own])
    near = group.members & (abs(group.places - group.places[0]) <= sides).all(axis=1)
    shown = _part(group.places[near], [side // 2 for side in sides], limits)
    wide = _part(group.places[near], [_AROUND * side for side in sides], limits)
    data = frame.pixels[wide].astype(float)
    not_finite = ~np.isfinite(data) if bad is None else bad[wide] | ~np.isfinite(data)
    first = tuple(one.start for one in wide)
    detection = without_map(known, frame.variances)
    excluded, _ = excluded_of(
        (first, data.shape), not_finite, frame, detection, group.places[:1], None
    )
    good = ~not_finite & ~excluded.pixels
    counts = np.where(good, data - known.offset, 0.0)
    same = group.explains(_lines_of(first, data.shape), counts, good)
    here = tuple(
        slice(a.start - b.start, a.stop - b.start) for a, b in zip(shown, wide, strict=True)
    )
    corner, data = tuple(one.start for one in shown), data[here]
    model = group.model(_lines_of(corner, data.shape), counts[here], good[here])
    excluded = ExcludedPixels(corner, *(mask[here] for mask in excluded[1:]))
    region = _GroupRegion(values, known, corner, data, data.size, excluded, 0, model)
    sample = replace(region.cut(len(axes) - 2, len(axes) - 1), same=same)
    if len(axes) == len(IN_PLANE):
        return sample
    whole = (data - region.model)[~excluded.pixels]
    return replace(sample, cuts=(region.cut(0, 2), region.cut(0, 1)), whole=whole)


def _part(places: Array, reach: Sequence[int], limits: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the part of a frame with some places, and as much around them."""
    low, high = np.rint(places.min(axis=0)) - reach, np.rint(places.max(axis=0)) + reach
    ends = zip(low, high, limits, strict=True)
    return tuple(slice(int(max(a, 0)), int(min(b + 1, size))) for a, b, size in ends)


def _lines_of(first: tuple[int, ...], shape: tuple[int, ...]) -> list[Array]:
    """Return the pixels along each axis, in shapes that broadcast."""
    sides = [np.arange(at, at + n, dtype=float) for at, n in zip(first, shape, strict=True)]
    return list(np.meshgrid(*sides, indexing="ij", sparse=True))


@dataclass(frozen=True)
class _GroupRegion(SampledRegion):
    """The pixels around spots that were fitted together."""

    all_light: GroupModel

    @cached_property
    def model(self) -> Array:
        lines = _lines_of(self.first, self.data.shape)
        return self.all_light.counts(lines, self.all_light.light) + self.settings.offset

    def model_at(self, *places: Array) -> Array:
        return self.all_light.counts([*places]) + self.settings.offset

    def own_at(self, *places: Array) -> Array | None:
        return self.all_light.of_spot([*places], 0) + self.settings.offset

    def others(self, down: int, right: int) -> tuple[tuple[float, float], ...]:
        group = self.all_light.group
        ends = np.array(self.first) + self.data.shape
        inside = ((group.places >= self.first) & (group.places <= ends)).all(axis=1)
        inside &= group.members
        inside[0] = False
        return tuple((float(p[down]), float(p[right])) for p in group.places[inside])
