"""Messages that a broker holds back: timers, open transactions, parked keys."""
