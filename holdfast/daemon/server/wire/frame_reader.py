"""The bytes of one client cut into frames: a length of four bytes, and so many bytes.

A frame grows as its bytes arrive; nothing is allocated by the length it announces, and a longer one than `frame_size_bytes_max` is refused.
"""

from __future__ import annotations

from holdfast.kafka.protocol.frames import LENGTH_SIZE, read_length


class FrameReader:
    """Bytes that arrived and were not taken as frames; whole frames stay bytes until `take`."""

    def __init__(self, frame_size_bytes_max: int) -> None:
        #: Of a request, without its length.
        self.frame_size_bytes_max = frame_size_bytes_max
        #: Bytes that were not looked at yet; they begin with a frame, at `_position`.
        self._chunk = b""
        self._position = 0
        #: The beginning of a frame; while there is one, the chunk is empty.
        self._partial = bytearray()
        #: How long the beginning must be before another look at it is worth while.
        self._bytes_needed = LENGTH_SIZE
        #: When the frame that is not complete began to arrive, None while there is none.
        self._began_ms: float | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes of frames that are not complete or not taken."""
        return len(self._partial) + len(self._chunk) - self._position

    @property
    def has_unread_chunk(self) -> bool:
        """Whether bytes wait that may be a whole frame."""
        return self._position < len(self._chunk)

    @property
    def incomplete_since_ms(self) -> float | None:
        """When a frame began to arrive of which more is needed, None while none is needed."""
        return self._began_ms if self._partial else None

    @property
    def progress(self) -> str:
        """How much of the incomplete frame is here, for people."""
        return f"{len(self._partial)} of {self._bytes_needed} bytes"

    def receive(self, data: bytes) -> None:
        """Take bytes of the client."""
        if self._partial:
            self._partial += data
            if len(self._partial) < self._bytes_needed:
                return
            self._chunk = bytes(self._partial)
            self._partial = bytearray()
        elif self._position < len(self._chunk):
            self._chunk = self._chunk[self._position :] + data
        else:
            self._chunk = data
        self._position = 0

    def next_length(self, now_ms: float) -> int | None:
        """Return the length that the next frame announces, whatever it is; None until that is here."""
        if len(self._chunk) - self._position < LENGTH_SIZE:
            self._wait_for(LENGTH_SIZE, now_ms)
            return None
        return read_length(self._chunk, self._position)

    def is_allowed(self, length: int) -> bool:
        """Return whether a request may be so long."""
        return 0 <= length <= self.frame_size_bytes_max

    def is_whole(self, length: int, now_ms: float) -> bool:
        """Return whether the next frame, of the length it announced, is here."""
        size = LENGTH_SIZE + length
        if self._position + size > len(self._chunk):
            self._wait_for(size, now_ms)
            return False
        return True

    def take(self, length: int) -> bytes:
        """Return the next frame without its length, each once; only when it `is_whole`."""
        chunk = self._chunk
        start = self._position + LENGTH_SIZE
        end = start + length
        if end == len(chunk):
            self._chunk, self._position = b"", 0
        else:
            self._position = end
        self._began_ms = None
        return chunk[start:end]

    def clear(self) -> None:
        """Drop all bytes."""
        self._chunk, self._position = b"", 0
        self._partial = bytearray()

    def _wait_for(self, size: int, now_ms: float) -> None:
        """Keep the beginning of a frame until `size` bytes of it are here."""
        self._partial += self._chunk[self._position :]
        self._chunk, self._position = b"", 0
        self._bytes_needed = size
        if self._began_ms is None:
            self._began_ms = now_ms
