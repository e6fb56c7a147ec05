"""The agent of a server: starts the processes of jobs as the scheduler orders, and never leaves one behind."""

from gavel.runtime.agent.agent import Agent
from gavel.runtime.agent.settings import AgentSettings, emulated
from gavel.runtime.agent.stream import AgentRefusedError

__all__ = ["Agent", "AgentRefusedError", "AgentSettings", "emulated"]
