"""The CPU's part: the compiled library, and what calls it."""

from .checkout import update_layouts

# Before anything here imports them.
update_layouts()
