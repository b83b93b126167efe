"""The Python blocks of the documents run: each document is one module, top to bottom."""

import asyncio
import importlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

from snapreplay import App, MapState, Topic, ensure_topics, load_settings
from snapreplay.app.names import OWN_SUFFIXES
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.config.settings import Settings
from snapreplay.testing import check_upgrade, record
from tests.docs.snippets import blocks
from tests.support.deadlines import scaled, within
from tests.support.stage import Stage
from tests.support.tampering import delete, topics

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = (
    "docs/introduction.md",
    "docs/writing-apps.md",
    "docs/state.md",
    "docs/time.md",
    "docs/records.md",
    "docs/recipes.md",
    "docs/coming-from.md",
)


def code_of(document: str) -> str:
    """The Python blocks at their own line numbers, so that a failure names the line of the document."""
    lines, inside = [], False
    for line in (ROOT / document).read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines) + "\n"


@pytest.fixture
def module(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ModuleType]:
    """The document as a module that another process can import too (`check` starts one)."""
    document: str = request.param
    name = "document_" + re.sub(r"\W", "_", Path(document).stem.lower())
    (tmp_path / f"{name}.py").write_text(code_of(document), encoding="utf-8")
    sys.path.insert(0, str(tmp_path))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(tmp_path))
        del sys.modules[name]


@pytest.mark.parametrize("module", DOCUMENTS, indirect=True)
def test_the_examples_hold(module: ModuleType) -> None:
    """Every block can be executed, and every test function in them passes."""
    tests = [name for name in vars(module) if name.startswith("test_")]
    assert tests
    for name in tests:
        function = getattr(module, name)
        for values in parameters(function):
            function(*values)


@pytest.mark.whole
@pytest.mark.timeout(300)  # several processes are started several times
def test_the_page_about_testing_is_a_test_module(tmp_path: Path, broker: Any) -> None:
    """docs/testing.md, as pytest runs it for a user: the plugin, pytest-asyncio, a real broker."""
    (tmp_path / "test_document.py").write_text(code_of("docs/testing.md"), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "SNAPREPLAY_TEST_BOOTSTRAP_SERVERS": broker.bootstrap_servers},
        capture_output=True,
        text=True,
        timeout=scaled(100),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def parameters(function: object) -> list[tuple[object, ...]]:
    """Return the sets of pytest.mark.parametrize; one empty set without it."""
    marks = getattr(function, "pytestmark", ())
    found = [values for mark in marks for values in mark.args[1]]
    return found or [()]


@pytest.mark.whole
@pytest.mark.parametrize("module", ["docs/writing-apps.md"], indirect=True)
async def test_the_embedded_service_runs(module: ModuleType, broker: Any) -> None:
    """`serve` of docs/writing-apps.md goes live on a real broker, shows its state and writes a snapshot."""
    settings = Settings(kafka={"bootstrap.servers": broker.bootstrap_servers}, http=HttpSettings(port=0))
    try:
        async with within(60):
            await module.serve(settings)
    finally:
        ours = {topic.name for topic in (*module.app.inputs, *module.app.outputs)}
        ours |= {f"{module.app.app_id}-{suffix}" for suffix in OWN_SUFFIXES}
        delete(broker.bootstrap_servers, *(ours & topics(broker.bootstrap_servers)))


