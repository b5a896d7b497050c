"""Custom models: from an expression to formulas and derivatives.

An expression passes through these modules: ``grammar`` reads it and rejects all but arithmetic;
``derivatives`` makes a ``program`` of it and its derivatives, which runs on any type that has
operators, and which the backends translate: ``engine/cpu/expression.py`` to steps of the library,
``engine/cuda/expression.py`` to CUDA. ``custom`` adds names, start values and bounds.
"""
