"""Write settings as TOML, by hand or from the widget, and as Python code; read TOML."""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..models.calibration import Calibration
from ..models.profiles import Profile
from ..settings.noise_model import NoiseModel
from ..settings.settings import Settings, parameters
from ..untrusted import named
from ..version import __version__
from .formats import FORMATS, read
from .table import UnreadableFileError, check_format
from .writing import unfinished

#: Version of the format; incremented by changes that older versions would misread.
FORMAT = 1
#: Stands for None, which TOML lacks: a fixed parameter that keeps each spot's start value.
_START = "start"
_PACKAGE = "napari_spotfit"
_INDENT = " " * 4
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def save_settings(settings: Settings, path: str | os.PathLike[str]) -> None:
    """Save settings as a TOML file, which :func:`load_settings` and people read.

    Parameters
    ----------
    settings : Settings
        The settings; those of fits include the estimates.
    path : str or path
        The file, ``.toml``.

    Raises
    ------
    ValueError
        If the name does not end in ``.toml``.
    OSError
        If the file cannot be written; an older file of that name is kept.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from napari_spotfit import Settings, load_settings, save_settings
    >>> with TemporaryDirectory() as folder:
    ...     save_settings(Settings(estimator="mle", gain=0.5), f"{folder}/camera.toml")
    ...     load_settings(f"{folder}/camera.toml").gain
    0.5
    """
    place = Path(path)
    if place.suffix.lower() != ".toml":
        raise ValueError(f"the name of a file of settings must end in .toml; got “{place.name}”")
    with unfinished(place) as part:
        part.write_text(settings_as_toml(settings), encoding="utf-8", newline="\n")


def load_settings(path: str | os.PathLike[str]) -> Settings:
    """Return the settings of a TOML file, or those stored with fits.

    Parameters
    ----------
    path : str or path
        A ``.toml`` file, saved or written by hand, in which missing settings have their defaults;
        or a file of fits.

    Raises
    ------
    ValueError
        If the file is damaged, of a newer version or of another kind, or a setting is not
        accepted; the message says which.
    OSError
        If the file is missing or cannot be read.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from napari_spotfit import Settings, load_settings, save_settings
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "beads.toml"
    ...     save_settings(Settings(sigma=1.7, bounds={"sigma": (0.8, None)}), path)
    ...     text = path.read_text(encoding="utf-8")
    ...     same = load_settings(path)
    >>> same.sigma, same.bounds
    (1.7, {'sigma': (0.8, None)})
    >>> print(text[text.index("[settings]") :])
    [settings]
    sigma = 1.7 # PSF σ, px
    ...
    """
    place = Path(path)
    if place.suffix.lower() in FORMATS:
        settings = read(place).about.settings
        if settings is None:
            raise ValueError(f"“{place.name}” does not say which settings its fits were made with")
        return settings
    with named(f"“{place.name}” cannot be opened", UnreadableFileError, (TypeError, ValueError)):
        return settings_of_toml(place.read_text(encoding="utf-8"))


def settings_as_toml(settings: Settings) -> str:
    """Return settings as TOML, which restores them exactly."""
    return "\n".join((*_lines(settings), ""))


