"""The Java that Kafka and Spark run on."""

import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Final

from holdfast.jars.errors import JarsUnavailable

JAVA_VERSION_MIN: Final = 17
_FIX: Final = "install one, for example with: apt-get install openjdk-17-jre-headless"


def find_java(needed_by: str = "The embedded Kafka") -> str:
    """Return the path of a Java that Kafka and Spark run on: `$JAVA_HOME/bin/java`, else the first `java` on the path.

    Raises:
        JarsUnavailable: Java is missing, does not run, or is too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME ({home}) has no bin/java" if home else "no java is on the path"
        raise JarsUnavailable(f"{needed_by} needs Java {JAVA_VERSION_MIN} or newer and {where}; {_FIX}.")
    version = _major_version(found)
    if version < JAVA_VERSION_MIN:
        raise JarsUnavailable(f"{needed_by} needs Java {JAVA_VERSION_MIN} or newer and {found} is {version}; {_FIX}.")
    return found


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
