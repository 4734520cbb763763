"""De-duplication: a keyed message sent again is answered with the place of the first one."""
