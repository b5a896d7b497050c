"""How fast the widgets answer: fit, click, preview, and a million spots.

Run without a screen as ``xvfb-run -a -s "-screen 0 1280x1024x24" python benchmarks/gui.py``.
Times are until the canvas is drawn, with whatever OpenGL there is, but where a section says else.
Beside them stands what the GUI thread itself computed: where others use the machine, or OpenGL is
software, the rest is waiting.
"""

from __future__ import annotations

import argparse
import platform

import gui_sections
import gui_tables
import napari
from own_settings import own_settings

SECTIONS = ("open", "fit", "field", "click", "preview", "million", "one-image", "long")


def main() -> None:
    """Print the chosen sections."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--frames", type=int, default=1000, help="of the movie that is fitted")
    parser.add_argument("--spots", type=int, default=1_000_000, help="in the table, in one image")
    parser.add_argument("--long", type=int, default=3_600_000, help="spots of the long fit")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if unknown := {*options.sections} - {*SECTIONS}:
        parser.error(f"the sections are {', '.join(SECTIONS)}; got {', '.join(sorted(unknown))}")
    sections = options.sections or SECTIONS
    print(f"napari {napari.__version__}, Python {platform.python_version()}, {platform.machine()}")
    print(f"median and longest of {options.repeats} (clicks and previews: of 4 times as many)")
    own_settings()
    if "open" in sections:
        gui_tables.opening(options.repeats)
    if "fit" in sections:
        gui_sections.batch(options.frames, options.repeats)
    if "field" in sections:
        gui_sections.field(options.repeats)
    if "click" in sections:
        gui_sections.picking(4 * options.repeats)
    if "preview" in sections:
        gui_sections.preview(4 * options.repeats)
    if "million" in sections:
        gui_tables.million(options.spots, options.repeats)
    if "one-image" in sections:
        gui_tables.one_image(options.spots, options.repeats)
    if "long" in sections:
        gui_sections.long(options.long)


if __name__ == "__main__":
    main()
