"""What the job needs of the machine that its driver runs on, looked at before Spark starts; needs no PySpark."""

from __future__ import annotations

import atexit
import os
import pwd
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Final, NamedTuple

#: The newest Python for which the PySpark and the pandas of `pyproject.toml` were made.
PYTHON_VERSION_MAX: Final = (3, 14)
PYTHON_VERSION_MIN: Final = (3, 11)
#: Below it the first batches of a job may find no room for their state and for what they exchange.
FREE_BYTES_MIN: Final = 256 << 20

#: A library that answers for /etc/passwd from a file that a process names, and the name that a user has there.
_WRAPPER: Final = "libnss_wrapper.so"
#: Where systems have it; what lists the libraries of a system leaves out one that nothing is linked to.
_LIBRARY_PLACES: Final = ("/usr/lib64", "/usr/lib", "/usr/lib/*-linux-*", "/usr/local/lib")
_USER_NAME: Final = "holdfast"

#: Java's own, where no option names another one; it does not look at TMPDIR.
_TEMPORARY: Final = "/tmp"  # noqa: S108  # this is what Java has
_TEMPORARY_OPTION: Final = re.compile(r"(?:^|\s)-Djava\.io\.tmpdir=(\"[^\"]*\"|\S+)")
#: Where options of Java stand, the later ones over the earlier ones; names in capitals are of the environment.
_JAVA_OPTIONS: Final = (
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraJavaOptions",
    "_JAVA_OPTIONS",
)
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class Obstacle(NamedTuple):
    """What keeps the job from running on this machine."""

    #: A sentence without a full stop.
    what: str
    #: What to do; the end of a sentence.
    remedy: str


def find_obstacles(spark_properties: Mapping[str, str], *, is_local: bool) -> list[Obstacle]:
    """Return what is in the way of a job here.

    Args:
        spark_properties: of the configuration.
        is_local: whether Spark computes in the driver's Java, and not on a cluster.
    """
    found = [judge_python(sys.version_info[:2]), judge_user(os.getuid())]
    if is_local:
        found.append(judge_temporary(temporary_directory(spark_properties)))
    return [obstacle for obstacle in found if obstacle is not None]


def judge_python(version: tuple[int, ...]) -> Obstacle | None:
    """Judge a version of Python, as (major, minor)."""
    if PYTHON_VERSION_MIN <= version <= PYTHON_VERSION_MAX:
        return None
    bounds = f"{_dotted(PYTHON_VERSION_MIN)} to {_dotted(PYTHON_VERSION_MAX)}"
    return Obstacle(
        f"The compaction job needs Python {bounds}, for which PySpark and pandas were made, and this is {_dotted(version)}",
        "install Holdfast with one of these",
    )


def judge_user(user_id: int) -> Obstacle | None:
    """Judge whether the user has a name or can be given one, without which Hadoop ends before it has begun."""
    if _has_name(user_id) or _find_wrapper() is not None:
        return None
    return Obstacle(
        f"The compaction job needs a name for its user, and user id {user_id} has no entry in /etc/passwd",
        "run it as a user that has one, or install libnss-wrapper, by which the job gives it one",
    )


def name_user(user_id: int, directory: Path) -> dict[str, str]:
    """Return the variables by which Java finds a name for a user that has none; empty: it has one, or cannot be given one.

    Args:
        user_id: as the system knows it.
        directory: where the files with the name are written, in a directory of their own that is gone when this process ends.

    Raises:
        OSError: they cannot be written.
    """
    library = _find_wrapper()
    if _has_name(user_id) or library is None:
        return {}
    own = mkdtemp(prefix="holdfast-user-", dir=directory)
    atexit.register(rmtree, own, ignore_errors=True)
    users, groups = Path(own, "passwd"), Path(own, "group")
    users.write_text(f"{_USER_NAME}:x:{user_id}:{os.getgid()}::/:/usr/sbin/nologin\n", encoding="ascii")
    groups.write_text(f"{_USER_NAME}:x:{os.getgid()}:\n", encoding="ascii")
    preloaded = ":".join(filter(None, (library, os.environ.get("LD_PRELOAD"))))
    return {"LD_PRELOAD": preloaded, "NSS_WRAPPER_PASSWD": str(users), "NSS_WRAPPER_GROUP": str(groups)}


def _find_wrapper() -> str | None:
    found = (path for place in _LIBRARY_PLACES for path in sorted(Path("/").glob(f"{place[1:]}/{_WRAPPER}*")))
    return next(map(str, found), None)


def _has_name(user_id: int) -> bool:
    try:
        pwd.getpwuid(user_id)
    except KeyError:
        return False
    return True


def judge_temporary(directory: str) -> Obstacle | None:
    """Judge whether Java may load the native code that it unpacks to its directory for temporary files."""
    try:
        flags = os.statvfs(directory).f_flag
    except OSError as error:
        why = f"which cannot be used ({error.strerror})"
    else:
        if not flags & os.ST_NOEXEC:
            return None
        why = "where nothing may be executed (noexec)"
    return Obstacle(
        f"Spark's state store loads native code from Java's directory for temporary files, {directory}, {why}",
        "name another directory with spark.driver.extraJavaOptions=-Djava.io.tmpdir=DIRECTORY",
    )


def temporary_directory(spark_properties: Mapping[str, str]) -> str:
    """Return the directory for temporary files of the Java that the job starts."""
    options = " ".join(spark_properties.get(name) or os.environ.get(name, "") for name in _JAVA_OPTIONS)
    named = _TEMPORARY_OPTION.findall(options)
    return named[-1].strip('"') if named else _TEMPORARY


def local_places(places: Mapping[str, str], spark_properties: Mapping[str, str]) -> dict[str, Path]:
    """Return the directories on this machine that the job writes to, by the settings that name them.

    Args:
        places: path or URI by setting; an empty one is none.
        spark_properties: of the configuration.
    """
    temporary = temporary_directory(spark_properties)
    scratch = os.environ.get("SPARK_LOCAL_DIRS") or spark_properties.get("spark.local.dir") or _TEMPORARY
    found = {**places, "spark.local.dir": scratch.partition(",")[0], "java.io.tmpdir": temporary}
    return {
        name: Path(path.removeprefix("file://").removeprefix("file:"))
        for name, path in found.items()
        if path and (path.startswith("file:/") or not _URI.match(path))
    }


def full_places(places: Mapping[str, Path], free_bytes_min: int = FREE_BYTES_MIN) -> list[str]:
    """Return, the fullest first, which directories have little room left, each as `setting (path) has N MiB left`.

    Args:
        places: directory by the setting that names it; one that is not there yet lies where its parent is.
        free_bytes_min: room below which a directory is named.
    """
    found: dict[int, tuple[float, str]] = {}
    for name, path in places.items():
        there = next((place for place in (path, *path.parents) if place.exists()), path)
        try:
            room, device = os.statvfs(there), there.stat().st_dev
        except OSError:
            continue
        free_bytes = room.f_bavail * room.f_frsize
        # Some file systems have no bound of files, and say 0 of both.
        if room.f_files and not room.f_favail:
            found.setdefault(device, (-1, f"{name} ({path}) can take no more files"))
        elif free_bytes < free_bytes_min:
            found.setdefault(device, (free_bytes, f"{name} ({path}) has {free_bytes / (1 << 20):.1f} MiB left"))
    return [text for _, text in sorted(found.values())]


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
