"""Run the command in this process or in a new one."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from click.testing import CliRunner, Result

from napari_spotfit.command_line.main import main


def run(*arguments: object, code: int = 0) -> Result:
    """Run a command, check its exit code, and return the result."""
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result


def of_its_own(*arguments: str, **named: Any) -> subprocess.Popen[bytes]:
    """Start a command as a process."""
    command = [sys.executable, "-m", "napari_spotfit", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **named)
