"""Transactional messages: halves, how they end, and check-back of those that do not."""