@pytest.mark.whole
@pytest.mark.parametrize("module", ["docs/recipes.md"], indirect=True)
async def test_the_recipes_run(module: ModuleType, broker: Any, monkeypatch: Any) -> None:
    """On a real broker: `main` in a process of its own until SIGTERM, its outputs by `follow` in a database, and then
    the same app inside FastAPI."""
    servers = broker.bootstrap_servers
    monkeypatch.setenv("KAFKA", servers)
    monkeypatch.setenv("SNAPREPLAY_KAFKA__BOOTSTRAP_SERVERS", servers)
    await ensure_topics(module.ledger, load_settings(), create_inputs=2)
    here = Stage(servers, module.ledger, 2)
    database = sqlite3.connect(":memory:")
    try:
        async with within(60):
            await here.send([("0:ada", {"amount": 5}), ("1:bob", {"amount": 7})])
            await in_a_process(module, lambda: followed(module, database, servers))
            async with module.lifespan(module.api):
                await module.services[0].wait_caught_up()
                transport = httpx2.ASGITransport(app=module.api)
                async with httpx2.AsyncClient(transport=transport, base_url="http://here") as web:
                    assert (await web.get("/balances/1:bob")).json() == 7
                    assert (await web.get("/balances/eve")).status_code == 404
    finally:
        database.close()
        ours = {topic.name for topic in (*module.ledger.inputs, *module.ledger.outputs)}
        ours |= {f"{module.ledger.app_id}-{suffix}" for suffix in OWN_SUFFIXES}
        delete(servers, *(ours & topics(servers)))


async def in_a_process(module: ModuleType, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """Runs `main` until `meanwhile` is over, and ends it gracefully."""
    code = f"import {module.__name__} as recipes; raise SystemExit(recipes.main())"
    paths = os.pathsep.join([str(Path(module.__file__ or "").parent), str(ROOT)])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.DEVNULL
    )
    try:
        await meanwhile()
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def followed(module: ModuleType, database: sqlite3.Connection, servers: str) -> None:
    """Wait until both balances are in the database."""
    following = asyncio.create_task(module.follow(database, servers, 2))
    query = "SELECT account, balance FROM balances ORDER BY account"
    while not following.done():
        await asyncio.sleep(0.05)
        if database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] < 2:
            continue
        if database.execute(query).fetchall() == [("0:ada", 5), ("1:bob", 7)]:
            break
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following


PAYMENTS = """
import msgspec
from snapreplay import App, MapState, Topic
payments = Topic("payments")
"""


def test_the_upgrades_lead_there_and_back() -> None:
    """docs/upgrades.md: a balance becomes cents, and the version before takes it back."""
    limits, there, back = (each.text for each in blocks("python") if each.place.startswith("docs/upgrades.md"))
    cents, floats = namespace(PAYMENTS + there), namespace(PAYMENTS + there.split("\n\n\n")[0])
    floats["Account"] = floats["AccountV1"]
    namespace(back, floats)
    old = App("ledger", inputs=[cents["payments"]], state=lambda: MapState(str, cents["AccountV1"]))
    credited(old, cents["payments"], lambda amount: cents["AccountV1"](balance=amount))
    credited(cents["app"], cents["payments"], lambda amount: cents["Account"](cents=round(amount * 100)))
    credited(floats["app"], floats["payments"], lambda amount: floats["Account"](balance=amount))
    samples = [record(cents["payments"], key=f"k{n % 3}", value={"amount": n / 4}) for n in range(9)]
    assert check_upgrade(old, cents["app"], samples).other_state == ()
    assert check_upgrade(cents["app"], floats["app"], samples).other_state == ()
    kept = namespace(PAYMENTS + limits)
    first = App("limits", inputs=[kept["payments"]], state=lambda: MapState(str, kept["LimitV1"]))
    credited(first, kept["payments"], lambda amount: kept["LimitV1"](cents=round(amount * 100)))
    credited(kept["app"], kept["payments"], lambda amount: kept["Limit"](cents=round(amount * 100)))
    samples = [record(kept["payments"], key=f"k{n % 3}", value={"amount": n / 4}) for n in range(9)]
    assert check_upgrade(first, kept["app"], samples).other_state == ()


def namespace(code: str, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run code behind these names; return them with what it defines."""
    names = {} if names is None else names
    exec(code, names)  # noqa: S102 - our own pages
    return names


def credited(app: App[Any], payments: Topic[Any, Any], account: Callable[[float], Any]) -> None:
    """Let an app keep the last payment of each account."""

    @app.handler(payments)
    def on_payment(record: Any, state: Any, out: Any) -> None:
        state[record.key] = account(record.value["amount"])
