"""Where pipelines keep what they need on disk."""

import os
from pathlib import Path

HOME_VARIABLE = "BOLIDE_HOME"


def pipeline_home() -> Path:
    """`$BOLIDE_HOME/pipelines`; `~/.bolide/pipelines` if that is not set."""
    home = os.environ.get(HOME_VARIABLE)
    return (Path(home) if home else Path.home() / ".bolide") / "pipelines"


def default_checkpoint(name: str) -> str:
    """On a cluster of machines a checkpoint belongs on storage that all of them reach."""
    return str(pipeline_home() / name / "checkpoint")
