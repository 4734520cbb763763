"""Checks a whole store that is not open, reports damage, and repairs derived files."""

from bolide.store.verify.report import Finding, Part, Report
from bolide.store.verify.verifier import Progress, verify

__all__ = ["Finding", "Part", "Progress", "Report", "verify"]
