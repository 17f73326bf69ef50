"""A member of a group on a real group coordinator, over connections of our own (TLS and SASL included).

`member` is the event loop around the pure member; `group_link` finds the coordinator and connects; `messages` are the bytes' side.
"""

from holdfast.membership.kafka_group.member import Member

__all__ = ["Member"]
