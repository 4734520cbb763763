"""Examines a cluster from the client's side, and this machine: `examine` returns a `Report`.

`survey` collects facts through `AdminClient` (`facts` has their types); the modules `*_checks` and
`machine` judge them, as plain functions from facts to findings. It changes nothing, and works with
clusters of RocketMQ too. The command line prints reports, and other programs may show them.
"""

from bolide.doctor.examination import examine
from bolide.doctor.findings import Finding, Report, Severity
from bolide.doctor.survey import Limits

__all__ = ["Finding", "Limits", "Report", "Severity", "examine"]
