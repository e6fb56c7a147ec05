"""The polytope of valid allocations, the questions a policy may ask of it, and the solvers that answer them."""
