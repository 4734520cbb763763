"""Producers: plain, batched, transactional and request-reply sends."""
