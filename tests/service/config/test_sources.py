"""Trees of values out of the environment, a TOML file, dotted names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay.errors import UsageError
from snapreplay.service.config.settings import load_settings
from snapreplay.service.config.sources import environment_tree, file_tree, merged, unfold

KNOWN = ["http", "kafka", "instance_id", "snapshot"]


def test_kubernetes_service_variables_are_somebody_elses():
    """A Service called snapreplay makes these; refusing them would stop every pod."""
    made = {"SNAPREPLAY_PORT": "tcp://1", "SNAPREPLAY_SERVICE_HOST": "1", "OTHER_HTTP__PORT": "1"}
    assert environment_tree(made, KNOWN) == {}


def test_a_misspelt_environment_name_is_kept_to_be_refused():
    """Only what resembles a setting, or has a group, can be a mistake of ours."""
    assert environment_tree({"SNAPREPLAY_INSTANCE_IDD": "a"}, KNOWN) == {"instance_idd": "a"}
    assert environment_tree({"SNAPREPLAY_FOO__BAR": "a"}, KNOWN) == {"foo": {"bar": "a"}}


@given(
    st.sampled_from(
        ["kafka.bootstrap.servers", "kafka.bootstrap_servers", "kafka.BOOTSTRAP.SERVERS"]
    )
)
def test_dots_underscores_and_case_are_equal_in_kafka_names(name):
    """The environment cannot hold dots, so all spellings must merge into one."""
    assert unfold({name: "a:1"}) == {"kafka": {"bootstrap.servers": "a:1"}}


def test_nested_mappings_pass_as_they_are():
    """A caller may hand over a whole group."""
    tree = unfold({"http": {"port": 1}, "kafka": {"client_id": "x"}, "batch.linger_ms": 0})
    assert tree == {"http": {"port": 1}, "kafka": {"client.id": "x"}, "batch": {"linger_ms": 0}}


def test_a_file_in_the_working_directory_is_found(tmp_path, monkeypatch):
    """snapreplay.toml counts without being named; none is fine too."""
    monkeypatch.chdir(tmp_path)
    assert file_tree(None) == {}
    (tmp_path / "snapreplay.toml").write_text("[http]\nport = 7\n")
    assert load_settings(environment={}).http.port == 7


def test_a_named_file_must_exist_and_be_toml(tmp_path):
    """A config file that silently does not count is worse than none."""
    with pytest.raises(
        UsageError, match=r"missing\.toml \(--config\) cannot be read: No such file"
    ):
        file_tree(tmp_path / "missing.toml")
    (tmp_path / "bad.toml").write_text("port 1")
    with pytest.raises(UsageError, match=r"bad\.toml is not valid TOML"):
        file_tree(tmp_path / "bad.toml")


def test_the_first_tree_that_has_a_value_gives_it():
    """Inside a table, too; a value that stands where a table must be is not lost, but refused later."""
    cli, environment = {"http": {"port": 1}}, {"http": {"port": 2, "host": "b"}}
    file = {"http": {"host": "c"}, "instance_id": "one", "batch": 7}
    assert merged(cli, environment, file) == {
        "http": {"port": 1, "host": "b"},
        "instance_id": "one",
        "batch": 7,
    }
    assert merged({"batch": 7}, {"batch": {"linger_ms": 1}}) == {"batch": 7}
    assert file == {"http": {"host": "c"}, "instance_id": "one", "batch": 7}
