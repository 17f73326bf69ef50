"""Which calls the node serves, in which versions, under which rules, and what answers them.

The table of a node has the rows at the end of this module, which every node serves, and those of its tenants. The listener checks
requests by it, and ApiVersions advertises what it holds, so that they cannot disagree.
A new call is one row in `APIS` or in the table of its tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from holdfast.api.admin import (
    ADMIN,
    ADMIN_VERSION,
    AdminResponse,
    decode_admin_request,
    encode_admin_response,
)
from holdfast.daemon.access.acl import Operation, ResourceType
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.server import api_versions, find_coordinator, metadata
from holdfast.daemon.server.admin import Admin
from holdfast.daemon.server.cluster_view import ClusterView
from holdfast.daemon.server.topics_view import TopicsView
from holdfast.daemon.server.wire.requests import SMALL_FRAME_BYTES, Api, Request, Respond, Steps
from holdfast.kafka.protocol import api_keys, sasl_calls

#: For the audit log.
_METADATA: Final = "Metadata"
#: A refusal names the principal and a group, which may be long.
_REFUSAL_CHARACTERS_MAX: Final = 1_000

#: Keys of one FindCoordinator request: as many as one share-state call may name.
_KEYS_MAX: Final = 20_000
#: Arguments of one admin command: the longest name some thousand partitions.
ADMIN_ARGUMENTS_BYTES_MAX: Final = 64 * 1024


#: Answers a request; its argument takes the body, once, maybe before it returns. It returns the steps that are left of a large request.
Answer = Callable[[Request, Respond], Steps | None]


class HandlerBounds(NamedTuple):
    """The bounds of requests that have no other ones."""

    #: A FindCoordinator request that names more keys is malformed.
    keys_max: int = _KEYS_MAX
    #: Bytes of an admin command and its arguments.
    admin_arguments_bytes_max: int = ADMIN_ARGUMENTS_BYTES_MAX


class ApiHandler:
    """The answers to requests of all calls; an instance is the handler of a `Server`."""

    def __init__(
        self,
        tenants: Mapping[int, Answer],
        key_types: Mapping[int, find_coordinator.KeyType],
        apis: Mapping[int, Api],
        cluster: ClusterView,
        admin: Admin,
        authorizer: Authorizer,
        bounds: HandlerBounds = HandlerBounds(),  # noqa: B008 - immutable
        topics: TopicsView | None = None,
    ) -> None:
        """Make a handler.

        Args:
            tenants: answers of the calls that tenants serve, by API key.
            key_types: keys whose coordinators are nodes, by the type that FindCoordinator gives them.
            apis: all calls, which ApiVersions shows.
            cluster: what Metadata and FindCoordinator show.
            admin: runs the commands of an admin.
            authorizer: says who may do what.
            bounds: of requests that clients choose.
            topics: those of a tenant, which Metadata shows; None: there are none.
        """
        self._key_types = key_types
        self._authorizer = authorizer
        self._cluster = cluster
        self._admin = admin
        self._bounds = bounds
        self._metadata = metadata.MetadataAnswers(cluster, topics, self._may_describe)
        self._api_versions = api_versions.ApiVersionsAnswers(apis)
        self._answers: dict[int, Answer] = {
            api_keys.METADATA: self.answer_metadata,
            api_keys.FIND_COORDINATOR: self.answer_find_coordinator,
            api_keys.API_VERSIONS: self.answer_api_versions,
            sasl_calls.SASL_HANDSHAKE: self.answer_sasl_handshake,
            sasl_calls.SASL_AUTHENTICATE: self.answer_sasl_authenticate,
            ADMIN: self.answer_admin,
            **tenants,
        }

    def __call__(self, request: Request, respond: Respond) -> Steps | None:
        """Answer a request; `respond` takes the body, once, maybe before this returns.

        Returns:
            the steps that are left of a large request, else None.

        Raises:
            MalformedBody: the body does not follow its API; from a step, too.
        """
        return self._answers[request.api_key](request, respond)

    def answer_api_versions(self, request: Request, respond: Respond) -> Steps | None:
        """Answer ApiVersions, of any version."""
        respond(self._api_versions.answer(request.api_version, request.frame, request.body_offset))
        return None

    def answer_sasl_handshake(self, request: Request, respond: Respond) -> Steps | None:
        """Answer SaslHandshake where nobody logs in; a login answers its own."""
        sasl_calls.decode_handshake(request.frame, request.body_offset)
        respond(sasl_calls.encode_handshake_answer(sasl_calls.NOT_NOW, ()))
        return None

    def answer_sasl_authenticate(self, request: Request, respond: Respond) -> Steps | None:
        """Answer SaslAuthenticate where nobody logs in; a login answers its own."""
        version = request.api_version
        sasl_calls.decode_authenticate(version, request.frame, request.body_offset, len(request.frame))
        refusal = sasl_calls.AuthenticateAnswer(sasl_calls.NOT_NOW, "nobody logs in at this listener", b"", 0)
        respond(sasl_calls.encode_authenticate_answer(version, refusal))
        return None

    def answer_metadata(self, request: Request, respond: Respond) -> Steps | None:
        """Answer Metadata, maybe later."""
        self._metadata.answer(request, respond)
        return None

    def _may_describe(self, request: Request, topic: str, is_named: bool) -> bool:
        """Return whether a client may know of a topic; where it asked for all, one that is left out is none that was denied."""
        return self._authorizer.may(
            request, _METADATA, Operation.DESCRIBE, ResourceType.TOPIC, topic, is_audited=is_named
        )

    def answer_find_coordinator(self, request: Request, respond: Respond) -> Steps | None:
        """Answer FindCoordinator."""
        version, frame, offset = request.api_version, request.frame, request.body_offset
        may_look_up = partial(self._authorizer.may_call, request, request.api_key)
        denied = self._authorizer.needs.explain_denial(request.principal, request.api_key)
        find = find_coordinator.Finder(version, self._cluster, self._key_types, may_look_up, denied)
        pieces = find.answer(frame, offset, self._bounds.keys_max)
        if len(frame) <= SMALL_FRAME_BYTES:
            respond(b"".join(pieces))
            return None
        return self._answer_in_steps(request, respond, pieces)

    def answer_admin(self, request: Request, respond: Respond) -> Steps | None:
        """Answer a command of the command line tool; one that is too large is not read, and the connection goes on."""
        bytes_max, size = self._bounds.admin_arguments_bytes_max, len(request.frame) - request.body_offset
        if size > bytes_max:
            text = (
                f"The command has {size} bytes with its arguments, and this node takes {bytes_max}; "
                f"make the arguments shorter."
            )
            respond(encode_admin_response(AdminResponse(ErrorCode.invalid_request.value, text, None)))
            return None
        command = decode_admin_request(request.frame, request.body_offset)
        refusal = self._authorizer.refuse_command(request, command.command, command.arguments)
        if refusal:
            code = ErrorCode.cluster_authorization_failed.value
            respond(encode_admin_response(AdminResponse(code, refusal[:_REFUSAL_CHARACTERS_MAX], None)))
            return None
        steps = self._admin.handle(command, respond, request.client_address)
        return None if steps is None else self._while_wanted(request, steps, respond)

    def _while_wanted(self, request: Request, steps: Steps, respond: Respond) -> Steps:
        """Give up once the client is gone."""
        for step in steps:
            if not request.is_wanted:
                respond(b"")
                return
            yield step

    def _answer_in_steps(self, request: Request, respond: Respond, pieces: Iterator[bytes]) -> Steps:
        """Make an answer of pieces, one in each step."""
        made = []
        for piece in pieces:
            if not request.is_wanted:
                break
            request.count_answer_bytes(len(piece))
            made.append(piece)
            yield True
        respond(b"".join(made))


#: The calls that every node serves. A new rule that the listener keeps, such as on
#: which listener a call is served, is a field of `Api`, checked in `Connection` where the versions are; `daemon.access` says who may
#: make it.
APIS: Final[Mapping[int, Api]] = {
    # Kafka's own calls, by which clients find a node.
    api_keys.METADATA: Api(_METADATA, 0, metadata.MAX_VERSION, metadata.FLEXIBLE_FROM),
    api_keys.FIND_COORDINATOR: Api("FindCoordinator", 0, find_coordinator.MAX_VERSION, find_coordinator.FLEXIBLE_FROM),
    api_keys.API_VERSIONS: Api(
        "ApiVersions",
        0,
        api_versions.MAX_VERSION,
        api_versions.FLEXIBLE_FROM,
        has_answer_tags=False,
        takes_any_version=True,
        is_before_login=True,
    ),
    # By which clients log in.
    sasl_calls.SASL_HANDSHAKE: Api(
        "SaslHandshake",
        0,  # refused by the login, but librdkafka 2.11 and older log in only where it is
        sasl_calls.HANDSHAKE_VERSION,
        flexible_from=sasl_calls.NEVER_FLEXIBLE,
        is_before_login=True,
    ),
    sasl_calls.SASL_AUTHENTICATE: Api(
        "SaslAuthenticate",
        0,
        sasl_calls.AUTHENTICATE_VERSION_MAX,
        sasl_calls.AUTHENTICATE_FLEXIBLE_FROM,
        is_before_login=True,
    ),
    # Ours.
    ADMIN: Api("HoldfastAdmin", ADMIN_VERSION, ADMIN_VERSION),
}
