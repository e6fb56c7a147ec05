"""What training code and programs import. It loads no numpy and no solver, and a network library only when needed."""
