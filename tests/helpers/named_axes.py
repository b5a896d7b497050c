"""An array whose axes have names."""

from __future__ import annotations

import numpy as np


class Named:
    """An array with names of axes, like xarray's."""

    def __init__(self, values, dims):
        self.values, self.dims = values, dims
        self.shape, self.dtype = values.shape, values.dtype

    def __getitem__(self, index):
        return self.values[index]

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)
