"""Bolide: a RocketMQ-compatible messaging platform in Python.

Importing it loads nothing heavy: public names are found when they are first used.
"""

from bolide.version import __version__

__all__ = ["__version__"]
