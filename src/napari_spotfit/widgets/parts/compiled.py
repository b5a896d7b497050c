"""Which first fits may have to wait for the engine to be compiled."""

from __future__ import annotations

from ...settings.settings import Settings


class Compiled:
    """Remembers with which models and estimators fits have ended already."""

    def __init__(self) -> None:
        self._kinds: set[object] = set()

    def add(self, settings: Settings) -> None:
        """Note that a fit with these settings has ended."""
        self._kinds.add(_kind(settings))

    def __contains__(self, settings: Settings) -> bool:
        return _kind(settings) in self._kinds


def _kind(settings: Settings) -> object:
    return settings.model, settings.pixel, settings.estimator
