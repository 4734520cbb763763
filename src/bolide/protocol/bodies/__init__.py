"""Typed bodies, one module a subject; `bolide.protocol.requests` says which code carries which."""
