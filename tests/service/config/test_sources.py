"""Trees of values out of the environment, a TOML file, dotted names."""

import pytest

from snapreplay.errors import UsageError
from snapreplay.service.config.settings import load_settings
from snapreplay.service.config.sources import environment_tree, file_tree, merged, unfold


def test_kubernetes_service_variables_are_somebody_elses():
    """A Service called snapreplay makes these; refusing them would stop every pod. So do our own variables."""
    made = {
        "SNAPREPLAY_PORT": "tcp://1",
        "SNAPREPLAY_WEB_PORT": "tcp://1",
        "SNAPREPLAY_SERVICE_HOST": "1",
        "SNAPREPLAY_SERVICE_PORT_HTTP": "1",
        "SNAPREPLAY_PORT_80_TCP_ADDR": "1",
        "SNAPREPLAY_JARS_DIR": "/jars",
        "OTHER_HTTP__PORT": "1",
    }
    assert environment_tree(made) == {}


@pytest.mark.parametrize(
    ("options", "environment", "file", "said"),
    [
        (
            {},
            {"SNAPREPLAY_ERRORS_POLICY": "dead_letter"},
            "",
            "errors_policy: unknown setting; did you mean errors.policy, in the environment"
            " SNAPREPLAY_ERRORS__POLICY? (given by SNAPREPLAY_ERRORS_POLICY in the environment)",
        ),
        (
            {},
            {"SNAPREPLAY_KAFKA_BOOTSTRAP_SERVERS": "a:1"},
            "",
            "did you mean kafka.bootstrap.servers, in the environment SNAPREPLAY_KAFKA__BOOTSTRAP_SERVERS?",
        ),
        ({}, {"SNAPREPLAY_HTTP__PROT": "1"}, "", "(given by SNAPREPLAY_HTTP__PROT in the environment)"),
        ({}, {}, "[errors]\npolcy = 'fail'\n", "errors.policy? (given in {file})"),
        ({"errors.polcy": "fail"}, {}, "", "errors.policy? (given by an option or the program)"),
        ({"http.port": -1}, {}, "[http]\nport = 1\n", "(given by an option or the program)"),
    ],
)
def test_a_wrong_setting_says_where_it_was_given(tmp_path, options, environment, file, said):
    """The file, the variable or the option: whichever counted."""
    path = tmp_path / "some.toml"
    path.write_text(file)
    with pytest.raises(UsageError) as refused:
        load_settings(options, path, environment)
    assert said.replace("{file}", str(path)) in refused.value.message


@pytest.mark.parametrize("name", ["kafka.bootstrap.servers", "kafka.bootstrap_servers", "kafka.BOOTSTRAP.SERVERS"])
def test_all_spellings_of_a_name_are_one_also_in_a_nested_mapping(name):
    """The environment cannot hold dots, so dots, underscores and case are equal in Kafka's names. A caller may hand
    over a whole group."""
    tree = unfold({"http": {"port": 1}, "kafka": {"client_id": "x"}, name: "a:1", "batch.linger_ms": 0})
    kafka = {"client.id": "x", "bootstrap.servers": "a:1"}
    assert tree == {"http": {"port": 1}, "kafka": kafka, "batch": {"linger_ms": 0}}


def test_a_file_in_the_working_directory_is_found(tmp_path, monkeypatch):
    """snapreplay.toml counts without being named; none is fine too."""
    monkeypatch.chdir(tmp_path)
    assert file_tree(None) == {}
    (tmp_path / "snapreplay.toml").write_text("[http]\nport = 7\n")
    assert load_settings(environment={}).http.port == 7


def test_a_named_file_must_exist_and_be_toml(tmp_path):
    """A config file that silently does not count is worse than none."""
    with pytest.raises(UsageError, match=r"missing\.toml \(--config\) cannot be read: No such file"):
        file_tree(tmp_path / "missing.toml")
    (tmp_path / "bad.toml").write_text("port 1")
    with pytest.raises(UsageError, match=r"bad\.toml is not valid TOML"):
        file_tree(tmp_path / "bad.toml")


def test_the_first_tree_that_has_a_value_gives_it():
    """Inside a table, too; a value that stands where a table must be is not lost, but refused later."""
    cli, environment = {"http": {"port": 1}}, {"http": {"port": 2, "host": "b"}}
    file = {"http": {"host": "c"}, "instance_id": "one", "batch": 7}
    assert merged(cli, environment, file) == {"http": {"port": 1, "host": "b"}, "instance_id": "one", "batch": 7}
    assert merged({"batch": 7}, {"batch": {"linger_ms": 1}}) == {"batch": 7}
    assert file == {"http": {"host": "c"}, "instance_id": "one", "batch": 7}
