"""Two runs of one name would share a checkpoint: the second is refused."""

import logging
import os
import socket

from bolide.arrow.cluster import Connection
from bolide.client.errors import NameServersUnreachable
from bolide.errors import BolideError
from bolide.spark.pipelines.channel import Channel
from bolide.spark.pipelines.events import RunState
from bolide.spark.pipelines.failures import AlreadyRunning
from bolide.spark.pipelines.reporting import MAX_INTERVAL

log = logging.getLogger(__name__)

FRESH = 3 * MAX_INTERVAL
"""Seconds to look back for another run."""


def refuse_second(connection: Connection, pipeline: str, *, needed: bool = False) -> None:
    """Nothing is refused where the cluster does not tell, unless it is `needed`.

    Raises:
        AlreadyRunning: another run of that name reports.
        NameServersUnreachable: there is nothing to read from.
    """
    try:
        with Channel(connection) as channel:
            states = channel.states(FRESH)
    except BolideError as exc:
        if needed and isinstance(exc, NameServersUnreachable):
            raise
        log.warning("cannot tell whether %s runs already: %s", pipeline, exc)
        return
    for state in states:
        if state.pipeline == pipeline and state.state.is_live and not _is_dead(state):
            raise AlreadyRunning(pipeline, f"process {state.pid} on {state.host}")


def _is_dead(state: RunState) -> bool:
    """A run of this machine whose process was killed: it may be started again at once."""
    if state.host != socket.gethostname():
        return False
    try:
        os.kill(state.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody else's, so it is there
        pass
    return False
