"""Count the lines of code of src/ and kernels/, without docstrings, comments and blank lines.

    python tools/count_code.py [--against REVISION] [--structure] [FOLDER ...]

Counts the files of the checkout without those that git ignores. With --against, a git revision is
counted as well, and each number is divided by that revision's. Other folders that are named, such
as src/napari_spotfit/widgets or benchmarks, have a line each. With --structure, modules without
code, the modules that call the library's fits, the Python frames between public functions and
these, and the files to touch for what docs/extending.md adds follow.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import runpy
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "kernels")
#: Tokens that are no code: layout and comments.
LAYOUT = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
#: Literals are matched too, as they may contain what looks like a comment.
CPP = re.compile(
    r'R"(?P<end>[^\s()\\]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'|(?P<comment>//[^\n]*|/\*.*?\*/)",
    re.DOTALL,
)


def python_lines(text: str) -> int:
    """Count the lines with tokens, without strings that are statements."""
    strings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    code = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in LAYOUT
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(code - strings)


def cpp_lines(text: str) -> int:
    """Count the non-blank lines without comments."""

    def without(match: re.Match[str]) -> str:
        comment = match["comment"]
        return match[0] if comment is None else "\n" * comment.count("\n")

    return sum(bool(line.strip()) for line in CPP.sub(without, text).split("\n"))


COUNTERS: dict[str, Callable[[str], int]] = {
    ".py": python_lines,
    ".pyi": python_lines,
    ".cpp": cpp_lines,
    ".cu": cpp_lines,
    ".h": cpp_lines,
}


def git(*arguments: str) -> bytes:
    """Return the output of a git command."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def files_now(folders: Sequence[str]) -> dict[str, str]:
    """Return the text of every source file in folders of the checkout by its path."""
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *folders)
    names = [name for name in listed.decode().split("\0") if Path(name).suffix in COUNTERS]
    paths = {name: ROOT / name for name in names}
    return {name: path.read_text(encoding="utf-8") for name, path in paths.items() if path.exists()}


def files_of(revision: str, folders: Sequence[str]) -> dict[str, str]:
    """Return the text of every source file in folders of a revision by its path."""
    there = git("ls-tree", "--name-only", revision, "--", *folders).decode().split()
    texts = {}
    with tarfile.open(fileobj=io.BytesIO(git("archive", revision, "--", *there))) as archive:
        for member in archive:
            file = archive.extractfile(member) if Path(member.name).suffix in COUNTERS else None
            if file is not None:
                texts[member.name] = file.read().decode()
    return texts


def count(files: dict[str, str]) -> Counter[str]:
    """Return the lines of code of each folder and of both, and the number of Python modules."""
    counts: Counter[str] = Counter()
    for name, text in files.items():
        lines = COUNTERS[Path(name).suffix](text)
        counts["lines in both"] += lines * name.startswith(FOLDERS)
        counts.update({f"lines in {folder}": lines for folder in Path(name).parents})
        if name.startswith("src/") and name.endswith(".py"):
            counts["modules in src"] += 1
            counts["of them empty"] += not text.strip()
    return counts


def print_structure() -> None:
    """Print how the fits are reached, and how many files an addition needs."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "helpers")]
    tests = runpy.run_path(str(ROOT / "tests" / "engine" / "test_one_door.py"))
    modules = tests["entry_points"]()
    frames = tests["frames_to_the_fits"]()
    pages = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    files = re.findall(r"^\| \[an? ([^\]]+)\]\([^)]*\) \| ([^|]+) \|", pages, re.MULTILINE)
    rows = {
        "modules that call the fits": [str(len(modules)), *sorted(modules)],
        "frames to the fits": [f"{name} {count}" for name, count in frames.items()],
        "files to touch": [f"{what} {count}" for what, count in files],
    }
    for name, values in rows.items():
        print(f"{name}: {', '.join(values)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", metavar="REVISION", help="a git revision to compare with")
    parser.add_argument("--structure", action="store_true", help="also print how fits are reached")
    parser.add_argument("folders", metavar="FOLDER", nargs="*", help="a folder to count as well")
    arguments = parser.parse_args()
    against = arguments.against
    every = [Path(folder).as_posix() for folder in (*FOLDERS, *arguments.folders)]
    folders = [f"lines in {folder}" for folder in every]
    width = max(map(len, folders))
    now = count(files_now(every))
    before = count(files_of(against, every)) if against else None
    if before is not None:
        print(f"{'':{width}}{'now':>9}{against[:11]:>12}{'ratio':>8}")
    for name in (*folders, "lines in both", "modules in src", "of them empty"):
        line = f"{name:{width}}{now[name]:9,}"
        if before is not None:
            line += f"{before[name]:12,}"
            line += f"{now[name] / before[name]:8.3f}" if before[name] else ""
        print(line)
    if arguments.structure:
        print_structure()


if __name__ == "__main__":
    main()
