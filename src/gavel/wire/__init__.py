"""The protocol between clients, scheduler and agents; `gavel.proto` is its source, the rest is made from it."""
