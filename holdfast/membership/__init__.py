"""Membership of a group through Kafka's group coordinator, for any program: who is there, who leads, and who does what.

A program implements `Coordinator`; `kafka_group.Member` keeps it in its group. Nothing here knows share groups, logs or nodes.

Read in this order:

- `coordinator`: what a program implements; `settings`; `generation`: which generation of the group a member belongs to
- `states`: what a member can be; `lifecycle`: one member, events in and effects out
- `requests`, `effects`: what it sends and wants done, as values; `errors`: what it does about each error code, one table
- `session`, `rejoin`: when heartbeats are due, whether and why to join again; `holdfast.backoff`: when the next try may be made
- `checks`: what a program hands in; `callbacks`: what runs one at a time; `metrics`
- `kafka_group`: the member on a real group coordinator

All but `kafka_group` is synchronous and free of I/O, clock and randomness.
"""

from holdfast.membership.coordinator import Coordinator, JoinedMember, LeaveListener, LossListener
from holdfast.membership.errors import (
    CallbackFailed,
    InvalidAssignment,
    InvalidMetadata,
    MemberClosed,
    MembershipError,
    MembershipFailed,
)
from holdfast.membership.generation import Generation
from holdfast.membership.settings import MembershipSettings

__all__ = [
    "CallbackFailed",
    "Coordinator",
    "Generation",
    "InvalidAssignment",
    "InvalidMetadata",
    "JoinedMember",
    "LeaveListener",
    "LossListener",
    "MemberClosed",
    "MembershipError",
    "MembershipFailed",
    "MembershipSettings",
]
