"""Typed headers, one module a subject; `bolide.protocol.requests` maps codes to headers."""
