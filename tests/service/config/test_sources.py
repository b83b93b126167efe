"""Trees of values out of the environment, a TOML file, dotted names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_every_other_name_is_kept_to_be_refused():
    """One underscore for two is the commonest mistake, and the worst: nothing of it would be seen."""
    assert environment_tree({"SNAPREPLAY_ERRORS_POLICY": "a"}) == {"errors_policy": "a"}
    assert environment_tree({"SNAPREPLAY_HTTP_PORT": "1"}) == {"http_port": "1"}
    assert environment_tree({"SNAPREPLAY_FOO__BAR": "a"}) == {"foo": {"bar": "a"}}


@pytest.mark.parametrize(
    ("options", "environment", "file", "said"),
    [
        (
            {},
            {"SNAPREPLAY_ERRORS_POLICY": "dead_letter"},
            "",
            "errors_policy='dead_letter': unknown setting; did you mean errors.policy, in the environment"
            " SNAPREPLAY_ERRORS__POLICY? (given SNAPREPLAY_ERRORS_POLICY in the environment)",
        ),
        (
            {},
            {"SNAPREPLAY_KAFKA_BOOTSTRAP_SERVERS": "a:1"},
            "",
            "did you mean kafka.bootstrap.servers, in the environment SNAPREPLAY_KAFKA__BOOTSTRAP_SERVERS?",
        ),
        ({}, {"SNAPREPLAY_HTTP__PROT": "1"}, "", "SNAPREPLAY_HTTP__PROT in the environment)"),
        ({}, {}, "[errors]\npolcy = 'fail'\n", "errors.policy? (given in {file})"),
        ({"errors.polcy": "fail"}, {}, "", "errors.policy? (given by an option or the program)"),
        ({"http.port": -1}, {}, "[http]\nport = 1\n", "(given by an option or the program)"),
    ],
)
def test_a_wrong_setting_says_where_it_was_given(tmp_path, options, environment, file, said):
    """The file, the variable or the option: the one that counted."""
    path = tmp_path / "some.toml"
    path.write_text(file)
    with pytest.raises(UsageError) as refused:
        load_settings(options, path, environment)
    assert said.replace("{file}", str(path)) in refused.value.message


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
