"""What training code and programs import: no numpy, no solver, and no network library unless it is needed."""
