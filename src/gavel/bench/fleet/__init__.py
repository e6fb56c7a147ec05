"""A modelled fleet that measures a real scheduler from outside; agents, clients and watchers are separate processes."""
