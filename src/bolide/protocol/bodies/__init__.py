"""Typed bodies, one module a subject; `bolide.protocol.requests` maps codes to bodies."""
