"""Settings of a broker: declarations, changes at run time, keys without effect here."""
