"""The version of the package; its compiled library must have the same."""

__version__ = "0.1.0"
