"""Deprecated import path of `bolide.client.tracing.opentelemetry`."""

import warnings

from bolide.client.tracing.opentelemetry import OpenTelemetry

warnings.warn(
    "bolide.client.telemetry has moved to bolide.client.tracing.opentelemetry",
    DeprecationWarning,
    stacklevel=2,
)

__all__ = ["OpenTelemetry"]
