"""Our code as a zip for Spark's workers on other machines, which import it from there (`--py-files`)."""

import os
import tempfile
import zipfile
from pathlib import Path
from typing import Final

import holdfast

#: Endings of code and of the files that it reads; third-party packages are installed on the workers.
_ENDINGS: Final = (".py", ".avsc", ".xml", ".properties")
#: Of every file in the zip, so that the same code gives the same bytes.
_TIMESTAMP: Final = (2020, 1, 1, 0, 0, 0)


def write_py_files(path: Path) -> None:
    """Write the zip; it appears whole, in place of what was there.

    Raises:
        OSError: it cannot be written there.
    """
    root = Path(holdfast.__file__).parent
    path.parent.mkdir(parents=True, exist_ok=True)
    number, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(number, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for found in sorted(root.rglob("*")):
                if found.suffix in _ENDINGS and found.is_file():
                    info = zipfile.ZipInfo(str(found.relative_to(root.parent).as_posix()), _TIMESTAMP)
                    info.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(info, found.read_bytes())
        Path(partial).chmod(0o644)
        Path(partial).replace(path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
