"""Run the widget's tests with every supported napari; write docs/napari-versions.md."""

import datetime
import platform
import subprocess
import sys
import venv
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "docs" / "napari-versions.md"

#: Requirements for pip by name of the environment.
REQUIREMENTS = {
    "0.7.1": "napari[pyqt6]==0.7.1",
    "0.8.0": "napari[pyqt6]==0.8.0",
    "newest": "napari[pyqt6]",
}
#: Packages whose versions are noted.
NOTED = ("napari", "npe2", "PyQt6", "numpy", "pandas")


def main() -> int:
    rows, passed = [], True
    for name, requirement in REQUIREMENTS.items():
        print(f"\n=== {requirement} ===", flush=True)
        python = environment(ROOT / ".venv-napari" / name, requirement)
        results = python.parents[1] / "results.xml"
        results.unlink(missing_ok=True)
        tests = [python, "-m", "pytest", "tests/widgets", f"--junitxml={results}"]
        run = subprocess.run(tests, cwd=ROOT)
        passed = passed and run.returncode == 0
        rows.append([*versions(python), counts(results)])
    table = markdown(["Python", *NOTED, "tests"], rows)
    made = f"Made by `make test-napari` on {platform.system()}, {datetime.date.today()}."
    REPORT.write_text(f"# napari versions\n\n{made}\n\n{table}", encoding="utf-8")
    print(f"\n{table}\nwritten to {REPORT.relative_to(ROOT)}")
    return 0 if passed else 1


def environment(folder: Path, requirement: str) -> Path:
    """Update an environment and return its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, clear=True, with_pip=True)
    install = [python, "-m", "pip", "install", "--quiet", "--upgrade"]
    subprocess.run([*install, "pip>=25.1"], check=True)
    subprocess.run(
        [*install, requirement, "--editable", ".", "--group", "test"], check=True, cwd=ROOT
    )
    return python


def versions(python: Path) -> list[str]:
    """Return the versions of Python and of the noted packages."""
    code = (
        "import platform, sys; from importlib.metadata import version;"
        "print(platform.python_version(), *map(version, sys.argv[1:]))"
    )
    run = subprocess.run([python, "-c", code, *NOTED], check=True, capture_output=True, text=True)
    return run.stdout.split()


def counts(results: Path) -> str:
    """Return the numbers of tests that passed, failed and were skipped."""
    if not results.exists():
        return "did not run"
    suite = ElementTree.parse(results).find("testsuite")
    assert suite is not None
    total, skipped, failures, errors = (
        int(suite.get(name, 0)) for name in ("tests", "skipped", "failures", "errors")
    )
    failed = failures + errors
    parts = {"passed": total - skipped - failed, "failed": failed, "skipped": skipped}
    return ", ".join(f"{number} {word}" for word, number in parts.items() if number)


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
