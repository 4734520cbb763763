"""Transactional messages: half messages, their commit or rollback, and the check-back of open ones.

`coordinator` serves the requests and owns the parts; `half_queue` keeps the half and op queues;
`ending` commits and rolls back; `check_back` asks producers about half messages that stay open.
"""
