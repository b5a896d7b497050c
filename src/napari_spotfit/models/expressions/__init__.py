"""Models of people's own: from an expression to formulas, derivatives and kernels' code.

An expression passes through these rooms: ``grammar`` reads it (what is not arithmetic gets
no further), ``derive`` makes a ``program`` of it and its derivatives, which runs on
anything that has operators, and ``code`` writes it down for CUDA. ``custom`` knows what
such a model needs besides: names, where its fits begin, bounds.
"""

from .code import to_cuda as to_cuda
