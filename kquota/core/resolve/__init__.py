"""Which quota governs a client: the eight levels, whose counter it is, and how far a quota reaches."""
