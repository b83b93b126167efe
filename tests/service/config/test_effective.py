"""The settings as they are shown: where each was given, and no secret."""

from snapreplay.service.config.groups import HttpSettings
from snapreplay.service.config.settings import Settings, effective, load_settings


def shown(settings):
    return {each.name: (each.value, each.origin) for each in effective(settings)}


def test_each_setting_says_where_it_was_given(tmp_path):
    """By an option, a variable, the file; the rest are defaults. The first one that gives it counts."""
    file = tmp_path / "ledger.toml"
    file.write_text(
        'instance_id = "ledger-1"\n[batch]\nlinger_ms = 7\n[http]\nport = 1\n[kafka]\nsecurity.protocol = "SASL_SSL"\n'
        'sasl.mechanism = "PLAIN"\nsasl.plain.username = "ada"\n'
    )
    variables = {"SNAPREPLAY_HTTP__PORT": "2", "SNAPREPLAY_KAFKA__SASL_PLAIN_PASSWORD": "hunter2"}
    found = shown(load_settings({"kafka.bootstrap.servers": "broker:9092", "http.port": "3"}, file, variables))
    assert found["http.port"] == (3, "by an option or the program")
    assert found["kafka.bootstrap.servers"] == ("broker:9092", "by an option or the program")
    assert found["batch.linger_ms"] == (7, f"in {file}")
    assert found["instance_id"] == ("ledger-1", f"in {file}")
    assert found["kafka.security.protocol"] == ("SASL_SSL", f"in {file}")
    password = found["kafka.sasl.plain.password"]
    assert password == ("***", "by SNAPREPLAY_KAFKA__SASL_PLAIN_PASSWORD in the environment")
    assert found["batch.records_max"] == (5000, "default")
    assert "hunter2" not in str(found)


def test_what_a_program_gives_is_said_to_be_its():
    """Settings that were not loaded have no file and no variable."""
    found = shown(Settings(http=HttpSettings(port=0), kafka={"client.id": "ledger"}))
    assert (found["http.port"], found["kafka.client.id"]) == ((0, "by the program"), ("ledger", "by the program"))
    assert found["http.host"] == ("127.0.0.1", "default")