def settings_of_toml(text: str) -> Settings:
    """Return the settings of a TOML text.

    Raises
    ------
    TypeError, ValueError
        If the text is not TOML, or a setting is not accepted; the message says which.
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UnreadableFileError(f"it is damaged, or not a TOML file: {error}") from None
    if not isinstance(found.get("settings"), dict):
        raise UnreadableFileError("it has no table [settings]")
    check_format(found.get("format", FORMAT), FORMAT, found.get("version", "of later"))
    values = found["settings"]
    _open_ends(values)
    if isinstance(values.get("model"), dict):
        _open_ends(values["model"])
    if isinstance(values.get("fixed"), dict):
        held = values["fixed"].items()
        values["fixed"] = {name: None if one == _START else one for name, one in held}
    return Settings(**values)


def _lines(settings: Settings) -> Iterator[str]:
    yield "# Settings of napari-spotfit. Missing settings have their defaults."
    yield f"format = {FORMAT}"
    yield f'version = "{__version__}"'
    yield ""
    yield "[settings]"
    values, defaults = settings.to_dict(), Settings().to_dict()
    tables = {}
    for item in fields(Settings):
        value, about = values[item.name], parameters()[item.name]
        if isinstance(value, Mapping):
            tables[item.name] = value
        elif value is not None:
            unit = f", {about.unit}" if about.unit else ""
            yield f"{item.name} = {_value(value)} # {about.label}{unit}"
        elif defaults[item.name] is None:
            yield f"# {item.name} is not set: {about.none_means}"
    for name, table in tables.items():
        yield from _table(f"settings.{name}", table, f" # {parameters()[name].label}")


def _table(name: str, table: Mapping[str, Any], comment: str = "") -> Iterator[str]:
    """Yield the lines of a table and of the tables in it; none if it is empty."""
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    if not table:
        return
    yield ""
    yield f"[{name}]{comment}"
    for key, value in table.items():
        if key not in inner and (value is not None or name.endswith(".fixed")):
            yield f"{_key(key)} = {_value(_START if value is None else value)}"
    for key, value in inner.items():
        yield from _table(f"{name}.{_key(key)}", value)


def _value(value: Any) -> str:
    """Return a plain value as TOML; an open end of bounds is infinite."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (list, tuple)):
        ends = zip(value, (-math.inf, math.inf), strict=False)
        open_ends = [end if one is None else one for one, end in ends] + list(value[2:])
        return f"[{', '.join(_value(one) for one in open_ends)}]"
    return repr(float(value) if isinstance(value, float) else int(value))


def _key(key: str) -> str:
    return key if key and set(key) <= _BARE else _text(key)


def _text(text: str) -> str:
    # TOML has JSON's escapes, and requires one more.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _open_ends(values: Mapping[str, Any]) -> None:
    """Replace infinite ends of bounds by None."""
    bounds = values.get("bounds")
    for name, ends in dict(bounds if isinstance(bounds, dict) else {}).items():
        if isinstance(ends, list) and len(ends) == 2:
            low, high = ends
            values["bounds"][name] = [
                None if low == -math.inf else low,
                None if high == math.inf else high,
            ]


def settings_as_python(settings: Settings) -> str:
    """Return a Python expression that restores the settings to the bit.

    It assumes ``import napari_spotfit``, and leaves out defaults.

    Examples
    --------
    >>> from napari_spotfit import Settings
    >>> print(settings_as_python(Settings(sigma=1.25, bounds={"sigma": (1, None)})))
    napari_spotfit.Settings(
        sigma=1.25,
        bounds={'sigma': (1.0, None)},
    )
    """
    defaults = Settings()
    given = {
        item.name: getattr(settings, item.name)
        for item in fields(settings)
        if getattr(settings, item.name) != getattr(defaults, item.name)
    }
    return _python_call(f"{_PACKAGE}.Settings", given)


def literal(value: Any) -> str:
    """Return a Python expression for plain values and the values of settings."""
    if isinstance(value, Profile):
        return _indented(_python_call(f"{_PACKAGE}.Profile.from_expression", value.to_dict()))
    if isinstance(value, Calibration):
        return literal(value.to_dict())
    if isinstance(value, NoiseModel):
        return _indented(_python_call(f"{_PACKAGE}.NoiseModel", value.to_dict()))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {literal(one)}' for key, one in value.items())}}}"
    if isinstance(value, (tuple, list)):
        inner = ", ".join(literal(one) for one in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'
    return repr(value)


def _python_call(name: str, given: Mapping[str, Any]) -> str:
    lines = [f"{_INDENT}{key}={literal(value)},\n" for key, value in given.items()]
    return f"{name}(\n{''.join(lines)})" if lines else f"{name}()"


def _indented(text: str) -> str:
    return text.replace("\n", f"\n{_INDENT}")
