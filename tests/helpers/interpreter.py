"""Evaluate steps of expressions by the compiled library, outside fits."""

from __future__ import annotations

import numpy as np

from napari_spotfit.engine.cpu.expression import OPERATIONS, STEP, Encoded
from napari_spotfit.engine.cpu.library import load


def memory(places: int) -> np.ndarray:
    """Return memory for an expression's values, (positions, lanes), aligned for the library."""
    library = load()
    lanes = library.functions.spotfit_lane_width(library.index)
    whole = np.full(places * lanes + 16, np.nan, np.float32)
    first = -whole.ctypes.data % 64 // 4
    return whole[first : first + places * lanes].reshape(places, lanes)


def run(steps: np.ndarray, numbers: np.ndarray, n: int, row: int = 0, rows: int = 1) -> None:
    """Run steps for n positions in each of some rows."""
    library = load()
    library.functions.spotfit_run_steps(
        library.index, steps.ctypes.data, len(steps), numbers.ctypes.data, n, row, rows
    )


def apply(function: str, *arguments: np.ndarray) -> np.ndarray:
    """Apply an operation of the library to arrays."""
    numbers = memory(0)
    count = -(-arguments[0].size // numbers.shape[1])
    numbers = memory(4 * count)
    flat = numbers.reshape(4, -1)
    for place, argument in zip(flat[1:], arguments, strict=False):
        place[: argument.size] = argument
    places = [i * count for i in (0, 1, 2, 3)]
    run(np.array([(OPERATIONS[function], 7, 0, 7, *places)], STEP), numbers, count)
    return flat[0, : arguments[0].size].copy()


def evaluate(encoded: Encoded, roi_shape: tuple[int, int], parameters: np.ndarray) -> np.ndarray:
    """Return f and its derivatives, (1 + K, rows, columns, lanes), as in a fit.

    ``parameters`` has a row for each of the K shape parameters, a column for each lane.
    """
    (rows, columns), program = roi_shape, encoded.program
    numbers = memory(encoded.lanes)
    constants = program.constant_count
    numbers[:constants] = encoded.constants[:, None]
    numbers[constants : constants + program.parameters] = parameters
    numbers[program.x : program.x + columns] = np.arange(columns)[:, None]
    numbers[program.y : program.y + rows] = np.arange(rows)[:, None]
    steps = encoded.steps
    for count, n in ((program.once, 1), (program.by_column, columns), (program.by_row, rows)):
        run(steps[:count], numbers, n)
        steps = steps[count:]
    found = np.empty((1 + program.parameters, rows, columns, numbers.shape[1]))
    at_once = program.rows_at_once
    for row in range(0, rows, at_once):
        block = min(at_once, rows - row)
        run(steps, numbers, columns, row, block)
        results = numbers[program.results :][: len(found) * at_once * columns]
        results = results.reshape(len(found), at_once, columns, -1)
        found[:, row : row + block] = results[:, :block]
    return found
