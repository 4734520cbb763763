"""Without compiled modules there is no fast path to test."""

from bolide.kernel import COMPILED

collect_ignore_glob = [] if COMPILED else ["test_*.py"]
