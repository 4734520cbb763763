"""Reads a whole store that nobody has open, says what is damaged, and mends what is derived."""

from bolide.store.verify.report import Finding, Part, Report
from bolide.store.verify.verifier import Progress, verify

__all__ = ["Finding", "Part", "Progress", "Report", "verify"]
