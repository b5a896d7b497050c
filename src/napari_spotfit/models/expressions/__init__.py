"""Models of people's own: from an expression to formulas, derivatives and kernels' code.

An expression passes through these modules: ``grammar`` reads it (what is not arithmetic gets
no further), ``derivatives`` makes a ``program`` of it and its derivatives, which runs on
anything that has operators, and is written down for CUDA. ``custom`` knows what such a model
needs besides: names, where its fits begin, bounds.
"""
