"""Who may use the console: its accounts, log-ins, sessions and roles."""
