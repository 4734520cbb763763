"""The fast path: plain sends, transactions and pulls served from received bytes."""
