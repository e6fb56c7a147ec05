"""Attacks on identity and rights: tokens, sessions, roles, ownership."""

from __future__ import annotations

import grpc
from attacked_cluster import Target
from attacks import attack

from gavel.wire import gavel_pb2 as pb

UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


@attack("identity")
def no_token(target: Target) -> None:
    """A call without a token"""
    target.refused(UNAUTHENTICATED, "List", pb.JobQuery())


@attack("rights")
def users_token_on_attach(target: Target) -> None:
    """A user's token on the agents' stream"""
    target.refused(DENIED, "Attach", iter([pb.FromAgent()]), "ann")
