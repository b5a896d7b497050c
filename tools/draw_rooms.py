"""Draw the rooms of the package and who imports whom, as docs/images/rooms.svg.

    python tools/draw_rooms.py

An arrow that follows from others is left out. The imports are those that tests/test_rooms.py reads.
"""

from __future__ import annotations

import runpy
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[1]
DRAWING = ROOT / "docs" / "images" / "rooms.svg"
WIDTH, HEIGHT, BOX_WIDTH, BOX_HEIGHT, MARGIN = 640, 64, 130, 30, 20


def drawing() -> str:
    """Return the drawing as SVG."""
    tests = runpy.run_path(str(ROOT / "tests" / "test_rooms.py"))
    rooms = [
        name
        for name in tests["ROOMS"]
        if len([n for n in tests["MODULES"] if n[0:1] == (name,)]) > 1
    ]
    below = {room: set[str]() for room in rooms}
    for module, others in tests["imports"]().items():
        if module[:1] and module[0] in below:
            below[module[0]] |= {one[0] for one in others if one and one[0] in below} - {module[0]}
    floors: dict[str, int] = {}
    reached: dict[str, set[str]] = {}
    for room in reversed(rooms):  # what a room imports comes after it
        floors[room] = 1 + max((floors[one] for one in below[room]), default=0)
        reached[room] = below[room].union(*(reached[one] for one in below[room]))
    top = max(floors.values())
    places = {}
    for floor in range(1, top + 1):
        on_it = [room for room in rooms if floors[room] == floor]
        for number, room in enumerate(on_it, 1):
            places[room] = WIDTH * number / (len(on_it) + 1), MARGIN + HEIGHT * (top - floor)
    arrows = [
        (room, one)
        for room, one in product(rooms, rooms)
        if one in below[room] and not any(one in reached[via] for via in below[room])
    ]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT * top}" '
        'font-family="sans-serif" font-size="14" text-anchor="middle">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#777"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT * top}" fill="white"/>',
    ]
    for room, one in arrows:
        (x, y), (to_x, to_y) = places[room], places[one]
        lines.append(
            f'<path d="M{x:g} {y + BOX_HEIGHT:g}C{x:g} {y + HEIGHT:g} {to_x:g} '
            f'{to_y - HEIGHT / 2:g} {to_x:g} {to_y:g}" fill="none" stroke="#777" '
            'marker-end="url(#tip)"/>'
        )
    for room, (x, y) in places.items():
        lines.append(
            f'<rect x="{x - BOX_WIDTH / 2:g}" y="{y:g}" width="{BOX_WIDTH}" '
            f'height="{BOX_HEIGHT}" rx="5" fill="#e8eef7" stroke="#4a6fa5"/>'
        )
        lines.append(f'<text x="{x:g}" y="{y + 20:g}">{room}</text>')
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    DRAWING.write_text(drawing(), encoding="utf-8", newline="\n")
