"""A home of Spark without the zips of its Python modules.

Every Python that Spark starts looks into these zips first. What comes from there is compiled again in each process, and each task reads
their lists of files again; the environment has the same modules, compiled.
"""

from __future__ import annotations

import os
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from holdfast.jars.cache import cache_dir
from holdfast.jars.errors import JarsUnavailable

#: `conf` is where somebody may have put settings; PySpark brings none.
_LINKED: Final = ("bin", "conf", "jars", "sbin")


def use_home_without_zips(home: Path | None = None) -> None:
    """Let this process and those below it start Spark from links to what PySpark brings, unless `SPARK_HOME` names a home.

    Where they cannot be made, Spark starts from its own home.

    Args:
        home: directory of the links; None: one in the cache.
    """
    spec = find_spec("pyspark")
    if "SPARK_HOME" in os.environ or spec is None or spec.origin is None or find_spec("py4j") is None:
        return
    package = Path(spec.origin).parent
    try:
        if home is None:
            home = cache_dir() / f"spark-home-{sha256(os.fsencode(package)).hexdigest()[:16]}"
        home.mkdir(parents=True, exist_ok=True)
        for name in _LINKED:
            if (package / name).exists():
                _link(home / name, package / name)
            else:
                (home / name).unlink(missing_ok=True)
    except (OSError, JarsUnavailable):
        return
    os.environ["SPARK_HOME"] = str(home)


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    # Other processes may do the same.
    made = link.with_name(f"{link.name}-{os.getpid()}")
    made.unlink(missing_ok=True)  # of one that was killed, which had our number in another container
    made.symlink_to(target)
    made.replace(link)
