"""Commands, options, settings, requests, metrics and files that a reader may copy from a page exist.
Blocks that run have a test of their own."""

import argparse
import json
import re
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
from typer import Context
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from snapreplay.api import page
from snapreplay.api.cli.root import app
from snapreplay.api.problems import INTERNAL, INVALID, MALFORMED, MALFORMED_HEADER, MEDIA, TWO_LENGTHS
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.config.kafka_properties import PROPERTIES
from snapreplay.service.config.settings import load_settings
from tests.deploy.promql import wrong_words
from tests.docs.snippets import ROOT, blocks, commands, inline, words_of
from tests.service.config.test_settings import documented_fields
from tests.support.fake_control import FakeControl
from tests.support.served import served

TREE: Any = get_command(app)
OPENAPI = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))
RUNBOOK = (ROOT / "docs/runbook.md").read_text(encoding="utf-8")
METRICS = set(re.findall(r"snapreplay_\w+", RUNBOOK.partition("## Metrics")[2]))
SETTINGS = {name for name, *_ in documented_fields()} | {f"kafka.{name}" for name in PROPERTIES}
VARIABLES = {f"SNAPREPLAY_{name.replace('.', '__', 1).replace('.', '_').upper()}" for name in SETTINGS}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

OURS = {"snapreplay", "opentelemetry-instrument", "spark-submit"}
"""Commands that run ours."""
NO_COMMANDS = {"snapreplay COMMAND --help": "stands for every command"}


def wrong(found: list[tuple[str, object]]) -> None:
    """Fail with each place and what is wrong there."""
    assert not found, "\n".join(f"{place}: {what}" for place, what in found)


def refusal(words: list[str], *, is_whole: bool) -> str:
    """Return why our command line refuses these words; "" if it takes them. A part of a command may lack arguments and
    hold other words for values."""
    command, rest, context = TREE, words, None
    try:
        while isinstance(command, TyperGroup):
            context = Context(command, parent=context, info_name="snapreplay")
            parser = command.make_parser(context)
            parser.allow_interspersed_args = False
            _, rest, _ = parser.parse_args(rest)
            if not rest:
                return ""
            _, command, rest = command.resolve_command(context, rest)
        if is_whole:
            command.make_context("", rest, parent=context)
        else:
            command.make_parser(Context(command)).parse_args(rest)
    except TyperException as error:
        lacks_its_value = words[-1:] == [getattr(error, "option_name", None)] and "requires" in str(error)
        return "" if lacks_its_value and not is_whole else str(error) or type(error).__name__
    return ""


def test_every_command_of_ours_is_taken_by_our_command_line() -> None:
    """Those of the blocks with all their values, those in sentences with their options."""
    found = []
    for place, words in commands():
        if Path(words[0]).name in OURS:
            start = next(n for n, word in enumerate(words) if word.endswith(("snapreplay", "api/cli/__main__.py")))
            found.append((place, refusal(words[start + 1 :], is_whole=True)))
    for each in inline():
        is_short = re.match(rf"({'|'.join(TREE.commands)}) --", each.text)  # such as `run --no-wait`
        if (is_short or each.text.startswith("snapreplay ")) and each.text not in NO_COMMANDS:
            words = [word for word in words_of(each.text.removeprefix("snapreplay "))[0] if word != "…"]
            found.append((each.place, refusal(words, is_whole=False)))
    assert len(found) > 200
    wrong([(place, why) for place, why in found if why])


