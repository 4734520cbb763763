"""Controller: a quorum that decides master, epoch and sync-state set of each broker group (5.x)."""
