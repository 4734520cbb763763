"""Message traces, sent to a trace topic, and OpenTelemetry spans."""