def test_files_modules_targets_and_extras_exist() -> None:
    """What a command names of this repository: files, modules of Python with their options, targets of make, extras."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    sentences = [each for each in inline() if each.text.startswith(("make ", "python -m ", "pip install"))]
    found: list[tuple[str, object]] = []
    for place, words in [*commands(), *((each.place, words) for each in sentences for words in words_of(each.text))]:
        for word in words:
            is_ours = re.match(r"(deploy|docs|examples|tests|requirements)/[\w./@-]+$", word)
            found += [(place, word)] if is_ours and not (ROOT / word).exists() else []
            extras = re.findall(r"snapreplay\[(\w+)\]", word)
            found += [(place, extra) for extra in extras if extra not in EXTRAS]
        if words[0] == "make":
            found += [(place, word) for word in words[1:] if re.match(r"[a-z-]+$", word) and word not in targets]
        if "-m" in words[:2] or "-m" in words[1:3]:
            found += [(place, each) for each in unknown_in_module(words[words.index("-m") + 1 :])]
    wrong(found)


def unknown_in_module(words: list[str]) -> list[str]:
    """Return the module if there is none, or its options that its package does not mention."""
    name, *options = words
    place = ROOT / name.replace(".", "/")
    if not place.parts[len(ROOT.parts)].startswith(("tests", "benchmarks", "examples")):
        return [] if find_spec(name) else [name]
    files = list(place.glob("*.py")) or [place.with_suffix(".py"), place.parent / "__init__.py"]
    if not files[0].is_file():
        return [name]
    text = "".join(file.read_text(encoding="utf-8") for file in files if file.is_file())
    return [each for each in re.findall(r"--[\w-]+", " ".join(options)) if f'"{each}"' not in text]


def test_every_setting_can_be_set(tmp_path: Path) -> None:
    """Files and options go through the real loader. Names in sentences are those of a setting or of Kafka."""
    for each in blocks("toml"):
        if each.place.startswith("docs/tls.md"):  # needs the variables of the page; runs in test_tls.py
            continue
        file = tmp_path / "snapreplay.toml"
        file.write_text(each.text, encoding="utf-8")
        load_settings(config_file=file, environment={})
    typed = [" ".join(words) for _, words in commands() if Path(words[0]).name in OURS]
    given = re.findall(r"--set ([a-z]\S*?)=(\S+)", "\n".join([*typed, *(each.text for each in inline())]))
    assert len(given) > 5
    for name, value in given:
        assert name in SETTINGS, name
        if "…" not in value:
            load_settings({name: value}, environment={})


KAFKAS = {"retention.ms", "retention.bytes", "group.id", "group.instance.id", "group.max.size", "group.protocol"} | {
    f"group.{bound}.session.timeout.ms" for bound in ("min", "max")
}
"""Names of Kafka that begin as tables of ours do."""
NO_SETTINGS = r"SNAPREPLAY_(TEST_\w+|ENGINE|(SPARK_)?JARS_DIR|PORT|SERVICE_HOST|)"
"""Variables that are no settings, and what Kubernetes sets."""


def test_every_name_of_a_setting_is_one() -> None:
    """In sentences, by its dotted name or by its variable."""
    tables = "|".join(sorted({name.split(".")[0] for name in SETTINGS if "." in name}))
    dotted = re.compile(rf"(?<![\w./-])((?:{tables})\.[a-z_.]+\b)(?![(/])")
    found: list[tuple[str, object]] = []
    for each in [*inline(), *blocks()]:
        names = dotted.findall(each.text) if not each.language else []
        found += [(each.place, n) for n in names if n not in SETTINGS | KAFKAS and not n.endswith((".py", ".md"))]
        variables = re.findall(r"\bSNAPREPLAY_\w*", each.text)
        found += [(each.place, n) for n in variables if n not in VARIABLES and not re.fullmatch(NO_SETTINGS, n)]
    wrong(found)


def test_every_metric_is_one() -> None:
    """In sentences and blocks, and in expressions with their labels. docs/runbook.md has them all, test_tidy.py."""
    found: list[tuple[str, object]] = []
    for each in [*inline(), *blocks("sh", "yaml", "text")]:
        names = re.findall(r"\bsnapreplay_[a-z_]+", each.text)
        found += [(each.place, name) for name in names if name not in METRICS]
        if names and re.search(r"[{(]", each.text):
            found += [(each.place, word) for word in wrong_words(each.text)]
    wrong(found)


def test_every_path_in_a_sentence_is_one_of_the_api() -> None:
    """With its method; `/` is for people."""
    found: list[tuple[str, object]] = []
    for each in inline():
        if request := re.match(r"(GET|POST|DELETE) (/[^?\s]*)", each.text):
            found += [] if operation(*request.groups()) else [(each.place, each.text)]
    wrong(found)


def operation(method: str, path: str) -> dict[str, Any] | None:
    """Find what openapi.json says of a request."""
    if method == "GET" and page.owns(path):
        return {"parameters": []}
    for template, methods in OPENAPI["paths"].items():
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path) and method.lower() in methods:
            return {"parameters": [], **methods[method.lower()]}
    return None


def request_of(words: list[str]) -> httpx2.Request:
    """Return what curl would send; it has the options that the pages use."""
    curl = argparse.ArgumentParser("curl", exit_on_error=False)
    for flag in ("-s", "-i", "-N", "-G"):
        curl.add_argument(flag, action="store_true")
    curl.add_argument("-X")
    curl.add_argument("-H", action="append", default=[])
    curl.add_argument("-d", "--data-urlencode", action="append", default=[], dest="data")
    curl.add_argument("url")
    given = curl.parse_args([re.sub("^-sG$", "-G", word) for word in words])
    content = given.data[0] if given.data and not given.G else None
    query = dict(each.split("=", 1) for each in given.data) if given.G else None
    headers = dict(each.split(": ", 1) for each in given.H)
    method = given.X or ("POST" if content else "GET")
    return httpx2.Request(method, httpx2.URL(given.url, params=query), headers=headers, content=content)


def requests() -> list[tuple[str, httpx2.Request]]:
    return [(place, request_of(words[1:])) for place, words in commands() if words[0] == "curl"]


REFUSED = {each.name for each in (MALFORMED, MALFORMED_HEADER, MEDIA, INVALID, TWO_LENGTHS, INTERNAL)}


async def test_every_request_of_curl_is_understood() -> None:
    """A service answers it, with success or because it has no such partition; its body is valid."""
    found: list[tuple[str, object]] = []
    async with served(FakeControl(), HttpSettings(port=0)) as url, httpx2.AsyncClient(base_url=url) as web:
        for place, request in requests():
            if request.url.path == "/api/v1/events":  # it never ends; tests/api/test_events.py
                continue
            sent = {name: value for name, value in request.headers.items() if name == "content-type"}
            answer = await web.request(
                request.method, request.url.raw_path.decode(), content=request.content or None, headers=sent
            )
            kind = answer.json().get("type", "") if "problem" in answer.headers.get("content-type", "") else ""
            if kind.rpartition(":")[2] in REFUSED or (not kind and answer.status_code in (404, 405)):
                found.append((place, f"{request.method} {request.url}: {answer.text}"))
    wrong(found)
