"""The functions of every batch and every request that are written in C, as twins of those in Python, and whether this build has them.

Each answers as its twin does, or leaves an unusual case to it; `twins.pyi` says what each takes and gives.
"""

try:
    from holdfast.kafka.protocol.native import twins
except ImportError:  # the build without a C compiler
    twins = None  # type: ignore[assignment]

__all__ = ["twins"]
