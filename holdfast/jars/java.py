"""The Java that Kafka and Spark run on."""

import locale
import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Final

from holdfast.jars.errors import JarsUnavailable

JAVA_VERSION_MIN: Final = 17
#: The newest Java on which the job was tried. Java takes away what Hadoop calls, as 24 did to the Hadoop of Spark 4.0.
SPARK_JAVA_VERSION_MAX: Final = 25
_FIX: Final = "install one, for example with: apt-get install openjdk-17-jre-headless; or name one by JAVA_HOME"


def find_spark_java() -> str:
    """Return the path of a Java that Spark runs on, from the place that Spark takes it from.

    Raises:
        JarsUnavailable: Java is missing, does not run, is too old, or is newer than what Spark was tried on.
    """
    return find_java("The compaction job", SPARK_JAVA_VERSION_MAX)


def find_java(needed_by: str = "The embedded Kafka", version_max: int | None = None) -> str:
    """Return the path of a Java that fits: `$JAVA_HOME/bin/java`, else the first `java` on the path.

    Args:
        needed_by: begins the sentence where none fits.
        version_max: the newest major version that fits; None: any newer one does.

    Raises:
        JarsUnavailable: Java is missing, does not run, is too old or too new.
    """
    needed = f"{needed_by} needs Java {JAVA_VERSION_MIN} {'or newer' if version_max is None else f'to {version_max}'}"
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME ({home}) has no bin/java" if home else "no java is on the path"
        raise JarsUnavailable(f"{needed} and {where}; {_FIX}.")
    version = _major_version(found)
    if version < JAVA_VERSION_MIN or (version_max is not None and version > version_max):
        raise JarsUnavailable(f"{needed} and {found} is {version}; {_FIX}.")
    return found


def java_environment() -> dict[str, str]:
    """Return the environment of a Java that names files in UTF-8, as this Python does, also in the locale C.

    Java names files by the locale alone, and one that is not installed here is the locale C.
    """
    is_ascii = locale.setlocale(locale.LC_CTYPE) in ("C", "POSIX")
    return os.environ | ({"LC_ALL": "C.UTF-8"} if is_ascii else {})


@lru_cache(maxsize=8)
def _major_version(executable: str) -> int:
    """Return the major version of a Java; releases before 9 name themselves 1.8 and the like."""
    try:
        output = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        raise JarsUnavailable(f"{executable} does not run ({error}); {_FIX}.") from error
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    if found is None:
        raise JarsUnavailable(f"{executable} does not say its version; {_FIX}.")
    return int(found[1])
