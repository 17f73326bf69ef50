"""Becomes another program, with those system calls taken from it that a unit of systemd takes: by libseccomp, as systemd does it.

Run as a script by whoever the unit names, so it imports nothing of ours.
Source: seccomp(2); `seccomp-util.c` of systemd for what MemoryDenyWriteExecute and RestrictAddressFamilies take.
"""

import ctypes
import errno
import json
import os
import socket
import sys

_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_EQUAL, _MASKED_EQUAL = 4, 7
_WRITE, _EXECUTE, _SHM_EXECUTE = 0x2, 0x4, 0o100000
#: Families of sockets are numbered from 0 on, below this.
_FAMILIES_END = 46


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def main() -> None:
    filters, command = json.loads(sys.argv[1]), sys.argv[2:]
    seccomp = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    seccomp.seccomp_init.restype = context_type = ctypes.c_void_p
    _load_allowed(seccomp, context_type, filters["calls"])
    refused = [("socket", _Comparison(0, _EQUAL, number, 0)) for number in _other_families(filters["families"])]
    if not filters["writes_code"]:
        both = _WRITE | _EXECUTE
        refused += [
            ("mmap", _Comparison(2, _MASKED_EQUAL, both, both)),
            ("mprotect", _Comparison(2, _MASKED_EQUAL, _EXECUTE, _EXECUTE)),
            ("pkey_mprotect", _Comparison(2, _MASKED_EQUAL, _EXECUTE, _EXECUTE)),
            ("shmat", _Comparison(2, _MASKED_EQUAL, _SHM_EXECUTE, _SHM_EXECUTE)),
        ]
    context = context_type(seccomp.seccomp_init(ctypes.c_uint32(_ALLOW)))
    for name, comparison in refused:
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        _check(
            seccomp.seccomp_rule_add_array(context, ctypes.c_uint32(_REFUSE), number, 1, ctypes.byref(comparison)), name
        )
    _check(seccomp.seccomp_load(context), "load")
    os.execvp(command[0], command)


def _load_allowed(seccomp: ctypes.CDLL, context_type: type[ctypes.c_void_p], names: list[str]) -> None:
    # This program has to go on: it loads a second filter, and becomes the other program.
    context = context_type(seccomp.seccomp_init(ctypes.c_uint32(_REFUSE)))
    for name in [*names, "seccomp", "prctl", "execve"]:
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # else there is none of this name here
            _check(seccomp.seccomp_rule_add_array(context, ctypes.c_uint32(_ALLOW), number, 0, None), name)
    _check(seccomp.seccomp_load(context), "load")


def _other_families(names: list[str]) -> list[int]:
    allowed = {int(getattr(socket, name)) for name in names}
    return [number for number in range(_FAMILIES_END) if number not in allowed]


def _check(code: int, what: str) -> None:
    if code < 0:
        raise OSError(-code, f"{what}: {os.strerror(-code)}")


if __name__ == "__main__":
    main()
