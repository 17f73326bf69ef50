"""ApiVersions, versions 0 to 4: which calls are served, in which versions; encoded once, because the answer never changes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from kio.schema.errors import ErrorCode

from holdfast.daemon.server.schemas import ResponseSchemas, encode
from holdfast.daemon.server.wire.requests import Api
from holdfast.kafka.protocol.body import BodyReader

MAX_VERSION: Final = 4
FLEXIBLE_FROM: Final = 3

#: What every client can read; a request of an unknown version is answered in it.
_FALLBACK_VERSION: Final = 0

#: The feature by which Kafka's clients see that share groups are on.
_SHARE_FEATURE: Final = "share.version"
_SHARE_FEATURE_LEVEL: Final = 1


class ApiVersionsAnswers:
    """Answers to ApiVersions requests that advertise `apis`, by API key."""

    def __init__(self, apis: Mapping[int, Api]) -> None:
        #: Version to body.
        self._bodies = {version: _encode(apis, version, ErrorCode.none) for version in range(MAX_VERSION + 1)}
        self._unsupported_version = _encode(apis, _FALLBACK_VERSION, ErrorCode.unsupported_version)

    def answer(self, version: int, frame: bytes, offset: int) -> bytes:
        """Return the answer; to a version that is unknown here our list in version 0, for the client to choose again.

        Raises:
            MalformedBody: the bytes are no such request.
        """
        if not 0 <= version <= MAX_VERSION:
            return self._unsupported_version
        is_flexible = version >= FLEXIBLE_FROM
        reader = BodyReader(frame, offset, is_flexible)
        if is_flexible:
            reader.string("ClientSoftwareName")
            reader.string("ClientSoftwareVersion")
        reader.lenient_end()
        return self._bodies[version]


def _encode(apis: Mapping[int, Api], version: int, error_code: ErrorCode) -> bytes:
    schemas = ResponseSchemas("api_versions", version)
    keys = tuple(
        schemas.make("ApiVersion", api_key=key, min_version=api.min_version, max_version=api.max_version)
        for key, api in sorted(apis.items())
    )
    fields: dict[str, object] = {"error_code": error_code, "api_keys": keys, "throttle_time": timedelta(0)}
    if version >= FLEXIBLE_FROM:
        name, level = _SHARE_FEATURE, _SHARE_FEATURE_LEVEL
        supported = schemas.make("SupportedFeatureKey", name=name, min_version=level, max_version=level)
        finalized = schemas.make("FinalizedFeatureKey", name=name, min_version_level=level, max_version_level=level)
        fields |= {
            "supported_features": (supported,),
            "finalized_features_epoch": 0,
            "finalized_features": (finalized,),
        }
    return encode(schemas.make("ApiVersionsResponse", **fields))
