"""The documentation site: `make docs` builds it with warnings as errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.errors import ExtensionError

import napari_spotfit

project = "napari-spotfit"
author = "The napari-spotfit developers"
copyright = author
release = napari_spotfit.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_click",
]
default_role = "code"
# Options begin with two hyphens, which are no dash.
smartquotes = False

source_suffix = {".rst": "restructuredtext", ".md": "myst-nb"}

# Docstrings say types and units in words; signatures stay short.
templates_path = ["_templates"]
autodoc_typehints = "none"
autodoc_default_options = {"member-order": "bysource"}
napoleon_google_docstring = False
# Types are words, and few are names.
napoleon_use_ivar = True
napoleon_use_param = False
napoleon_use_rtype = False

myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

# Tutorials run whenever the site is built; a cell that fails ends the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

html_theme = "pydata_sphinx_theme"
html_title = "napari-spotfit"
html_theme_options = {
    "github_url": "https://github.com/napari-spotfit/napari-spotfit",
    "navbar_align": "left",
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_show_sourcelink = False
# Browsers show it themselves: without network, and without a program.
html_math_renderer = "mathml"


def _formula(writer: Any, node: Any) -> None:
    """Write a formula as MathML."""
    block = node.tagname == "math_block"
    formula = tex2mathml(node.astext(), as_block=block)
    writer.body.append(f"<p>{formula}</p>" if block else formula)
    raise SkipNode


def _escape_stars(app: Any, context: Any, lines: list[str]) -> None:
    """Show the stars in texts of commands, which are patterns of files."""
    lines[:] = [re.sub(r"(?<!\*)\*(?!\*)", r"\*", line) for line in lines]


def _check_offline(app: Any, error: Exception | None) -> None:
    """Raise an error if a page needs the network to be shown."""
    for page in Path(app.outdir).rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        if found := re.search(r"<(?:script|link|img)\b[^>]*=\"(?:https?:)?//[^>]*>", text):
            raise ExtensionError(f"{page.name} loads something from elsewhere: {found[0]}")


def setup(app: Any) -> None:
    """Register what pages need beside the extensions."""
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))
    for part in ("description", "options"):
        app.connect(f"sphinx-click-process-{part}", _escape_stars)
    app.connect("build-finished", _check_offline)
