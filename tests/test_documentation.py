"""The Python of the README and of the pages runs as written, and their links lead somewhere."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import click
import numpy as np
import pytest
from same_fits import assert_same

import napari_spotfit as spotfit
from napari_spotfit.command_line.main import main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: Not in src: the wheel's tests run without.
PACKAGE = Path(spotfit.__file__).parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
         for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]}  # fmt: skip
SITE = "https://napari-spotfit.github.io/napari-spotfit/"
REPOSITORY = "https://github.com/napari-spotfit/napari-spotfit"
HUB = f"{REPOSITORY}/blob/main/"
PICTURES = "https://raw.githubusercontent.com/napari-spotfit/napari-spotfit/main/"
#: All texts that people read, and the sources, whose messages they read.
TEXTS = [
    *(path for path in ROOT.iterdir() if path.suffix in (".md", ".toml", ".cff", ".yaml")),
    *(path for path in DOCS.rglob("*.*") if path.suffix in (".md", ".rst", ".py")),
    *(ROOT / ".github").rglob("*.*"),
    *(ROOT / "kernels").rglob("*.md"),
    *PACKAGE.rglob("*.py"),
]


def blocks(page: str) -> list[str]:
    """Return the Python of a page."""
    return re.findall(r"^```python\n(.*?)^```", PAGES[page], re.DOTALL | re.MULTILINE)


def run(block: str, page: str, names: dict) -> None:
    """Run a block of a page with the names of those before it."""
    exec(compile(block, page, "exec"), names)


def test_the_readme_is_short_and_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert README.count("\n") <= 120
    (block,) = blocks("README.md")
    names: dict = {}
    with pytest.warns(spotfit.FormatWarning):
        run(block, "README.md", names)
    assert names["count"] > 4000
    assert names["width"] == pytest.approx(1.3, abs=0.02)
    assert Path("movie.thunderstorm.csv").exists()


def test_the_page_on_scripts_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "docs/scripts.md"
    script, files, movies, parts, many, loop, drift, cluster, closed = blocks(page)
    names: dict = {}
    run(script, page, names)
    assert len(names["fits"]) == 100_000
    assert len(names["table"]) > 3000
    run(files, page, names)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["movie.spots.parquet", "movie.toml"]
    assert_same(names["again"], names["fits"])
    assert 0 < spotfit.per_label(names["good"], names["cells"])["count"].sum() < len(names["good"])
    run(movies, page, names)
    assert_same(spotfit.load_fits("long.spots.parquet"), names["fits"])
    assert names["count"] == len(names["fits"])
    assert names["image"].shape == names["movie"].shape
    run(parts, page, names)
    whole = Path("long.spots.parquet").read_bytes()
    assert Path("resumed.spots.parquet").read_bytes() == whole
    assert Path("spots.spots.parquet").read_bytes() == whole
    run(many, page, names)
    assert names["outcome"].state == "done"
    assert len(list(Path("tables").glob("movie*.npy.spots.parquet"))) == 2
    run(loop, page, names)
    assert len(names["fits"]) == 2
    run(drift, page, names)
    assert names["drift"].y[-1] == pytest.approx(0.05 * 39 / 20 * 10, abs=0.1)
    assert names["still"].y[names["linked"].track == 0].std() < 0.05
    run(cluster, page, names)
    table = spotfit.localize(names["movie"]).to_dataframe()
    assert names["light"] == pytest.approx(table.photons[table.good].mean())
    assert sum(part.spots for part in names["written"]) == len(table)
    assert Path("parts.spots.parquet").read_bytes() == whole
    run(closed, page, names)
    held = names["table"][50:]
    assert len(names["table"]) == 250
    assert (held[["y", "x"]].abs().max() < 0.3).all()
    assert (held["correction"] == "moved").all()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_page_on_steps_after_the_fit_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tutorial = PAGES["docs/tutorials/super-resolution.md"]
    names: dict = {"viewer": pytest.importorskip("napari.components").ViewerModel()}
    run(re.findall(r"```\{code-cell\}\n(.*?)```", tutorial, re.DOTALL)[0], "the sample", names)
    names["fits"] = spotfit.localize(names["movie"])
    names["viewer"].add_image(names["movie"], name="movie")
    spotfit.localize_to_folder(names["movie"], "parts")
    for block in blocks("docs/after-the-fit.md"):
        run(block, "docs/after-the-fit.md", names)
    assert names["found"].kappa == pytest.approx(1, abs=0.1)
    assert names["still"].history[-1].name == "subtract_drift"
    assert sum(map(len, names["events"])) == len(spotfit.load_fits("events.spots.parquet"))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_page_on_three_dimensions_runs(tmp_path, monkeypatch):
    tifffile = pytest.importorskip("tifffile")
    monkeypatch.chdir(tmp_path)
    page = "docs/three-dimensions.md"
    volume, lens, quality, measured = blocks(page)
    z, y, x = np.ogrid[:16, :64, :64]
    light = np.zeros((16, 64, 64))
    centers = np.array([[7.5, 15, 20], [6.2, 40, 12.4], [9.1, 33, 50]])
    for place in centers:
        far = ((z - place[0]) / 2) ** 2 + ((y - place[1]) ** 2 + (x - place[2]) ** 2) / 1.3**2
        light += 200 * np.exp(-far / 2)
    stack = np.random.default_rng(1).poisson(light + 10).astype(np.uint16)
    names: dict = {"spotfit": spotfit, "stack": stack, "centers": centers, "beads": stack}
    run(volume, page, names)
    assert np.abs(names["fits"].points() - centers).max() < 0.2
    run(quality, page, names)
    optics = {"zernike": {"astigmatism": 0.12}, "pixel_size": 100.0}
    beads, _ = spotfit.simulate_beads(
        np.arange(-600, 601, 20), (160, 160), count=9, gain=0.5, seed=1, **optics
    )
    names["movie"], truth = spotfit.simulate_movie(
        10, (128, 128), spots_per_frame=5, photons=4000, gain=0.5, z=(-300, 300), optics=optics,
        seed=2,
    )  # fmt: skip
    names["stack"] = beads
    tifffile.imwrite("beads.tif", beads)
    tifffile.imwrite("movie.tif", names["movie"])
    for block in (lens, measured):
        run(block, page, names)
        good = names["fits"][names["fits"].good]
        assert 0.8 * len(truth) < len(good) < 1.2 * len(truth)
        assert good.z.std() == pytest.approx(0.8 * truth.z.std(), rel=0.2)


def test_the_consoles_lines_run():
    components = pytest.importorskip("napari.components")
    from napari_spotfit.widgets.samples import molecules

    (block,) = (block for block in blocks("docs/viewer.md") if "viewer.add_layer" in block)
    viewer = components.ViewerModel()
    for data, arguments, kind in molecules():
        getattr(viewer, f"add_{kind}")(data, **arguments)
    run(block, "docs/viewer.md", {"viewer": viewer})
    assert len(viewer.layers) == 2
    assert len(viewer.layers[-1].data) > 100


#: What the pages take as given, and what must hold in the end.
SELF_CONTAINED = {
    "docs/models.md": lambda names: names["fits"].converged.mean() > 0.9,
    "docs/cameras.md": lambda names: (
        abs(names["photons"] - 800) < 40
        and abs(np.median(names["fits"][names["fits"].good].photons) - 800) < 40
    ),
    "docs/false-spots.md": lambda names: (
        300 < names["found"][1000] < 3000
        and 3 <= names["found"][10] < 30
        and names["found"][0.01] <= 1
    ),
    "docs/processed-images.md": lambda names: (
        names["raw"].settings.noise.process == "" and names["filtered"].settings.noise.process != ""
    ),
    "docs/import-export.md": lambda names: (
        len(names["back"]) == len(names["fits"])
        and np.allclose(names["back"].x, names["fits"].x, atol=1e-3)
    ),
    "docs/precision.md": lambda names: (
        3 < names["precision"][0] / names["precision"][1] < 6 and names["precision"][1] < 0.03
    ),
}


@pytest.mark.parametrize("page", SELF_CONTAINED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_page_runs_and_holds(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    for block in blocks(page):
        run(block, page, names)
    assert SELF_CONTAINED[page](names)


# The blocks of this page are parts of the source.
@pytest.mark.parametrize("page", sorted(PAGES.keys() - {"docs/extending.md"}))
def test_every_block_is_python_and_every_public_name_exists(page):
    for block in blocks(page):
        compile(block, page, "exec")
        assert set(re.findall(r"\bspotfit\.(\w+)", block)) <= set(spotfit.__all__)


def test_every_public_name_is_in_the_reference_once_with_an_example():
    page = (DOCS / "reference" / "python.rst").read_text(encoding="utf-8")
    names = re.findall(r"^   (\w+)$", page, re.MULTILINE)
    assert sorted(names) == sorted(set(spotfit.__all__) - {"__version__"}), (
        "docs/reference/python.rst must list each public name once"
    )
    for name in names:
        # Those of napari's console run in tests/widgets/test_fit_layer.py, which has a viewer.
        example = "In napari's console::" if name.startswith("fit_layer") else ">>> "
        assert example in (getattr(spotfit, name).__doc__ or ""), f"{name} has no example"


def anchors(text: str) -> set[str]:
    """Return the names that headings of a page give to their places."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def where(address: str) -> tuple[Path | None, str]:
    """Return the file that an address of the project shows, None for what has none, and a place."""
    address, _, place = address.partition("#")
    if address.startswith(SITE):
        page = DOCS / (address.removeprefix(SITE).removesuffix(".html") or "index")
        return next(filter(Path.exists, map(page.with_suffix, (".md", ".rst"))), page), place
    for start in (HUB, PICTURES):
        if address.startswith(start):
            return ROOT / address.removeprefix(start), place
    assert address.removeprefix(REPOSITORY) in ("", "/issues", "/security/advisories/new"), address
    return None, place


