"""The measures of the GPU benchmark for models, estimators and large ROIs."""

from __future__ import annotations

from typing import Any

import numpy as np
from gpu_data import are_right, percent, rate
from gpu_machine import Host, Work, host_time, in_turns
from gpu_sections import Bench
from own_models import ROTATED, ROUND, large_spot

from napari_spotfit import StopCondition, fit_spots
from napari_spotfit.models.stopping import CONVERGED

#: Million fits per second that are asked for at 9×9, at least and as the aim.
MLE_RATE, ROTATED_RATE = (100, 200), (150, 300)
#: The least share of the hand-written model's speed for the same as an expression.
OWN_SHARE = (0.3, 0.6)
#: Side of an image that is one fit, and milliseconds for it from NumPy to NumPy.
LARGE = {1000: (3, 1.5), 2828: (20, 10)}
#: A peer's milliseconds for the same: Gpufit, nlsq.
LARGE_PEERS = {1000: (196, 57), 2828: (1952, 285)}
#: Every kind of fit on the device.
KINDS: dict[str, dict[str, Any]] = {
    "round": {},
    "elliptical": {"model": "gaussian_elliptical"},
    "integrated": {"pixel": "integrated"},
    "Lorentzian": {"model": "lorentzian"},
    "rotated": {"model": "gaussian_rotated"},
    "rotated, as an expression": {"model": ROTATED},
    "round, as an expression": {"model": ROUND},
    "bad pixels": {"bad_pixels": None},
    "maximum likelihood": {"estimator": "mle"},
    "rotated, maximum likelihood": {"model": "gaussian_rotated", "estimator": "mle"},
}
LIMITS = {"maximum likelihood": MLE_RATE, "rotated": ROTATED_RATE}


def models(bench: Bench) -> None:
    """Models and estimators on the device, start values made inside."""
    machine, report = bench.machine, bench.report
    for size in (7, 9, 16):
        spots, _ = bench.on_device(size, "float32", 1 / 8)
        bad = np.zeros((size, size), bool)
        bad[1, 2] = True
        kinds = [
            options | ({"bad_pixels": bad} if "bad_pixels" in options else {})
            for options in KINDS.values()
        ]
        works: list[Work] = [lambda s=spots, o=options: machine.fit(s, **o) for options in kinds]
        times = dict(zip(KINDS, in_turns(works, machine.device_time, bench.repeats), strict=True))
        for name, options in zip(KINDS, kinds, strict=True):
            right = are_right(machine.fit(spots, **options), bench.spots(size).truth)
            limits = LIMITS.get(name) if size == 9 else None
            report.add(f"{size}×{size} float32 on device, {name}, M fits/s",
                       len(spots) / times[name] / 1e6, rate, limits, right=right)  # fmt: skip
        share = times["rotated"] / times["rotated, as an expression"]
        report.add(f"{size}×{size}, expression beside hand-written", share, percent, OWN_SHARE)
        del spots, works
        machine.free()


def large(bench: Bench) -> None:
    """One fit of a turned Gaussian to a whole image, from NumPy to NumPy."""
    for side, limits in LARGE.items():
        for dtype in ("float32", "uint16"):
            image, truth = large_spot(side, dtype)

            def fit(image: np.ndarray = image) -> Any:
                return fit_spots(image, model="gaussian_rotated", backend=bench.machine.backend)

            seconds = in_turns([fit], host_time, bench.repeats)[0]
            fits = fit()
            off = float(np.max(np.abs([fits.y[0] - truth[0], fits.x[0] - truth[1]])))
            gpufit, nlsq = LARGE_PEERS[side]
            bench.report.add(
                f"{side}×{side} {dtype}, one turned Gaussian, ms", seconds * 1e3, rate, limits,
                right=bool(fits.converged[0]) and off < 0.1,
                note=f" (Gpufit {gpufit}, nlsq {nlsq})",
            )  # fmt: skip


def likeness(bench: Bench) -> None:
    """Models and estimators on the CPU and on the device."""
    spots = Host().tiled(bench.spots(9).pixels, bench.amount(2e4, 2e3))
    for name, options in KINDS.items():
        given = dict(options)
        if "bad_pixels" in given:
            given["bad_pixels"] = np.eye(9, dtype=bool)
        ours, cpu = (
            fit_spots(spots, backend=backend, errors=False, **given)
            for backend in (bench.machine.backend, "cpu")
        )
        apart = np.maximum(np.abs(ours.x - cpu.x), np.abs(ours.y - cpu.y))
        apart = np.where(cpu.valid & ours.valid, apart, np.where(cpu.valid | ours.valid, 1, 0))
        here, there = (
            np.where(np.isin(fits.stop_condition, CONVERGED), StopCondition.MIN_DELTA,
                     fits.stop_condition) for fits in (ours, cpu)
        )  # fmt: skip
        share = float(np.mean((apart <= 1e-3) & (here == there)))
        bench.report.add(f"9×9 {name}, {len(spots)} spots here and on the CPU, alike", share,
                         lambda value: f"{value:.3%}", (0.998, 0.9999))  # fmt: skip


MODEL_SECTIONS = {"models": models, "large": large, "likeness": likeness}
