"""Subjects of certificates in DER, of every shape that an authority may sign: parts of several names, odd types, no name at all."""

from __future__ import annotations

from asn1crypto import core  # type: ignore[import-untyped]  # it ships no types
from hypothesis import strategies as st

from tests.world.identity.certificates import encode

_SEQUENCE, _SET = 16, 17
#: Common and unusual attributes: CN, OU, C, DC, UID, an e-mail address, a serial number.
_TYPES = (
    "2.5.4.3",
    "2.5.4.11",
    "2.5.4.6",
    "0.9.2342.19200300.100.1.25",
    "0.9.2342.19200300.100.1.1",
    "1.2.840.113549.1.9.1",
    "2.5.4.5",
)
_UTF8, _BMP, _UNIVERSAL = 12, 30, 28
_OTHERS = (2, 3, 4, 5, 18, 19, 20, 22, 26, 27)

_texts = st.text(max_size=8) | st.text(' ,=+<>#;"\\a\0\r\n', max_size=6)
_values = st.one_of(
    st.builds(lambda text: encode(_UTF8, text.encode()), _texts),
    st.builds(lambda text: encode(_BMP, text.encode("utf-16-be")), _texts),
    st.builds(lambda text: encode(_UNIVERSAL, text.encode("utf-32-be")), _texts),
    st.builds(encode, st.sampled_from((_UTF8, _BMP, *_OTHERS)), st.binary(min_size=1, max_size=8)),
    st.builds(encode, st.just(_SEQUENCE), st.builds(lambda text: encode(_UTF8, text.encode()), _texts)),
)
_attributes = st.builds(
    lambda number, value: encode(_SEQUENCE, core.ObjectIdentifier(number).dump() + value),
    st.sampled_from(_TYPES),
    _values,
)
_relative = st.builds(
    lambda some: encode(_SET, b"".join(sorted(some))), st.lists(_attributes, min_size=1, max_size=3, unique=True)
)


def make_subject(*relative: dict[str, str]) -> bytes:
    """Return a subject of parts that each have a text by each of their types, such as 2.5.4.3."""
    return encode(
        _SEQUENCE,
        b"".join(
            encode(
                _SET,
                b"".join(
                    encode(_SEQUENCE, core.ObjectIdentifier(number).dump() + encode(_UTF8, text.encode()))
                    for number, text in part.items()
                ),
            )
            for part in relative
        ),
    )


#: All of them, the empty one included.
subjects = st.builds(lambda parts: encode(_SEQUENCE, b"".join(parts)), st.lists(_relative, max_size=4))
