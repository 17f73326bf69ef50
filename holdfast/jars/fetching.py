"""Jars from Maven's repositories, by the Ivy that PySpark carries, or by `mvn` where there is no PySpark."""

import importlib.util
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from holdfast.distribution import how_to_install
from holdfast.jars.errors import BrokerError
from holdfast.jars.java import java

_PLAIN_PROGRESS_EVERY: Final = 20
#: In a line of Ivy or of mvn: a jar has come.
_COME: Final = ("[SUCCESSFUL ]", "] Copying ")
_PROBLEMS: Final = ("UNRESOLVED", "[FAILED", "ERROR")

_POM: Final = (
    "<project><modelVersion>4.0.0</modelVersion><groupId>io.holdfast</groupId><artifactId>jars</artifactId><version>1</version>"
    "<dependencies>{}</dependencies></project>\n"
)
_DEPENDENCY: Final = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<exclusions>{}</exclusions></dependency>"
)
_ALONE: Final = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """What is to be fetched."""

    title: str
    #: Beside this module: what it is made of.
    ivy_file: str
    properties: Mapping[str, str]
    #: How many jars come; only the progress bar rests on it.
    jars_expected: int
    megabytes: int
    #: Without it, something went wrong.
    main_jar: str
    #: How to do without; the end of a sentence.
    otherwise: str


class FetchFailedError(BrokerError):
    """One attempt at fetching failed; another may succeed."""


def fetch(what: Fetch, target: Path, timeout_s: float) -> None:
    """Put all jars into `target`, showing progress on standard error.

    Raises:
        FetchFailedError: they did not come.
        BrokerError: Java is missing, or there is nothing to fetch with.
    """
    with resources.as_file(resources.files("holdfast.jars") / what.ivy_file) as ivy_file:
        command = _command(what, ivy_file, target)
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as fetcher:  # noqa: S603
            timer = threading.Timer(timeout_s, fetcher.kill)
            timer.start()
            try:
                assert fetcher.stdout is not None
                problems = _follow(what, fetcher.stdout)
            except BaseException:
                fetcher.kill()
                raise
            finally:
                timer.cancel()
    if fetcher.returncode != 0 or not (target / what.main_jar).is_file():
        why = problems[0] if problems else f"{Path(command[0]).name} ended with status {fetcher.returncode}"
        raise FetchFailedError(
            f"The jars of {what.title} could not be fetched ({why}); check the network, then try again."
        )


def _command(what: Fetch, ivy_file: Path, target: Path) -> list[str]:
    """Return what fetches; neither keeps anything in a home, which who runs this may not have."""
    if (ivy := _ivy_jar()) is not None:
        # The classifier is part of the pattern because some artifacts differ in nothing else.
        return [
            java(),
            *(f"-D{name}={value}" for name, value in what.properties.items()),
            *("-jar", str(ivy), "-ivy", str(ivy_file), "-cache", str(target.with_name("ivy"))),
            *("-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"),
        ]
    if (mvn := shutil.which("mvn")) is not None:
        pom = target.with_name("pom.xml")
        pom.write_text(_pom(ivy_file, what.properties))
        return [
            *(mvn, "--batch-mode", "--file", str(pom), f"-Dmaven.repo.local={target.with_name('maven')}"),
            *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}"),
        ]
    raise BrokerError(
        f"The jars of {what.title} are fetched by the Ivy that PySpark carries or by mvn, and neither is here: "
        f"{how_to_install('broker')}; or {what.otherwise}."
    )


def _ivy_jar() -> Path | None:
    spec = importlib.util.find_spec("pyspark")
    places = spec.submodule_search_locations if spec else None
    found = sorted(jar for place in places or () for jar in Path(place, "jars").glob("ivy-*.jar"))
    return found[-1] if found else None


def _pom(ivy_file: Path, properties: Mapping[str, str]) -> str:
    """Return for mvn what the file says for Ivy."""
    dependencies = [
        _DEPENDENCY.format(
            *(escape(_filled(dependency.attrib[name], properties)) for name in ("org", "name", "rev")),
            "" if "runtime" in dependency.attrib["conf"] else _ALONE,
        )
        for dependency in ElementTree.parse(ivy_file).iter("dependency")  # noqa: S314 # our own file
    ]
    return _POM.format("".join(dependencies))


def _filled(text: str, properties: Mapping[str, str]) -> str:
    for name, value in properties.items():
        text = text.replace(f"${{{name}}}", value)
    return text


def _follow(what: Fetch, lines: Iterator[str]) -> list[str]:
    """Show how many jars have come; return what there were complaints about, in order."""
    console = Console(stderr=True)
    problems: list[str] = []
    fetched = 0
    title = f"Fetching {what.title}"
    if not console.is_terminal:
        console.print(f"{title}: about {what.jars_expected} jars, {what.megabytes} MB, once")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(title, total=what.jars_expected)
        for line in lines:
            if any(mark in line for mark in _COME):
                fetched += 1
                progress.update(task, completed=fetched)
                if not console.is_terminal and fetched % _PLAIN_PROGRESS_EVERY == 0:
                    console.print(f"{title}: {fetched} of about {what.jars_expected} jars")
            elif any(mark in line for mark in _PROBLEMS):
                problems.append(line.strip(" \t\n:"))
    return problems
