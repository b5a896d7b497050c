"""When compiled code is out of date.

Numba keeps compiled functions on disk and compiles anew when the file of a cached
function changes. Ours call functions of other files; so the text of all of these is
made part of the cache's key.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ...models import stopping
from .. import limits
from ..detection import band

#: What all compiled code is made of.
_ALWAYS = ("vectors", "unroll", "lanes", "lane_memory", "lane_functions", "subnormals", "compiled")


def fingerprint(*names: str) -> str:
    """Return a short text that changes with the sources of this folder's named modules.

    What all compiled code is made of and the modules of constants count, too.
    """
    here = Path(__file__).parent
    constants = Path(stopping.__file__), Path(band.__file__), Path(limits.__file__)
    digest = hashlib.sha256()
    for path in (*(here / f"{name}.py" for name in (*_ALWAYS, *names)), *constants):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
