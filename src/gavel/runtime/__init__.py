"""The live world: the scheduler as a service, its journal, and the agents that run jobs."""
