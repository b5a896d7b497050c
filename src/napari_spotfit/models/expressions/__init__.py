"""Custom models: from an expression to formulas, derivatives and kernel code.

An expression passes through these modules: ``grammar`` reads it and rejects all but arithmetic;
``derivatives`` makes a ``program`` of it and its derivatives, which runs on any type that has
operators, and is translated to CUDA. ``custom`` adds names, start values and bounds.
"""
