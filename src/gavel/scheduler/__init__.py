"""One scheduler for every world: events in, commands out. No clock, no lock, no I/O, no solver."""
