"""The protocol between clients, scheduler and agents; `gavel.proto` is its source, the rest is made from it."""

PROTOCOL = 2
"""Agents and schedulers work together if this number is the same on both sides."""

DEFAULT_PORT = 7077
DEFAULT_ADDRESS = f"127.0.0.1:{DEFAULT_PORT}"
"""The default address of a scheduler, for itself, clients and agents."""

CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)
"""For long streams: a connection whose other end has vanished without a word is noticed within 15 seconds."""

SERVER_OPTIONS = (
    *CHANNEL_OPTIONS,
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)
"""The same for the server, and permission for clients to ping this often."""
