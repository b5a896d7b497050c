"""Make command-line options for settings from the descriptions of their fields."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from ..engine.backend import BackendUnavailableError
from ..engine.select import select_backend, usable_here
from ..files.settings_file import load_settings
from ..models.profiles import ALL_MODELS
from ..settings.settings import Settings, parameters
from ..settings.validation import GROUPS, Parameter, words_of
from .output import USUAL, write_message

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:  # older versions are not generic
    _ParamType = click.ParamType
Command = TypeVar("Command", bound=Callable[..., Any])
#: Settings that are too long for a command line; files of settings can have them.
_LEFT_OUT = ("noise",)
#: Format of settings with a number per axis.
_SIDES = {"roi_size": "N|ROWSxCOLUMNS", "voxel_size": "ZxYxX"}
#: The word for None, to override a value of a file of settings.
_UNSET = "auto"


class AboveZero(click.FloatRange):
    """A finite number above 0, up to a limit."""

    def __init__(self, highest: float | None = None) -> None:
        super().__init__(0, highest, min_open=True)

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the number, and refuse NaN, which Click accepts in ranges."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"it must be a finite number; got {value}", param, ctx)
        return number


def takes_z_scale(command: Command) -> Command:
    """Add the option of how many pixels one unit of z is to a command that measures distances."""
    return click.option(
        "--z-scale", type=click.FloatRange(0), metavar="PX",
        help="How many pixels one unit of z is: 3 for planes of 300 nm and pixels of 100 nm; 0 "
        "leaves z out. By default that of the voxel size, if the spots have one.",
    )(command)  # fmt: skip


def takes_files(command: Command) -> Command:
    """Add the options of runs over many files to a command."""
    for option in (
        click.option("-v", "--verbose", is_flag=True, help="Write more about each file."),
        click.option("-q", "--quiet", is_flag=True, help="Write errors only."),
        click.option("--json", "as_json", is_flag=True, help="Write a summary as JSON."),
        click.option(
            "--fresh", is_flag=True, help="Start over, ignoring earlier runs."
        ),
        click.option(
            "--workers", type=click.IntRange(1), default=1, show_default=True,
            help="Number of files at a time, which share the cores: for small files on many cores.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def takes_settings(command: Command) -> Command:
    """Add an option for each setting to a command, and ``--settings`` for a file."""
    hints = typing.get_type_hints(Settings)
    shown = (item for item in fields(Settings) if item.name not in _LEFT_OUT)
    groups = list(GROUPS)
    known = sorted(shown, key=lambda item: groups.index(parameters()[item.name].group))
    for item in known[::-1]:  # Click shows the last one first
        about = parameters()[item.name]
        command = _option(item.name, hints[item.name], about, item.default)(command)
    return click.option(
        "--settings",
        "settings_file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A .toml of settings, or a table of an earlier run, to use its settings.",
    )(command)


def chosen_settings(context: click.Context) -> Settings:
    """Return the settings of a command: those of the file, changed by the options.

    Raises
    ------
    click.UsageError
        If a setting is not accepted.
    """
    values = context.params
    given = {
        name: _mapping(value) if name in ("fixed", "bounds") else value
        for name, value in values.items()
        if name in parameters()
        and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    path = values["settings_file"]
    try:
        found = Settings() if path is None else load_settings(path)
        settings = usable_here(found)
        if settings is not found and "backend" not in given:
            write_message(
                f"“{path.name}” asks for a GPU, but none is available: using the CPU", USUAL
            )
        settings = settings.changed(**given)
        if settings.backend == "cuda":
            select_backend(settings)
        return settings
    except (BackendUnavailableError, ImportError, TypeError, ValueError) as error:
        raise click.UsageError(str(error).replace("\n", " ")) from None


def _option(name: str, hint: Any, about: Parameter, default: Any) -> Callable[[Command], Command]:
    flag = f"--{name.replace('_', '-')}"
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    unit = f", {about.unit}" if about.unit else ""
    end = about.none_means if default is None else f"{default}"
    text = f"{about.label}{unit}. {about.doc}" + (f" [{end}]" if end not in ("", "{}") else "")
    if bool in kinds:
        return click.option(f"{flag}/--no-{flag[2:]}", name, default=default, help=text)
    if name in ("fixed", "bounds"):
        kind: _ParamType = _ForParameter(name)
        return click.option(flag, name, type=kind, metavar=kind.name, multiple=True, help=text)
    words = words_of(hint)
    if name == "model":
        choice = _Model(tuple(ALL_MODELS))
        text += " Or the file of a calibration, as “calibrate” writes it: results then have z."
        return click.option(
            flag, name, type=choice, metavar=choice.name, default=default, help=text
        )
    if words:
        return click.option(flag, name, type=click.Choice(words), default=default, help=text)
    kind = _Number(int in kinds, type(None) in kinds, _SIDES.get(name, ""))
    return click.option(flag, name, type=kind, metavar=kind.name, default=default, help=text)


class _Model(_ParamType):
    """The name of a model, or the file of a calibration."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = tuple(words)
        self.name = f"{'|'.join(self._words)}|FILE"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the name of a model, or load a calibration."""
        if not isinstance(value, str) or value in self._words:
            return value
        if not Path(value).suffix:
            self.fail(f"{value!r} is not one of {', '.join(self._words)}, nor a file", param, ctx)
        from ..calibration.files import load_calibration

        try:
            return load_calibration(value)
        except (ImportError, OSError, ValueError) as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[Any]:
        """Return the names, and files."""
        found = [CompletionItem(word) for word in self._words if word.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]


class _Number(_ParamType):
    """A number, the word for None, or numbers for each axis."""

    def __init__(self, whole: bool, optional: bool, sides: str) -> None:
        self._kind, self._optional, self._sides = int if whole else float, optional, sides
        self.name = sides or ("N" if whole else "NUMBER")

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """Parse the number."""
        if not isinstance(value, str) or (self._optional and value == _UNSET):
            return None if value == _UNSET else value
        try:
            if self._sides and "x" in value:
                return tuple(map(self._kind, value.split("x")))
            return self._kind(value)
        except ValueError:
            more = f", or {_UNSET}" if self._optional else ""
            self.fail(f"{value!r} is not {self.name}{more}", param, ctx)


class _ForParameter(_ParamType):
    """A shape parameter with its value, or its lowest and highest."""

    def __init__(self, name: str) -> None:
        self._ends = name == "bounds"
        self.name = "NAME=LOWEST:HIGHEST" if self._ends else "NAME=NUMBER|start"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, Any]:
        """Parse name and value."""
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        try:
            if not equals:
                raise ValueError
            if not self._ends:
                return name, None if text == "start" else float(text)
            low, high = text.split(":")
            return name, (float(low) if low else None, float(high) if high else None)
        except ValueError:
            self.fail(f"{value!r} is not {self.name}", param, ctx)


def _mapping(values: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return dict(values)
