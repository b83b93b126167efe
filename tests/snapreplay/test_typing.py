"""Types reach from the topic to the state: what is wrong is wrong under mypy, before anything runs."""

import re
from pathlib import Path

import pytest
from mypy import api

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import msgspec
from snapreplay import App, MapState, Out, Record, Topic, i64, json, msgpack, nullable, raw, utf8

class Payment(msgspec.Struct):
    amount: int

class Account(msgspec.Struct):
    balance: int = 0

plain = Topic("plain")
payments = Topic("payments", key=utf8, value=json(Payment))
numbers = Topic("numbers", key=i64)
totals = Topic("totals", value=msgpack(dict[str, int]))
cancelled = Topic("cancelled", key=nullable(raw), value=nullable(json(Payment)))
reveal_type(plain)  # Topic[str, Any]
reveal_type(payments)  # Topic[str, Payment]
reveal_type(numbers)  # Topic[int, Any]
reveal_type(totals)  # Topic[str, dict[str, int]]
reveal_type(cancelled)  # Topic[bytes | None, Payment | None]

def new_state() -> MapState[str, Account]:
    return MapState(str, Account, default=Account)

app = App("ledger", inputs=[payments], outputs=[totals], state=new_state)
inferred = App("ledger", inputs=[payments], state=lambda: MapState(str, Account))
reveal_type(inferred)  # App[MapState[str, Account]]
reveal_type(app)  # App[MapState[str, Account]]

@app.handler(payments)
def good(record: Record[str, Payment], state: MapState[str, Account], out: Out) -> None:
    reveal_type(state[record.key].balance)  # int
    reveal_type(record.value.amount)  # int
    out.send(totals, key=record.key, value={"n": 1})
    out.send(totals, key=5, value={})  # error: misc
    out.send(totals, key="a", value=[1])  # error: misc
    state[5] = Account()  # error: index
    state["a"] = Payment(1)  # error: assignment

@app.handler(payments)  # error: arg-type
def wrong_key(record: Record[int, Payment], state: MapState[str, Account], out: Out) -> None: ...

@app.handler(payments)  # error: arg-type
def wrong_value(record: Record[str, int], state: MapState[str, Account], out: Out) -> None: ...

@app.handler(payments)  # error: arg-type
def wrong_state(record: Record[str, Payment], state: MapState[str, int], out: Out) -> None: ...

@app.handler(payments)  # error: arg-type
async def asynchronous(r: Record[str, Payment], s: MapState[str, Account], o: Out) -> None: ...

@app.handler(payments)  # error: arg-type
def two_arguments(record: Record[str, Payment], state: MapState[str, Account]) -> None: ...

Topic("t", value=json)  # error: call-overload
"""


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    """mypy's answer: line → (severity, text)."""
    folder = tmp_path_factory.mktemp("typing")
    (folder / "program.py").write_text(PROGRAM)
    arguments = ["--strict", "--follow-imports=silent", "--cache-dir", str(folder / "cache")]
    report, errors, _ = api.run([*arguments, "--no-color-output", str(folder / "program.py")])
    assert not errors, errors
    found: dict[int, list[str]] = {}
    for number, text in re.findall(r"program\.py:(\d+): (.*)", report):
        found.setdefault(int(number), []).append(text)
    return found


def expected(kind):
    lines = enumerate(PROGRAM.splitlines(), 1)
    return {
        n: line.split("# ")[-1]
        for n, line in lines
        if "# " in line and (": " in line.split("# ")[-1]) == kind
    }


def plain(text):
    """Names without their modules."""
    return re.sub(r"\b[\w.]+\.(?=\w)", "", text)


def test_types_are_inferred(findings):
    """What `reveal_type` says is what stands beside it."""
    for line, want in expected(kind=False).items():
        notes = [plain(text) for text in findings.get(line, []) if "Revealed type" in text]
        assert notes == [f'note: Revealed type is "{want}"'], f"line {line}: {findings.get(line)}"


def test_mistakes_are_errors_and_nothing_else_is(findings):
    """Each marked line has the error of its code; no other line has any."""
    wanted = {line: text.removeprefix("error: ") for line, text in expected(kind=True).items()}
    assert wanted
    errors = {line: [t for t in texts if "error:" in t] for line, texts in findings.items()}
    found = {
        line: re.findall(r"\[([a-z-]+)\]$", texts[0]) for line, texts in errors.items() if texts
    }
    assert found == {line: [code] for line, code in wanted.items()}, findings
