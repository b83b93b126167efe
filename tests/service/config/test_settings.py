"""Settings: bounds, relations, sources, messages, and docs/settings.md."""

import ast
import inspect
import re
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest

from snapreplay.errors import UsageError
from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.config.kafka_properties import PROPERTIES
from snapreplay.service.config.settings import Settings, load_settings, used_settings
from snapreplay.service.config.table import fields_of, is_table

DOCS = Path(__file__).parents[3] / "docs" / "settings.md"
BOUNDS = {
    "ge": "≥ {}",
    "gt": "> {}",
    "le": "≤ {}",
    "max_length": "at most {} characters",
    "pattern": "only letters, digits and `.`, `_`, `-`",
}


def problems(overrides, environment=None, config_file=None):
    with pytest.raises(UsageError) as caught:
        load_settings(overrides, config_file, environment or {})
    return caught.value.facts["problems"]


def documented_fields():
    """Yield (dotted name, field, description) of every setting but `kafka`."""
    for name, field in fields_of(Settings).items():
        if is_table(field.type):
            for inner_name, inner_field in fields_of(field.type).items():
                yield f"{name}.{inner_name}", inner_field, descriptions(field.type)[inner_name]
        elif name != "kafka":
            yield name, field, descriptions(Settings)[name]


def descriptions(table):
    """The text below each value of a table."""
    node: Any = ast.parse(inspect.getsource(table)).body[0]
    told = {}
    for value, text in pairwise(node.body):
        if isinstance(value, ast.AnnAssign) and isinstance(text, ast.Expr):
            told[ast.unparse(value.target)] = ast.literal_eval(text.value)
    return told


def shown(value):
    """Write a value as docs/settings.md does."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int | float) else value


def row(name, field, description):
    """The line of docs/settings.md for a setting."""
    default = shown(field.default)
    kind, *limits = get_args(field.type) if get_origin(field.type) is Annotated else [field.type]
    choices = get_args(kind)
    bounds = [
        text.format(shown(getattr(limit, kind)))
        for limit in limits
        for kind, text in BOUNDS.items()
        if getattr(limit, kind, None) is not None
    ]
    allowed = " or ".join(choices) if choices else ", ".join(bounds)
    return f"| `{name}` | {default} | {allowed} | {description} |"


def kafka_row(name):
    """The line of docs/settings.md for one of Kafka's own properties."""
    known = PROPERTIES[name]
    allowed = ", ".join(known.choices) or {"int": f"≥ {known.minimum:,}"}.get(known.kind, known.kind)
    return f"| `kafka.{name}` | {allowed} | {known.description} |"


def test_every_setting_is_documented():
    """docs/settings.md has exactly one row per setting, with name, default, bounds and description."""
    expected = [row(*each) for each in documented_fields()]
    expected += [kafka_row(name) for name in PROPERTIES]
    rows = [line for line in DOCS.read_text().splitlines() if re.match(r"\| `[a-z0-9_.]+` \| ", line)]
    assert sorted(rows) == sorted(expected)


def test_command_line_beats_environment_beats_file_beats_defaults(tmp_path):
    """The documented order, value by value inside one group, kafka's names included."""
    file = tmp_path / "snapreplay.toml"
    file.write_text(
        "[kafka]\nbootstrap.servers = ['file:1', 'file:2']\n'client.id' = 'file'\n"
        "[batch]\nrecords_max = 1\nlinger_ms = 1\n[timeouts]\nrevoke_ms = 1111\nshutdown_ms = 1111\n"
    )
    environment = {
        "SNAPREPLAY_KAFKA__BOOTSTRAP_SERVERS": "env:1",
        "SNAPREPLAY_BATCH__RECORDS_MAX": "2",
        "SNAPREPLAY_TIMEOUTS__REVOKE_MS": "2222",
    }
    settings = load_settings({"batch.records_max": 3, "http.port": None}, file, environment)
    assert (settings.batch.records_max, settings.timeouts.revoke_ms) == (3, 2222)
    assert settings.timeouts.shutdown_ms == 1111
    assert (settings.batch.linger_ms, settings.http.port) == (1, 8080)
    assert settings.bootstrap_servers == ["env:1"]
    assert settings.kafka["client.id"] == "file"


