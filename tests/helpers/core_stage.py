"""A simulated XY stage of pymmcore-plus."""

from __future__ import annotations

import pytest

unicore = pytest.importorskip("pymmcore_plus.experimental.unicore")


class Stage(unicore.XYStageDevice):
    """A stage at a position in µm, x and y."""

    place = (0.0, 0.0)

    def get_position_um(self):
        return self.place

    def set_position_um(self, x, y):
        self.set_relative_position_um(x - self.place[0], y - self.place[1])

    def set_relative_position_um(self, dx, dy):
        self.place = self.place[0] + dx, self.place[1] + dy

    def busy(self):
        return False

    def nothing(self, *_):
        pass

    home = stop = set_origin = set_origin_x = set_origin_y = nothing

    def get_step_size_um(self):
        return 0.001, 0.001

    def get_limits_um(self):
        return (-100.0, 100.0), (-100.0, 100.0)


def put_into(core, stage):
    """Install a stage in a core."""
    core.loadPyDevice("XY", stage)
    core.initializeDevice("XY")
    core.setXYStageDevice("XY")
