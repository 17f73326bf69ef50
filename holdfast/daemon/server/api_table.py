"""Which calls the node serves, in which versions, and who answers them.

There is one table, at the end of this module. What ApiVersions advertises is made from it, so the two cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from holdfast.api import share_state
from holdfast.api.admin import (
    ADMIN,
    ADMIN_VERSION,
    AdminResponse,
    decode_admin_request,
    encode_admin_response,
)
from holdfast.daemon.server import find_coordinator, metadata, schemas, share_calls
from holdfast.daemon.server.admin import Admin
from holdfast.daemon.server.cluster_view import ClusterView
from holdfast.daemon.server.connection import SMALL_FRAME_BYTES, WORK_PER_BYTE, Api, Body, Request, Steps
from holdfast.daemon.server.share_calls import ShareCalls
from holdfast.daemon.settings.listener_models import LimitSettings
from holdfast.kafka.protocol import api_keys
from holdfast.kafka.protocol.body import BodyReader

Respond = Callable[[Body], None]

_API_VERSIONS_MAX: Final = 4
_API_VERSIONS_FLEXIBLE_FROM: Final = 3
#: Version 0 is what every client can read; an unknown version is answered with it.
_API_VERSIONS_FALLBACK: Final = 0

#: The feature by which Kafka's clients see that share groups are on.
_SHARE_FEATURE: Final = "share.version"
_SHARE_FEATURE_LEVEL: Final = 1

#: A state batch has twenty bytes in a frame, and as an object ten times as many.
_WORK_PER_BYTE_OF_WRITES: Final = 16
#: Topics of a Metadata request that is answered in one step.
_METADATA_TOPICS_AT_ONCE: Final = 20
#: Topics that one Metadata request may name; there is only one here to be named.
_METADATA_TOPICS_MAX: Final = 1_000


class ApiHandler:
    """Answer requests of all calls; an instance is the handler of a `Server`."""

    def __init__(
        self, service: ShareCalls, cluster: ClusterView, admin: Admin, limits: LimitSettings | None = None
    ) -> None:
        """Make a handler; a request that holds more than `limits` say is malformed, look-ups included."""
        limits = limits or LimitSettings()
        self._service = service
        self._cluster = cluster
        self._admin = admin
        self._bounds = share_state.Bounds(
            limits.share_partitions_per_request_max,
            limits.state_batches_per_write_max,
            limits.state_batches_per_request_max,
        )
        self._admin_arguments_bytes_max = limits.admin_arguments_bytes_max
        self._metadata = metadata.MetadataAnswers(cluster)
        #: API version to body of the answer to ApiVersions.
        self._api_versions = {
            version: _encode_api_versions(version, ErrorCode.none) for version in range(_API_VERSIONS_MAX + 1)
        }
        self._unsupported_version = _encode_api_versions(_API_VERSIONS_FALLBACK, ErrorCode.unsupported_version)

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
        return share_calls.answer(self._service, self._bounds, request, respond)

    def answer_api_versions(self, request: Request, respond: Respond) -> Steps | None:
        """Answer ApiVersions; a version we don't know gets our list in version 0, for the client to choose again."""
        version = request.api_version
        if not 0 <= version <= _API_VERSIONS_MAX:
            respond(self._unsupported_version)
            return None
        reader = BodyReader(request.frame, request.body_offset, version >= _API_VERSIONS_FLEXIBLE_FROM)
        if version >= _API_VERSIONS_FLEXIBLE_FROM:
            reader.string("ClientSoftwareName")
            reader.string("ClientSoftwareVersion")
        reader.lenient_end()
        respond(self._api_versions[version])
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
        find = find_coordinator.Finder(version, self._cluster, self._service.partition_for)
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
        steps = self._admin.handle(decode_admin_request(request.frame, request.body_offset), respond, request.peer)
        return None if steps is None else self._while_wanted(request, steps, respond)

    def _while_wanted(self, request: Request, steps: Steps, respond: Respond) -> Steps:
        """Give up where nobody waits for the answer any more."""
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
            request.hold(len(piece))
            made.append(piece)
            yield True
        respond(b"".join(made))


def _encode_api_versions(version: int, error_code: ErrorCode) -> bytes:
    def make(entity: str, /, **values: object) -> object:
        return schemas.make("api_versions", version, entity, **values)

    response = make(
        "ApiVersionsResponse",
        error_code=error_code,
        api_keys=tuple(
            make("ApiVersion", api_key=key, min_version=api.min_version, max_version=api.max_version)
            for key, api in sorted(APIS.items())
        ),
        throttle_time=timedelta(0),
        **_make_features(version),
    )
    return schemas.encode(response)


def _make_features(version: int) -> dict[str, object]:
    if version < _API_VERSIONS_FLEXIBLE_FROM:
        return {}
    make, level = partial(schemas.make, "api_versions", version), _SHARE_FEATURE_LEVEL
    supported = make("SupportedFeatureKey", name=_SHARE_FEATURE, min_version=level, max_version=level)
    finalized = make("FinalizedFeatureKey", name=_SHARE_FEATURE, max_version_level=level, min_version_level=level)
    return {
        "supported_features": (supported,),
        "finalized_features_epoch": 0,
        "finalized_features": (finalized,),
    }


class _Entry(NamedTuple):
    api: Api
    answer: Callable[[ApiHandler, Request, Respond], Steps | None]


def _share_call(api_key: int, name: str, work_per_byte: int = WORK_PER_BYTE) -> _Entry:
    return _Entry(Api(name, *share_state.VERSIONS[api_key], work_per_byte=work_per_byte), ApiHandler.answer_share_call)


_TABLE: Final[dict[int, _Entry]] = {
    api_keys.METADATA: _Entry(
        Api("Metadata", 0, metadata.MAX_VERSION, metadata.FLEXIBLE_FROM), ApiHandler.answer_metadata
    ),
    api_keys.FIND_COORDINATOR: _Entry(
        Api("FindCoordinator", 0, find_coordinator.MAX_VERSION, find_coordinator.FLEXIBLE_FROM),
        ApiHandler.answer_find_coordinator,
    ),
    api_keys.API_VERSIONS: _Entry(
        Api("ApiVersions", 0, _API_VERSIONS_MAX, _API_VERSIONS_FLEXIBLE_FROM), ApiHandler.answer_api_versions
    ),
    share_state.INITIALIZE: _share_call(share_state.INITIALIZE, "InitializeShareGroupState"),
    share_state.READ: _share_call(share_state.READ, "ReadShareGroupState"),
    share_state.WRITE: _share_call(share_state.WRITE, "WriteShareGroupState", _WORK_PER_BYTE_OF_WRITES),
    share_state.DELETE: _share_call(share_state.DELETE, "DeleteShareGroupState"),
    share_state.SUMMARY: _share_call(share_state.SUMMARY, "ReadShareGroupStateSummary"),
    ADMIN: _Entry(Api("HoldfastAdmin", ADMIN_VERSION, ADMIN_VERSION), ApiHandler.answer_admin),
}

#: API key to the versions that are served.
APIS: Final[Mapping[int, Api]] = {key: entry.api for key, entry in _TABLE.items()}