def test_every_address_of_the_project_leads_somewhere():
    found = []
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        for address in re.findall(rf"(?:{SITE}|{REPOSITORY}|{PICTURES})[^\s)\"\'>`“”,;]*", text):
            file, place = where(address.rstrip("."))
            if file is not None:
                assert file.is_file(), f"{path.name}: {address}"
                there = anchors(file.read_text(encoding="utf-8")) if place else set()
                assert not place or place in there, f"{path.name}: {address}"
            found.append(address)
    assert len(set(found)) > 20


def test_links_of_the_readme_are_full_addresses():
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 10
    for link in links:
        assert link.startswith((SITE, REPOSITORY, PICTURES)), link


def test_files_that_texts_name_exist():
    starts = (ROOT, PACKAGE, ROOT / "kernels", DOCS)
    ways = r"`((?:[\w.-]+/)+[\w.-]*\.(?:py|h|cpp|md|sh|yml|yaml|toml|json|png|rst))\b"
    found = 0
    for path in TEXTS:
        if path.suffix == ".md":
            for name in set(re.findall(ways, path.read_text(encoding="utf-8"))):
                if name.endswith("/NAME.py"):  # to be chosen
                    continue
                found += 1
                name = name.removeprefix("src/napari_spotfit/")
                assert any((start / name).is_file() for start in starts), f"{path.name}: {name}"
    assert found > 30


