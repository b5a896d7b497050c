"""Spots are linked over frames, and the drift of fiducials is right."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from beads_above import FRAMES, STEP, two_heights
from click.testing import CliRunner
from volume_fits import fits_in_volumes

from napari_spotfit import (
    Drift,
    Settings,
    SimulatedMicroscope,
    SpotFits,
    StopCondition,
    fiducial_drift,
    link_spots,
    load_drift,
    load_fits,
    localize,
    save_drift,
    subtract_drift,
)
from napari_spotfit.command_line.main import main


@pytest.fixture(scope="module")
def beads():
    """Return the fits of drifting beads, and the true drift in pixels."""
    scope = SimulatedMicroscope(
        5, (128, 128), photons=5000.0, drift=(0.3, -0.2), vibration=0.01, frequency=3.0, seed=1
    )
    times, frames = zip(*scope.frames(20.0, 60), strict=True)
    truth = np.array([scope.displacement(time) for time in times])
    fits = localize(np.array(frames), sigma=1.3, gain=1.0, offset=100.0)
    return fits, truth - truth[0]


def test_each_bead_is_one_track(beads):
    fits, _ = beads
    linked = link_spots(fits, 2.0)
    counts = np.bincount(linked.track[linked.track >= 0])
    assert (counts >= 59).sum() == 5
    for number in np.flatnonzero(counts >= 59):
        track = linked[linked.track == number]
        assert np.abs(np.diff(track.y)).max() < 2.0
        assert (np.diff(track.frame) >= 1).all()


def test_the_drift_is_the_true_one_within_its_errors(beads):
    fits, truth = beads
    drift = fiducial_drift(link_spots(fits, 2.0))
    assert len(drift) == 60
    assert (drift.used >= 4).all()
    measured = np.column_stack([drift.y, drift.x]) - truth
    measured -= measured.mean(axis=0)
    errors = np.column_stack([drift.y_stderr, drift.x_stderr])
    assert 0.8 < np.sqrt((measured**2).mean()) / errors.mean() < 1.2


def test_spots_without_drift_stay_where_they_are(beads):
    fits, truth = beads
    linked = link_spots(fits, 2.0)
    still = subtract_drift(linked, fiducial_drift(linked))
    for number in range(3):
        track = still[still.track == number]
        if len(track) > 50:
            assert np.std(track.y) < 3 * np.median(track.y_stderr)
    assert np.ptp(truth[:, 0]) > 5


def made(rows, **more):
    """Return fits of (frame, y, x), with small errors."""
    frame, y, x = (np.array(column, float) for column in zip(*rows, strict=True))
    count = len(frame)
    columns = {
        "frame": frame.astype(np.int64), "y": y, "x": x, "photons": np.full(count, 100.0),
        "amplitude": np.full(count, 10.0), "stop_condition": np.zeros(count, np.uint8),
        "y_stderr": np.full(count, 0.01, np.float32), "x_stderr": np.full(count, 0.01, np.float32),
        "flags": np.zeros(count, np.uint32),
    }  # fmt: skip
    return SpotFits(columns | more, ("frame",))


def test_a_missing_fiducial_and_a_wrong_one_change_nothing():
    rows = [
        (frame, 20.0 * number + 0.1 * frame, 30.0 + (2.0 if number == 3 and frame == 4 else 0.0))
        for frame in range(10)
        for number in range(4)
        if not (number == 1 and 3 <= frame < 6)
    ]
    drift = fiducial_drift(link_spots(made(rows), 3.0, memory=4))
    assert drift.y == pytest.approx(0.1 * np.arange(10))
    assert drift.x == pytest.approx(np.zeros(10), abs=1e-9)
    assert drift.used.tolist() == [4, 4, 4, 3, 2, 3, 4, 4, 4, 4]


def test_frames_without_fiducials_are_interpolated_and_said():
    rows = [(frame, 0.2 * frame, 7.0) for frame in range(10) if frame not in (4, 5)]
    with pytest.warns(UserWarning, match="no fiducial is seen in frame 10: the drift"):
        drift = fiducial_drift(link_spots(made(rows), 3.0, memory=4), frames=11)
    assert drift.y == pytest.approx([0.2 * min(frame, 9) for frame in range(11)])
    assert drift.used.tolist() == [1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 0]
    assert np.isnan(drift.y_stderr[[4, 5, 10]]).all()


def test_frames_that_no_track_ties_to_the_others_are_refused():
    jump = [(frame, 20.0 * n + 5.0 * (frame >= 5), 7.0) for frame in range(10) for n in range(4)]
    with pytest.raises(ValueError, match=r"no track ties frames 5–9 to frames 0–4.*max_distance"):
        fiducial_drift(link_spots(made(jump), 2.0, memory=3))
    dark = [row for row in jump if row[0] != 5]
    with pytest.raises(ValueError, match=r"frames 6–9 to frames 0–4"):
        fiducial_drift(link_spots(made(dark), 2.0), frames=10, least_share=0.4)
    found = fiducial_drift(link_spots(made(jump), 6.0))
    assert found.y == pytest.approx([0.0] * 5 + [5.0] * 5)


def test_frames_whose_tracks_are_too_short_are_refused():
    """As where a shutter was closed for longer than spots are remembered."""
    seen = [frame for frame in range(60) if not 20 <= frame < 30]
    rows = [(frame, 20.0 * n + 0.05 * frame, 7.0) for frame in seen for n in range(4)]
    with pytest.raises(ValueError, match=r"spots are seen all along frames 0–19, .*memory"):
        fiducial_drift(link_spots(made(rows), 2.0, memory=3))
    drift = fiducial_drift(link_spots(made(rows), 2.0, memory=12))
    assert drift.y == pytest.approx(0.05 * np.arange(60))
    early = made([row for row in rows if row[0] >= 30])
    with pytest.warns(UserWarning, match="no fiducial is seen in frames 0–29"):
        drift = fiducial_drift(link_spots(early, 2.0))
    assert (drift.used[:30] == 0).all()


def turning(rng, angles, creep):
    """Return fits of 25 beads on a sample that rotates around its middle, while each creeps."""
    homes, speeds = rng.uniform(20, 140, (25, 2)), rng.normal(0, creep, (25, 2))
    rows = []
    for frame, angle in enumerate(np.deg2rad(angles)):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        moved = (homes - 80.0) @ turn + 80.0 + speeds * frame
        rows += [(frame, *place) for place in moved + rng.normal(0, 0.01, homes.shape)]
    return made(rows)


@pytest.mark.parametrize(("turn", "creep"), [(0.0, 0.0), (0.02, 0.0), (0.0, 0.01)])
def test_errors_are_as_large_as_fiducials_scatter(turn, creep):
    deviates = []
    for seed in range(8):
        fits = turning(np.random.default_rng(seed), turn * np.arange(60), creep)
        drift = fiducial_drift(link_spots(fits, 2.0))
        assert (drift.used >= 20).all()
        off = np.column_stack([drift.y, drift.x])
        errors = np.column_stack([drift.y_stderr, drift.x_stderr])
        deviates.append((off - off.mean(axis=0)) / errors)
        if not turn and not creep:
            assert errors.mean() == pytest.approx(0.01 / 5, rel=0.06)
    # Half of uniform deviates are farther away than of normal ones.
    assert 0.55 < np.sqrt(np.mean(np.square(deviates))) < 1.3


def test_fiducials_seen_one_after_the_other_tell_the_drift():
    seen = [(0, 40), (30, 70), (60, 100)]
    rows = [
        (frame, 20.0 * number + 0.06 * frame, 7.0)
        for frame in range(100)
        for number, (first, end) in enumerate(seen)
        if first <= frame < end
    ]
    drift = fiducial_drift(link_spots(made(rows), 1.0), least_share=0.3)
    assert drift.y == pytest.approx(0.06 * np.arange(100), abs=1e-6)


def test_fiducials_without_standard_errors_are_refused():
    fits = made([(0, 1.0, 1.0), (1, 1.0, 1.0)], y_stderr=np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="standard errors above 0"):
        fiducial_drift(link_spots(fits, 1.0))


def two_movies(**axes):
    rows = [(frame, 5.0 + 0.1 * number * frame, 5.0) for frame in range(6) for number in range(2)]
    return made(rows, **axes)


SEVERAL = [
    ({"file": np.array(["a.npy", "b.npy"] * 6, object)}, r"2 files.*fits\.file == 'a\.npy'"),
    (
        {"axis_0": np.array([0, 1] * 6), "axis_1": np.repeat(np.arange(6), 2)},
        r"2 positions on axis_0.*fits\.axis_0 == 0",
    ),
]


@pytest.mark.parametrize(("axes", "message"), SEVERAL)
def test_movies_that_drift_apart_are_refused_together(axes, message):
    linked = link_spots(two_movies(**axes), 1.0)
    assert linked.track.tolist() == [0, 1] * 6
    with pytest.raises(ValueError, match=message):
        fiducial_drift(linked)
    with pytest.raises(ValueError, match=message):
        subtract_drift(linked, drift_of(6))
    second = linked[linked.track == 1]
    assert fiducial_drift(second).y == pytest.approx(0.1 * np.arange(6))
    assert subtract_drift(second, fiducial_drift(second)).y == pytest.approx(5.0)


def test_the_command_refuses_several_movies(tmp_path):
    two_movies(**SEVERAL[0][0]).save(tmp_path / "two.spots.csv")
    given = ["drift", str(tmp_path / "two.spots.csv"), "-o", str(tmp_path / "still.spots.csv")]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 1
    assert "these fits are of 2 files" in done.output
    assert not (tmp_path / "still.spots.csv").exists()


def test_the_command_knows_the_size_of_a_pixel(tmp_path, recwarn):
    made([(frame, 5.0 + 0.1 * frame, 5.0) for frame in range(6)]).save(tmp_path / "a.spots.csv")
    target = tmp_path / "still.thunderstorm.csv"
    given = ["drift", str(tmp_path / "a.spots.csv"), "-o", str(target), "--pixel-size", "100"]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 0, done.output
    assert "still.thunderstorm.csv: " in done.output.replace(str(target), "")
    assert not recwarn.list
    assert load_fits(target, pixel_size=100).y == pytest.approx(5.0)
    again = tmp_path / "again.spots.csv"
    zeros = tmp_path / "zero.csv"
    save_drift(drift_of(6), zeros)
    given = ["drift", str(target), "-o", str(again), "--drift", str(zeros), "--pixel-size", "100"]
    assert CliRunner().invoke(main, given).exit_code == 0
    assert load_fits(again).y == pytest.approx(5.0)


def test_doubtful_spots_are_not_linked():
    fits = made([(0, 5.0, 5.0), (1, 5.1, 5.0)], flags=np.array([0, 32], np.uint32))
    assert link_spots(fits, 2.0).track.tolist() == [0, -1]
    assert link_spots(fits, 2.0, least_frames=2).track.tolist() == [-1, -1]


def test_movies_of_several_axes_are_linked_apart():
    fits = made(
        [(0, 5.0, 5.0), (0, 5.0, 5.0), (1, 5.0, 5.0), (1, 5.0, 5.0)],
        axis_0=np.array([0, 1, 0, 1]), axis_1=np.array([0, 0, 1, 1]),
    )  # fmt: skip
    track = link_spots(fits, 2.0).track
    assert track[0] == track[2] != track[1] == track[3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda fits: link_spots(fits, -1.0), "max_distance"),
        (lambda fits: link_spots(fits, 1e300), "max_distance"),
        (lambda fits: link_spots(fits, 1.0, memory=-1), "memory"),
        (lambda fits: fiducial_drift(fits), "link_spots"),
        (lambda fits: fiducial_drift(link_spots(fits, 1.0), frames=100), "no track is seen in 50%"),
        (lambda fits: subtract_drift(fits, drift_of(1)), "of 1 frames"),
        (lambda fits: save_drift(drift_of(2), "drift.xml"), r"\.csv or \.txt"),
    ],
)
def test_what_cannot_be_done_is_said(call, message):
    with pytest.raises(ValueError, match=message):
        call(made([(0, 1.0, 1.0), (1, 1.0, 1.0)]))


def drift_of(count):
    zeros = np.zeros(count)
    return Drift(zeros, zeros, zeros, zeros, np.ones(count, np.int64))


def test_a_drift_is_saved_and_loaded(tmp_path, beads):
    drift = fiducial_drift(link_spots(beads[0], 2.0))
    save_drift(drift, tmp_path / "a.csv")
    again = load_drift(tmp_path / "a.csv")
    for name in ("y", "x", "y_stderr", "x_stderr", "used"):
        np.testing.assert_array_equal(getattr(again, name), getattr(drift, name))
    save_drift(drift, tmp_path / "a.txt")
    as_picasso = np.loadtxt(tmp_path / "a.txt")
    np.testing.assert_allclose(as_picasso, np.column_stack([drift.x, drift.y]))
    assert load_drift(tmp_path / "a.txt").y == pytest.approx(drift.y)
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"b\.csv"):
        load_drift(tmp_path / "b.csv")


def imported(z_unit):
    """Return one spot in each of three frames, as imported from another program."""
    rows = np.arange(3)
    columns = {"frame": rows, "y": rows + 5.0, "x": rows + 7.0, "z": rows * 100.0}
    stop = np.full(3, StopCondition.MIN_DELTA, np.uint8)
    return SpotFits(columns | {"stop_condition": stop}, ("frame",), units={"z": z_unit})


@pytest.mark.parametrize("ending", [".csv", ".txt"])
def test_a_drift_along_z(tmp_path, ending):
    rows = np.arange(3.0)
    drift = replace(drift_of(3), x=rows / 4, z=rows * 10, z_stderr=rows)
    save_drift(drift, tmp_path / f"a{ending}")
    again = load_drift(tmp_path / f"a{ending}")
    assert (again.z.tolist(), again.x.tolist()) == (drift.z.tolist(), drift.x.tolist())
    assert ending == ".txt" or again.z_stderr.tolist() == drift.z_stderr.tolist()
    still = subtract_drift(imported("nm"), again)
    assert still.z.tolist() == [0, 90, 180]
    assert still.units["z"] == "nm"
    with pytest.raises(ValueError, match="z of these fits in planes"):
        subtract_drift(imported("planes"), again)


def test_picassos_drift_in_nanometres(tmp_path):
    path = tmp_path / "a_drift.txt"
    path.write_text("# picasso_format: 1.0\n# dx\tdy\tdz\n0 0 0\n50 20 30\n")
    drift = load_drift(path, pixel_size=(40, 100))
    assert (drift.x[1], drift.y[1], drift.z[1]) == (0.5, 0.5, 30)
    with pytest.raises(ValueError, match=r"a_drift.txt.*in nm.*pixel_size"):
        load_drift(path)
    path.write_text("0 0 0 0\n")
    with pytest.raises(ValueError, match="4 numbers instead of x and y"):
        load_drift(path)


def test_the_rows_of_a_drift_are_known_by_their_frames(tmp_path):
    drift, path = drift_of(7), tmp_path / "a.drift.csv"
    save_drift(drift, path)
    head, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, *rows[::-1]]) + "\n")
    assert load_drift(path).y.tolist() == drift.y.tolist()
    for other in (rows[1:], [*rows, rows[0]]):
        path.write_text("\n".join([head, *other]) + "\n")
        with pytest.raises(ValueError, match="column frame must have each number from 0 on once"):
            load_drift(path)
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"no column 'frame'; the columns are frame, y, x"):
        load_drift(path)


def test_the_command_subtracts_the_drift(tmp_path, beads):
    fits, _ = beads
    fits.save(tmp_path / "beads.spots.parquet")
    table, drift = tmp_path / "still.spots.parquet", tmp_path / "beads.drift.csv"
    given = ["drift", str(tmp_path / "beads.spots.parquet"), "-o", str(table)]
    done = CliRunner().invoke(main, [*given, "--save-drift", str(drift), "--max-distance", "2"])
    assert done.exit_code == 0, done.output
    assert "by 5 fiducials in most frames" in done.output
    expected = subtract_drift(fits, fiducial_drift(link_spots(fits, 2.0, memory=5)))
    np.testing.assert_array_equal(load_fits(table).y, expected.y)
    again = tmp_path / "again.spots.parquet"
    done = CliRunner().invoke(main, [*given[:2], "-o", str(again), "--drift", str(drift)])
    assert done.exit_code == 0, done.output
    np.testing.assert_allclose(load_fits(again).y, expected.y)
    done = CliRunner().invoke(main, given[:2])
    assert done.exit_code == 2
    assert "--save-drift" in done.output


def test_the_command_links_along_z_by_its_scale(tmp_path):
    fits = two_heights()
    fits.save(tmp_path / "beads.spots.parquet")
    given = ["drift", str(tmp_path / "beads.spots.parquet"), "--save-drift"]
    drifts = {}
    for scale in ("", "0", "3"):
        path = tmp_path / f"beads{scale}.drift.csv"
        options = ["--z-scale", scale] if scale else []
        done = CliRunner().invoke(main, [*given, str(path), "--max-distance", "2", *options])
        assert done.exit_code == 0, done.output
        assert ("planes of the column z_px are is unknown" in done.output) == (not scale)
        drifts[scale] = load_drift(path)
    assert np.abs(drifts["3"].x - STEP * np.arange(FRAMES)).max() < 1e-9
    assert np.abs(drifts["0"].x - STEP * np.arange(FRAMES)).max() > 0.1
    assert (drifts[""].x == drifts["0"].x).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "aim", "--z-scale", "3"], "--z-scale says nothing to --method aim"),
        (["--method", "rcc", "--memory", "2"], "--memory says nothing to --method rcc"),
        (["--segment", "2"], "--segment says nothing to --method fiducials"),
        (["--z-scale", "nan"], "--z-scale must be how many pixels one unit of z is"),
    ],
)
def test_the_command_refuses_what_would_not_count(tmp_path, options, message):
    two_heights().save(tmp_path / "beads.spots.parquet")
    given = ["drift", str(tmp_path / "beads.spots.parquet"), "-o", str(tmp_path / "a.spots.csv")]
    done = CliRunner().invoke(main, [*given, *options])
    assert done.exit_code != 0
    assert message in " ".join(done.output.split())


def test_errors_of_a_bead_alone_are_its_own():
    drift = fiducial_drift(link_spots(made([(0, 1.0, 1.0), (1, 1.5, 1.0)]), 1.0))
    assert drift.y_stderr == pytest.approx([0.01, 0.01])
    assert not math.isnan(drift.x[1])


def test_spots_of_volumes_are_linked_along_z_too():
    fits = fits_in_volumes(4)
    places = {"frame": [0, 0, 1, 1], "z": [1, 8, 8, 1], "y": [5] * 4, "x": [6] * 4}
    columns = {name: np.array(along, fits.columns[name].dtype) for name, along in places.items()}
    volumes = SpotFits(fits.columns | columns, ("frame",), fits.settings)
    linked = link_spots(volumes, 2.0, z_scale=1.0)
    assert linked.track.tolist() == [0, 1, 1, 0]


def drifting_in_z(unit, seed=0, tracks=12, frames=20):
    """Return beads that drift 90 nm a frame along z, with errors of 9 nm, and that drift in nm."""
    rng = np.random.default_rng(seed)
    frame = np.repeat(np.arange(frames), tracks)
    rise = 90.0 * frame
    nm = np.tile(rng.uniform(1000, 2000, tracks), frames) + rise + rng.normal(0, 9.0, len(frame))
    size = 300.0 if unit == "planes" else 1.0
    columns = {"frame": frame, "track": np.tile(np.arange(tracks), frames), "z": nm / size}
    columns |= {axis: 9.0 + rng.normal(0, 0.01, len(frame)) for axis in "yx"}
    errors = {"z_stderr": 9.0 / size, "y_stderr": 0.01, "x_stderr": 0.01}
    columns |= {name: np.full(len(frame), error, np.float32) for name, error in errors.items()}
    columns["stop_condition"] = np.full(len(frame), 3, np.uint8)
    if unit == "nm":
        return SpotFits(columns, ("frame",), units={"z": "nm"}), 90.0 * np.arange(frames)
    settings = Settings(model="gaussian_3d", voxel_size=(300, 100, 100))
    columns["z_nm"] = nm
    return SpotFits(columns, ("frame",), settings), 90.0 * np.arange(frames)


@pytest.mark.parametrize("unit", ["nm", "planes"])
def test_the_drift_of_beads_along_z(unit):
    fits, truth = drifting_in_z(unit)
    lost = np.where((fits.track == 0) & (fits.frame > 5), np.nan, fits.z)
    size = 300.0 if unit == "planes" else 1.0
    odd = np.where((fits.track == 1) & (fits.frame > 9), lost + 1500 / size, lost)
    drift = fiducial_drift(fits.with_columns(fits.columns | {"z": odd}))
    apart = drift.z - truth
    apart -= apart.mean()
    assert 0.6 < np.std(apart) / np.median(drift.z_stderr) < 1.5
    assert np.median(drift.z_stderr) == pytest.approx(9 / np.sqrt(10), rel=0.3)
    still = subtract_drift(fits, drift)
    for name, of in (("z", size), *([("z_nm", 1.0)] if unit == "planes" else [])):
        means = [of * still.columns[name][still.frame == frame].mean() for frame in range(20)]
        assert np.ptp(means) < 12


def test_beads_without_a_known_z_drift_along_y_and_x():
    fits, _ = drifting_in_z("planes")
    unknown = SpotFits(fits.columns, ("frame",), Settings(model="gaussian_3d"))
    assert fiducial_drift(unknown).z is None
    nothing = fits.columns | {"z_stderr": np.full(len(fits), np.nan, np.float32)}
    with pytest.warns(UserWarning, match="the drift is without z"):
        assert fiducial_drift(fits.with_columns(nothing)).z is None
    apart = np.where((fits.track < 6) == (fits.frame < 10), fits.columns["z_stderr"], np.nan)
    with pytest.warns(UserWarning, match="the drift is without z: no track ties"):
        drift = fiducial_drift(fits.with_columns(fits.columns | {"z_stderr": apart}))
    assert drift.z is None
    assert np.abs(drift.y).max() < 0.05
