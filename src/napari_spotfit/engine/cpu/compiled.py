"""The two kinds of compiled functions: those that Python calls, and those inside them."""

from __future__ import annotations

from functools import partial

from numba import njit

#: Python calls it; C does not, which saves a copy of everything.
entry = partial(njit, nogil=True, no_cfunc_wrapper=True)

#: Only compiled code calls it: no copies for Python and C, which take a fourth of the time
#: that the first fit of a kind takes to compile.
inner = partial(njit, no_cpython_wrapper=True, no_cfunc_wrapper=True)