def test_programs_and_targets_that_texts_name_take_their_options():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    common = (ROOT / "benchmarks" / "common.py").read_text(encoding="utf-8")
    found = 0
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            for target in re.findall(r"(?:`|^)make ([a-z-]+)(?=`| *#| *$)", text, re.MULTILINE):
                assert target in targets, f"{path.name}: make {target}"
        for script, options in re.findall(r"((?:benchmarks|tools)/\w+\.py)((?: -[^`|\n]+)?)", text):
            source = (ROOT / script).read_text(encoding="utf-8") + common
            for option in re.findall(r"(?<= )--[a-z][a-z-]*", options):
                found += 1
                assert f'"{option}"' in source, f"{path.name}: {script} {option}"
            for value in re.findall(r"--only ((?:\w+ ?)+)", options):
                for one in value.split():
                    assert f'"{one}"' in source or f"def {one}" in source, f"{path.name}: {one}"
    assert found > 10


COMMANDS = [
    (page, line.strip())
    for page, text in PAGES.items()
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("napari-spotfit ")
]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_of_pages_take_their_options(page, line):
    _, name, *words = shlex.split(line, comments=True)
    command = main.commands[name]
    context = click.Context(command)
    values, rest, _ = command.make_parser(context).parse_args(words)
    assert not rest, line
    for parameter in command.params:
        value = values.get(parameter.name)
        # Files do not exist here.
        if value and not isinstance(parameter.type, click.Path) and ".h5" not in str(value):
            parameter.type_cast_value(context, value)


def test_all_brings_what_the_readme_shows():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    for name in ("hdf5", "images", "nd2", "ndtiff", "parquet", "tracking"):
        assert set(extras[name]) <= set(extras["all"]), name


def test_commands_in_messages_can_be_copied_into_a_shell():
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for command in ("pip install", "python -m", "napari-spotfit convert"):
            for rest in text.split(command)[1:]:
                line = rest.partition("\n")[0]
                assert not set("“”‘’") & set(line.partition(". ")[0]), f"{path.name}: {line}"
