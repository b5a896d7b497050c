"""Workflows that build and release use only pinned actions."""

from __future__ import annotations

import re

import pytest
from checkout import ROOT

yaml = pytest.importorskip("yaml")
FOLDER = ROOT / ".github"
if not FOLDER.is_dir():
    pytest.skip("needs a checkout", allow_module_level=True)
WORKFLOWS = sorted((FOLDER / "workflows").glob("*.yml"))


def steps(path):
    """Return the steps of all jobs, and the workflows that jobs call."""
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    return [step for job in jobs for step in (job, *job.get("steps", ()))]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_their_commits(path):
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert used
    lines = re.findall(r"uses: (\S+)(.*)", path.read_text(encoding="utf-8"))
    assert [name for name, _ in lines] == used
    for name, comment in lines:
        if not name.startswith("./"):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name), name
            assert re.fullmatch(r" # v\d+(\.\d+)+", comment), f"{name} has no version"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_nothing_is_cached_where_wheels_are_made(path):
    for step in steps(path):
        assert "cache" not in step.get("uses", "")
        assert not any("cache" in name for name in step.get("with", {}))


def test_pinned_actions_are_kept_up_to_date():
    updates = yaml.safe_load((FOLDER / "dependabot.yml").read_text(encoding="utf-8"))["updates"]
    assert "github-actions" in {one["package-ecosystem"] for one in updates}


def test_how_to_report_a_vulnerability_is_found():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "github.com/napari-spotfit/napari-spotfit/security/advisories/new" in text
    link = "](https://github.com/napari-spotfit/napari-spotfit/blob/main/SECURITY.md)"
    for page in ("README.md", "docs/formats.md"):
        assert link in (ROOT / page).read_text(encoding="utf-8")
