"""Which calls the node serves, in which versions, under which rules, and what answers them.

There is one table, at the end of this module. The listener checks requests by it, and what ApiVersions advertises is
made from it, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from holdfast.api import share_state, state_requests
from holdfast.api.admin import (
    ADMIN,
    ADMIN_VERSION,
    AdminResponse,
    decode_admin_request,
    encode_admin_response,
)
from holdfast.daemon.access.authorizer import Authorizer
from holdfast.daemon.access.needs import explain_denial
from holdfast.daemon.server import api_versions, find_coordinator, metadata
from holdfast.daemon.server.admin import Admin
from holdfast.daemon.server.cluster_view import ClusterView
from holdfast.daemon.server.wire.requests import SMALL_FRAME_BYTES, WORK_PER_BYTE, Api, Request, Respond, Steps
from holdfast.daemon.settings.components.listener import LimitSettings
from holdfast.kafka.protocol import api_keys, sasl_calls
from holdfast.share import calls as share_calls
from holdfast.share.calls import ShareCalls

#: A state batch has twenty bytes in a frame, and as an object ten times as many.
_WORK_PER_BYTE_OF_WRITES: Final = 16
#: Topics of a Metadata request that is answered in one step.
_METADATA_TOPICS_AT_ONCE: Final = 20
#: Topics that one Metadata request may name; there is only one here to be named.
_METADATA_TOPICS_MAX: Final = 1_000
#: A refusal names the principal and a group, which may be long.
_REFUSAL_CHARACTERS_MAX: Final = 1_000


class ApiHandler:
    """The answers to requests of all calls; an instance is the handler of a `Server`."""

    def __init__(
        self,
        service: ShareCalls,
        cluster: ClusterView,
        admin: Admin,
        authorizer: Authorizer,
        limits: LimitSettings | None = None,
    ) -> None:
        """Make a handler.

        Args:
            service: carries out the share-state calls.
            cluster: what Metadata and FindCoordinator show.
            admin: runs the commands of an admin.
            authorizer: says who may do what.
            limits: a request that names more than these allow is malformed, look-ups included.
        """
        limits = limits or LimitSettings()
        self._service = service
        self._authorizer = authorizer
        self._cluster = cluster
        self._admin = admin
        self._bounds = state_requests.Bounds(
            limits.share_partitions_per_request_max,
            limits.state_batches_per_write_max,
            limits.state_batches_per_request_max,
        )
        self._admin_arguments_bytes_max = limits.admin_arguments_bytes_max
        self._metadata = metadata.MetadataAnswers(cluster)
        self._api_versions = api_versions.ApiVersionsAnswers(APIS)

    def __call__(self, request: Request, respond: Respond) -> Steps | None:
        """Answer a request; `respond` takes the body, once, maybe before this returns.

        Returns:
            the steps that are left of a large request, else None.

        Raises:
            MalformedBody: the body does not follow its API; from a step, too.
        """
        return _TABLE[request.api_key].answer(self, request, respond)

    def answer_share_call(self, request: Request, respond: Respond) -> Steps | None:
        """Answer one of the five share-state calls."""
        return share_calls.answer(self._service, self._authorizer, self._bounds, request, respond)

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
        """Answer Metadata."""
        version = request.api_version
        queries = metadata.decode_request(version, request.frame, request.body_offset, _METADATA_TOPICS_MAX)
        if queries is not None and len(queries) > _METADATA_TOPICS_AT_ONCE:
            return self._answer_in_steps(request, respond, self._metadata.encode_in_steps(version, queries))
        respond(self._metadata.encode(version, queries))
        return None

    def answer_find_coordinator(self, request: Request, respond: Respond) -> Steps | None:
        """Answer FindCoordinator."""
        version, frame, offset = request.api_version, request.frame, request.body_offset
        may_look_up = partial(self._authorizer.may_call, request, request.api_key)
        denied = explain_denial(request.principal, request.api_key)
        find = find_coordinator.Finder(version, self._cluster, self._service.partition_for, may_look_up, denied)
        pieces = find.answer(frame, offset, self._bounds.share_partitions)
        if len(frame) <= SMALL_FRAME_BYTES:
            respond(b"".join(pieces))
            return None
        return self._answer_in_steps(request, respond, pieces)

    def answer_admin(self, request: Request, respond: Respond) -> Steps | None:
        """Answer a command of the command line tool; one that is too large is not read, and the connection goes on."""
        bytes_max, size = self._admin_arguments_bytes_max, len(request.frame) - request.body_offset
        if size > bytes_max:
            text = (
                f"The command has {size} bytes with its arguments, and this node takes {bytes_max}; "
                f"make the arguments shorter, or raise admin_arguments_bytes_max on the node."
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


class _Row(NamedTuple):
    """One call: what holds before its handler sees a request, and the handler."""

    api: Api
    answer: Callable[[ApiHandler, Request, Respond], Steps | None]


def _share_call(api_key: int, name: str, work_per_byte: int = WORK_PER_BYTE) -> _Row:
    api = Api(name, *share_state.VERSIONS[api_key], work_per_byte=work_per_byte, is_batched=True)
    return _Row(api, ApiHandler.answer_share_call)


#: API key to what is served under it. A new call is one row. A new rule that the listener keeps, such as on
#: which listener a call is served, is a field of `Api`, checked in `Connection` where the versions are; who may make it is
#: said by `daemon.access`.
_TABLE: Final[dict[int, _Row]] = {
    # Kafka's own calls, by which clients find a node.
    api_keys.METADATA: _Row(
        Api("Metadata", 0, metadata.MAX_VERSION, metadata.FLEXIBLE_FROM),
        ApiHandler.answer_metadata,
    ),
    api_keys.FIND_COORDINATOR: _Row(
        Api("FindCoordinator", 0, find_coordinator.MAX_VERSION, find_coordinator.FLEXIBLE_FROM),
        ApiHandler.answer_find_coordinator,
    ),
    api_keys.API_VERSIONS: _Row(
        Api(
            "ApiVersions",
            0,
            api_versions.MAX_VERSION,
            api_versions.FLEXIBLE_FROM,
            has_answer_tags=False,
            takes_any_version=True,
            is_before_login=True,
        ),
        ApiHandler.answer_api_versions,
    ),
    # By which clients log in.
    sasl_calls.SASL_HANDSHAKE: _Row(
        Api(
            "SaslHandshake",
            0,  # refused by the login, but librdkafka 2.11 and older log in only where it is
            sasl_calls.HANDSHAKE_VERSION,
            flexible_from=sasl_calls.NEVER_FLEXIBLE,
            is_before_login=True,
        ),
        ApiHandler.answer_sasl_handshake,
    ),
    sasl_calls.SASL_AUTHENTICATE: _Row(
        Api(
            "SaslAuthenticate",
            0,
            sasl_calls.AUTHENTICATE_VERSION_MAX,
            sasl_calls.AUTHENTICATE_FLEXIBLE_FROM,
            is_before_login=True,
        ),
        ApiHandler.answer_sasl_authenticate,
    ),
    # The share-state calls.
    share_state.INITIALIZE: _share_call(share_state.INITIALIZE, "InitializeShareGroupState"),
    share_state.READ: _share_call(share_state.READ, "ReadShareGroupState"),
    share_state.WRITE: _share_call(share_state.WRITE, "WriteShareGroupState", _WORK_PER_BYTE_OF_WRITES),
    share_state.DELETE: _share_call(share_state.DELETE, "DeleteShareGroupState"),
    share_state.SUMMARY: _share_call(share_state.SUMMARY, "ReadShareGroupStateSummary"),
    # Ours.
    ADMIN: _Row(Api("HoldfastAdmin", ADMIN_VERSION, ADMIN_VERSION), ApiHandler.answer_admin),
}

#: API key to what the listener checks.
APIS: Final[Mapping[int, Api]] = {key: row.api for key, row in _TABLE.items()}
