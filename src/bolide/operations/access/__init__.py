"""Access control: users, policies and accounts, and what they may do."""