def test_built_directly_nothing_from_outside_counts(monkeypatch):
    """An embedder's Settings(...) is what it says, in any environment."""
    monkeypatch.setenv("SNAPREPLAY_HTTP__PORT", "1")
    assert Settings().http.port == 8080
    assert load_settings().http.port == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"htp.port": 1}, "htp: unknown setting; did you mean http?"),
        ({"http.prot": 1}, "http.prot: unknown setting; did you mean http.port?"),
        ({"http.zzz": 1}, "http.zzz: unknown setting; the names are advertised_url, allowed_hosts, "),
        ({"http.port": 70000}, "http.port=70000: expected `int` <= 65535"),
        *(
            ({"http.advertised_url": url}, f"http.advertised_url={url!r}: not the URL of a server; write it as http://")
            for url in ("ledger-0:8080", "http://", "http://[::1", "http://a:x", "http://a/status", "http://me:pw@a")
        ),
        ({"kafka.acks": "1"}, "kafka.acks: cannot be set: it is always all"),
        ({"kafka.group.id": "x"}, "kafka.group.id: cannot be set: it is the app id"),
        ({"kafka.bootstrap.server": "x"}, "did you mean kafka.bootstrap.servers?"),
        ({"instance_id": "a b"}, "instance_id='a b'"),
        ({"batch.linger_ms": "2 ms"}, "batch.linger_ms='2 ms': expected `int`"),
        ({"snapshot.by": "owners"}, "snapshot.by='owners': expected 'owner' or 'both'"),
        ({"snapshot.before_stop": "perhaps"}, "snapshot.before_stop='perhaps': expected `bool`"),
        ({"http": "5", "http.port": 1}, "http: a str; expected a table"),
        ({"kafka": "5", "kafka.client.id": "x"}, "kafka: a str is not a table of properties; write `kafka={"),
        ({"kafka.bootstrap.servers": "a:9092,b:x"}, "kafka.bootstrap.servers: 'b:x' is not host:"),
        ({"kafka.bootstrap.servers": "http://a:9092"}, "'http://a:9092' is not host:port"),
        ({"kafka.bootstrap.servers": "a:9092,"}, "'' is not host:port"),
        ({"kafka.bootstrap.servers": "a:90920"}, "'a:90920' is not host:port"),
    ],
)
def test_a_wrong_key_is_named_with_its_remedy(given, message):
    """Name, value, reason, remedy: one line per mistake."""
    (line,) = problems(given)
    assert message in line


@pytest.mark.parametrize(
    "made",
    [
        lambda: load_settings(environment={"SNAPREPLAY_KAFKA_SASL_PLAIN_PASSWORD": "hunter2"}),
        lambda: load_settings(environment={"SNAPREPLAY_HTTP__TOKEN": "hunter2"}),
        lambda: load_settings(environment={"SNAPREPLAY_KAFKA": "hunter2"}),
        lambda: Settings(**{"kafka.sasl.plain.password": "hunter2"}),  # type: ignore[arg-type]  # a checker sees it, too
        lambda: Settings({"kafka": {"sasl.plain.password": "hunter2"}}),  # type: ignore[call-arg]  # too
        lambda: used_settings({"kafka": {"sasl.plain.password": "hunter2"}}),  # type: ignore[arg-type]  # too
    ],
)
def test_a_secret_in_the_wrong_place_is_in_no_message(made):
    """One underscore for two makes another name of it. The name says enough, and the log is read by many."""
    with pytest.raises(UsageError) as refused:
        made()
    assert "hunter2" not in f"{refused.value.message}{refused.value.hint}{refused.value.facts}"


def test_all_mistakes_come_at_once():
    """Settings need not be repaired one start at a time. A table that a program makes says the same, and how a dict
    is given in Python."""
    found = problems({"http.prot": 1, "batch.records_max": 0, "kafka.acks": 1, "kafka.linger.ms": 1})
    assert len(found) == 4
    dotted: Any = {"http": {"port": -1}, "batch.x": 1}
    with pytest.raises(UsageError, match="port='x': expected"):
        HttpSettings(port="x")  # type: ignore[arg-type]  # a checker sees it, too
    with pytest.raises(UsageError, match=r"2 settings are wrong(.|\n)*http.port=-1: ") as refused:
        Settings(**dotted)
    assert "in Python a table is a dict: `batch={'x': …}`; `load_settings` takes dotted names" in refused.value.message


def test_spans_without_opentelemetry_are_refused_with_what_to_install(monkeypatch):
    """Carrying needs nothing."""
    monkeypatch.setattr("snapreplay.service.config.settings.find_spec", lambda _: None)
    assert Settings().tracing == "carry"
    with pytest.raises(UsageError, match=r"tracing=spans needs OpenTelemetry: `pip install 'snapreplay\[otel\]'`"):
        Settings(tracing="spans")


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"timeouts.commit_ms": 15_001}, ("timeouts.commit_ms", "timeouts.transaction_ms")),
        ({"kafka.request.timeout.ms": 15_000}, ("kafka.request.timeout.ms", "timeouts.fence_ms")),
        ({"group.heartbeat_interval_ms": 4000}, ("heartbeat_interval_ms", "session_timeout_ms")),
        ({"timeouts.revoke_ms": 29_500}, ("timeouts.revoke_ms", "group.rebalance_timeout_ms")),
        ({"timeouts.claim_grace_ms": 300_000}, ("claim_grace_ms", "metadata_ms")),
        ({"restore.retry_backoff_ms": 60_001}, ("retry_backoff_ms", "retry_backoff_max_ms")),
        ({"changelog.enabled": False, "restore.mode": "changes"}, ("restore.mode", "changelog.enabled=true")),
    ],
)
def test_limits_that_contradict_each_other_are_refused_with_both_names(given, names):
    """A relation that does not hold would show much later as an unexplained timeout."""
    (line,) = problems(given)
    assert all(name in line for name in names)


def test_a_secret_is_never_shown():
    """Error messages end up in logs."""
    given = {"kafka.sasl.plain.password": "", "kafka.security.protocol": "SASL_SSL"}
    assert "(hidden)" in "\n".join(problems(given))
    assert "hunter2" not in "\n".join(problems({"kafka.sasl.plain.password": "hunter2"}))
