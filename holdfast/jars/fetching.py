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
from holdfast.jars.errors import JarsUnavailable
from holdfast.jars.java import find_java, java_environment

_PLAIN_PROGRESS_EVERY: Final = 20
#: What a line of Ivy or of mvn contains that tells of a jar fetched, and of a problem.
_FETCHED_MARKS: Final = ("[SUCCESSFUL ]", "] Copying ")
_PROBLEM_MARKS: Final = ("UNRESOLVED", "[FAILED", "ERROR")

_POM: Final = (
    "<project><modelVersion>4.0.0</modelVersion><groupId>io.holdfast</groupId><artifactId>jars</artifactId><version>1</version>"
    "<dependencies>{}</dependencies></project>\n"
)
_DEPENDENCY: Final = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<exclusions>{}</exclusions></dependency>"
)
_NO_DEPENDENCIES: Final = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """A set of jars that is fetched as a whole."""

    title: str
    #: Name of the file beside this module that lists the dependencies.
    ivy_file: str
    #: Values of the `${names}` in that file.
    properties: Mapping[str, str]
    #: Approximate number of jars; only the progress bar rests on it.
    jars_expected: int
    #: Approximate size of all jars.
    megabytes: int
    #: File name of the jar without which the fetch has failed.
    main_jar: str
    #: What to do where nothing can be fetched; the end of a sentence.
    alternative: str


class FetchFailed(JarsUnavailable):
    """One failed attempt at fetching; another may succeed."""


def fetch(jar_set: JarSet, target: Path, timeout_s: float) -> None:
    """Fetch all jars of a set into the directory `target`, showing progress on standard error.

    Raises:
        FetchFailed: the fetcher failed, or left the main jar out.
        JarsUnavailable: Java is missing, or there is nothing to fetch with.
    """
    with resources.as_file(resources.files("holdfast.jars") / jar_set.ivy_file) as ivy_file:
        command = _fetch_command(jar_set, ivy_file, target)
        with subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=java_environment()
        ) as fetcher:
            timer = threading.Timer(timeout_s, fetcher.kill)
            timer.start()
            try:
                assert fetcher.stdout is not None
                problems = _show_progress(jar_set, fetcher.stdout)
            except BaseException:
                fetcher.kill()
                raise
            finally:
                timer.cancel()
    if fetcher.returncode != 0 or not (target / jar_set.main_jar).is_file():
        why = problems[0] if problems else f"{Path(command[0]).name} ended with status {fetcher.returncode}"
        raise FetchFailed(
            f"The jars of {jar_set.title} could not be fetched ({why}); check the network, then try again."
        )


def _fetch_command(jar_set: JarSet, ivy_file: Path, target: Path) -> list[str]:
    """Return the command that fetches; none keeps anything in a home directory, which a user may lack."""
    if (ivy := _ivy_jar()) is not None:
        # The classifier is part of the pattern because some artifacts differ in nothing else.
        return [
            find_java(),
            *(f"-D{name}={value}" for name, value in jar_set.properties.items()),
            *("-jar", str(ivy), "-ivy", str(ivy_file), "-cache", str(target.with_name("ivy"))),
            *("-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"),
        ]
    if (mvn := shutil.which("mvn")) is not None:
        pom = target.with_name("pom.xml")
        pom.write_text(_pom(ivy_file, jar_set.properties))
        return [
            *(mvn, "--batch-mode", "--file", str(pom), f"-Dmaven.repo.local={target.with_name('maven')}"),
            *("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}"),
        ]
    raise JarsUnavailable(
        f"The jars of {jar_set.title} are fetched by the Ivy that PySpark carries or by mvn, and neither is here: "
        f"{how_to_install('broker')}; or {jar_set.alternative}."
    )


def _ivy_jar() -> Path | None:
    spec = importlib.util.find_spec("pyspark")
    places = spec.submodule_search_locations if spec else None
    found = sorted(jar for place in places or () for jar in Path(place, "jars").glob("ivy-*.jar"))
    return found[-1] if found else None


def _pom(ivy_file: Path, properties: Mapping[str, str]) -> str:
    """Return the pom.xml, for mvn, with the dependencies that the file lists for Ivy."""
    dependencies = [
        _DEPENDENCY.format(
            *(escape(_expand(dependency.attrib[name], properties)) for name in ("org", "name", "rev")),
            "" if "runtime" in dependency.attrib["conf"] else _NO_DEPENDENCIES,
        )
        for dependency in ElementTree.parse(ivy_file).iter("dependency")  # noqa: S314 # our own file
    ]
    return _POM.format("".join(dependencies))


def _expand(text: str, properties: Mapping[str, str]) -> str:
    for name, value in properties.items():
        text = text.replace(f"${{{name}}}", value)
    return text


def _show_progress(jar_set: JarSet, lines: Iterator[str]) -> list[str]:
    """Show how many jars are fetched, from the fetcher's lines; returns the lines that tell of problems, in order."""
    console = Console(stderr=True)
    problems: list[str] = []
    fetched = 0
    title = f"Fetching {jar_set.title}"
    if not console.is_terminal:
        console.print(f"{title}: about {jar_set.jars_expected} jars, {jar_set.megabytes} MB, once")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(title, total=jar_set.jars_expected)
        for line in lines:
            if any(mark in line for mark in _FETCHED_MARKS):
                fetched += 1
                progress.update(task, completed=fetched)
                if not console.is_terminal and fetched % _PLAIN_PROGRESS_EVERY == 0:
                    console.print(f"{title}: {fetched} of about {jar_set.jars_expected} jars")
            elif any(mark in line for mark in _PROBLEM_MARKS):
                problems.append(line.strip(" \t\n:"))
    return problems
