"""Two files: the user's says what holds, the repository's own may only make it tighter."""

from pathlib import Path

import pytest

from treadle.config import Loaded, Settings, load_settings, read_settings
from treadle.config.example_file import list_keys
from treadle.config.loader import data_directory, examine_file
from treadle.config.repository_file import TIGHTER
from treadle.config.trusted_files import Trust, Untrusted
from treadle.core.errors import ConfigError
from treadle.runtime.policy_setup import make_policies
from treadle.tools import ToolRegistry, tool


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a repository; the user's home is elsewhere."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Give the user a place for a file of their own."""
    folder = tmp_path / "home" / ".config" / "treadle"
    folder.mkdir(parents=True)
    return folder


def read(home: Path | None, **env: str) -> Loaded:
    """Read the settings of somebody who lives there."""
    return read_settings(env=env_of(home, **env) if home is not None else env)


def env_of(home: Path, **env: str) -> dict[str, str]:
    """Return the environment of somebody who lives there."""
    return {"HOME": str(home.parents[1]), **env}


def test_the_only_file_is_the_users(repository: Path, home: Path) -> None:
    """Once somebody agreed to it, the one of the working directory may say everything."""
    (repository / "treadle.toml").write_text('[tools]\nload = ["tools.py"]\n[policy]\ntaint = "off"\n')
    with pytest.raises(Untrusted):
        read(home)
    Trust(data_directory(env_of(home))).add(examine_file(repository / "treadle.toml", env=env_of(home)).doubt)
    loaded = read(home)
    assert (loaded.repository, loaded.warnings) == (None, ())
    assert (loaded.settings.tools.load, loaded.settings.policy.taint) == (("tools.py",), "off")


def test_the_users_own_file_is_found_at_home(repository: Path, home: Path) -> None:
    """Its paths are meant from where it stands; XDG_CONFIG_HOME moves it."""
    (home / "treadle.toml").write_text('[limits]\nmax_iterations = 3\n[tools]\nload = ["tools.py"]\n')
    loaded = read(home)
    assert loaded.file == str(home / "treadle.toml")
    assert loaded.settings.limits.max_iterations == 3
    assert loaded.settings.tools.load == (str(home / "tools.py"),)
    moved = read_settings(env={"XDG_CONFIG_HOME": str(home.parent), "HOME": "/nowhere"})
    assert moved.settings.limits.max_iterations == 3


def test_the_tools_of_the_users_own_file_work_where_treadle_is_started(repository: Path, home: Path) -> None:
    """Not beside the file, unless it names a root."""
    (home / "treadle.toml").write_text("[tools.local]\nnetwork = true\n")
    assert read(home).settings.tools.local.root == "."
    (home / "treadle.toml").write_text('[tools.local]\nroot = "work"\n')
    assert read(home).settings.tools.local.root == str(home / "work")


def test_a_repository_may_tighten(repository: Path, home: Path) -> None:
    """Lower limits, fewer tools, more questions: all of it is taken, and `sources` says from where."""
    (home / "treadle.toml").write_text(
        '[tools.local]\nenabled = ["glob", "bash"]\npolicy = "trust"\nnetwork = true\n[limits]\nwall_s = 0\n'
    )
    (repository / "treadle.toml").write_text(
        '[limits]\nmax_iterations = 2\nwall_s = 60\n[tools.local]\nenabled = ["glob"]\npolicy = "ask"\n'
        'network = false\n[repair]\neffects = "deny"\n[policy.write]\napproval = "always"\n'
    )
    loaded = read(home)
    settings = loaded.settings
    assert loaded.warnings == ('treadle.toml:5: tools.local.enabled = ["glob"] leaves only these local tools',)
    assert (settings.limits.max_iterations, settings.limits.wall_s) == (2, 60.0)
    assert (settings.tools.local.enabled, settings.tools.local.policy, settings.tools.local.network) == (
        ("glob",),
        "ask",
        False,
    )
    assert (settings.repair.effects, settings.policy.write.approval) == ("deny", "always")
    assert loaded.source("limits.max_iterations") == "treadle.toml:2"


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        ("[limits]\nmax_iterations = 99\n", "limits.max_iterations", "would loosen it"),
        ("[limits]\nwall_s = 0\n", "limits.wall_s", "would loosen it"),
        ("[tools]\nenabled = true\n", "tools.enabled", "would loosen it"),
        ('[tools.local]\nenabled = ["bash"]\n', "tools.local.enabled", "would loosen it"),
        ('[tools.local]\npolicy = "trust"\n', "tools.local.policy", "would loosen it"),
        ('[policy]\ntaint = "off"\n', "policy.taint", "would loosen it"),
        ('[policy.write]\napproval = "never"\n', "policy.write.approval", "would loosen it"),
        ('[repair]\neffects = "allow"\n', "repair.effects", "would loosen it"),
        ('[tools]\nload = ["evil.py"]\n', "tools.load", "is not for a repository to set"),
        ('[[mcp]]\nname = "x"\ncommand = ["evil"]\n', "mcp[0].command", "is not for a repository to set"),
        ('[[upstream]]\nname = "x"\nbase_url = "http://evil/v1"\n', "upstream[0].base_url", "is not for a repository"),
        ('[store]\nurl = "sqlite:///x.db"\n', "store.url", "is not for a repository to set"),
        ("[server]\nallow_remote = true\n", "server.allow_remote", "is not for a repository to set"),
        ('[tools.local]\nroot = "/"\n', "tools.local.root", "is not for a repository to set"),
        ("nonsense = 1\n", "nonsense", "is not for a repository to set"),
    ],
)
def test_what_would_loosen_is_left_out_with_a_warning(
    repository: Path, home: Path, text: str, key: str, why: str
) -> None:
    """The key, its file and its line are named, and the settings are as without the file."""
    (home / "treadle.toml").write_text('[tools.local]\nenabled = ["glob"]\n[repair]\neffects = "ask"\n')
    before = read(home).settings
    (repository / "treadle.toml").write_text(text)
    loaded = read(home)
    assert loaded.settings == before
    assert any(each.startswith("treadle.toml:") and f"{key} {why}" in each for each in loaded.warnings), loaded.warnings


def test_rules_of_a_repository_can_only_tighten_tools(repository: Path, home: Path) -> None:
    """They are put behind the user's; each is named by its file where it is the reason of something."""
    (home / "treadle.toml").write_text(
        '[[tools.rule]]\nmatch = ["*"]\napproval = "never"\ntimeout_s = 5.0\n[[tools.tighten]]\nmatch = ["x"]\n'
    )
    (repository / "treadle.toml").write_text(
        '[[tools.rule]]\nmatch = ["put"]\napproval = "always"\ntimeout_s = 99.0\nname = "innocent"\n'
        '[[tools.rule]]\nmatch = ["get"]\nenabled = false\n'
    )
    loaded = read(home)
    assert loaded.warnings == ('treadle.toml:8: enabled = false in a rule switches off the tools that match ["get"]',)
    assert [rule.match for rule in loaded.settings.tools.tighten] == [("x",), ("put",), ("get",)]

    @tool
    def put() -> str:
        """Put."""
        return ""

    @tool
    def get() -> str:
        """Get."""
        return ""

    registry = ToolRegistry([put, get], policies=make_policies(loaded.settings))
    kept = registry.get("put")
    assert kept is not None
    assert (kept.policy.approval, kept.policy.timeout_s) == ("always", 5.0)
    assert kept.why["approval"] == "treadle.toml [[tools.rule]] #1"
    assert kept.why["timeout_s"] == "[[tools.rule]] #1; treadle.toml [[tools.rule]] #1 may not loosen it"
    assert registry.get("get") is None


@pytest.mark.parametrize(
    "text",
    [
        '[[tools.rule]]\nmatch = ["get"]\nenabled = true\n',
        '[[tools.tighten]]\nmatch = ["get"]\nenabled = true\n',
        '[[tools.rule]]\nname = "mine"\nmatch = ["put"]\nenabled = false\napproval = "never"\n',
        "[tools]\nrule = []\ntighten = []\n",
    ],
)
def test_no_rule_of_a_repository_takes_one_of_the_users_away(repository: Path, home: Path, text: str) -> None:
    """`enabled` is about tools: off is tighter, and on is left out. A rule of the same name is another rule."""
    ours = '[[tools.rule]]\nname = "mine"\nmatch = ["put", "get"]\napproval = "always"\n'
    off = '[[tools.tighten]]\nname = "off"\nmatch = ["get"]\nenabled = false\n'
    (home / "treadle.toml").write_text(ours + off)
    (repository / "treadle.toml").write_text(text)

    @tool
    def put() -> str:
        """Put."""
        return ""

    @tool
    def get() -> str:
        """Get."""
        return ""

    registry = ToolRegistry([put, get], policies=make_policies(read(home).settings))
    found = {each.name: (each.is_on, each.policy.approval) for each in registry.everything()}
    assert found["get"] == (False, "always")
    assert found["put"][1] == "always"


def test_a_file_that_is_named_makes_that_of_the_working_directory_the_repositorys(
    repository: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By --config or TREADLE_CONFIG; the library logs what the command says on stderr."""
    named = tmp_path / "named.toml"
    named.write_text("")
    (repository / "treadle.toml").write_text("[limits]\nmax_iterations = 99\nmax_total_tool_calls = 1\n")
    settings = load_settings(named, env={})
    assert (settings.limits.max_iterations, settings.limits.max_total_tool_calls) == (8, 1)
    assert "limits.max_iterations would loosen it" in caplog.text
    assert read(None, TREADLE_CONFIG=str(named)).repository == "treadle.toml"


def test_naming_the_file_of_the_working_directory_makes_it_the_users(repository: Path) -> None:
    """However it is spelled."""
    (repository / "treadle.toml").write_text("[limits]\nmax_iterations = 99\n")
    for spelled in ("treadle.toml", str(repository / "treadle.toml"), "../repository/treadle.toml"):
        loaded = read_settings(spelled, env={})
        assert (loaded.repository, loaded.settings.limits.max_iterations) == (None, 99)


def test_a_repositorys_file_cannot_undo_the_users_environment(repository: Path, home: Path) -> None:
    """What is tighter wins, wherever the looser word stands."""
    (home / "treadle.toml").write_text("")
    (repository / "treadle.toml").write_text("[limits]\nmax_iterations = 5\n")
    assert read(home, TREADLE_LIMITS__MAX_ITERATIONS="3").settings.limits.max_iterations == 3
    assert read(home, TREADLE_LIMITS__MAX_ITERATIONS="9").settings.limits.max_iterations == 5


def test_a_repositorys_file_that_is_not_toml_is_an_error(repository: Path, home: Path) -> None:
    """It may hold a rule that somebody relies on, so it is not passed over."""
    (home / "treadle.toml").write_text("")
    (repository / "treadle.toml").write_text("[[[")
    with pytest.raises(ConfigError, match="is not TOML"):
        read(home)


def test_a_wrong_value_of_a_repositorys_rule_is_named(repository: Path, home: Path) -> None:
    """As in any other file."""
    (home / "treadle.toml").write_text("")
    (repository / "treadle.toml").write_text('[[tools.rule]]\nmatch = ["*"]\ntimeout_s = "long"\n')
    with pytest.raises(ConfigError, match=r"tools\.tighten\[0\]\.timeout_s"):
        read(home)


def test_every_key_that_a_repository_may_set_exists() -> None:
    """A key that is renamed is noticed here."""
    assert set(TIGHTER) <= {key.path for key in list_keys(Settings)}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("timeout_s = 0.0", "timeout_s: expected a number >= 0.001"),
        ("retries = -1", "retries: expected a number >= 0"),
        ("output_bytes_max = 1", "output_bytes_max: expected a number >= 256"),
        ("rate_per_min = -1", "rate_per_min: expected a number >= 0"),
        ('effect = "nice"', "effect"),
        ("timeout = 3", "timeout"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_key(repository: Path, line: str, words: str) -> None:
    """Each mistake is named by the rule and its key."""
    (repository / "treadle.toml").write_text(f'[[tools.rule]]\nmatch = ["*"]\n{line}\n')
    with pytest.raises(ConfigError, match=r"tools\.rule\[0\]\.") as caught:
        read(None)
    assert words in str(caught.value.message)


def test_a_rule_without_a_pattern_is_refused(repository: Path) -> None:
    """It would say something of nothing, or of everything."""
    for text in ("[[tools.rule]]\nretries = 1\n", "[[tools.rule]]\nmatch = []\n"):
        (repository / "treadle.toml").write_text(text)
        with pytest.raises(ConfigError, match=r"tools\.rule\[0\]\.match"):
            read(None)


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        ("[tools]\nenabled = false\n", "treadle.toml:2: tools.enabled = false switches off f.py"),
        (
            "[tools.local]\nenabled = []\n",
            "treadle.toml:2: tools.local.enabled = [] leaves only these local tools",
        ),
        ("[tools.web]\nenabled = false\n", "treadle.toml:2: tools.web.enabled = false switches off the web tools"),
    ],
)
def test_what_a_repository_switches_off_is_told_with_file_and_key(
    repository: Path, home: Path, theirs: str, told: str
) -> None:
    """Tools named on the command line are gone because of a file that nobody named."""
    (home / "treadle.toml").write_text('[tools.local]\nenabled = ["glob"]\n')
    (repository / "treadle.toml").write_text(theirs)
    loaded = read_settings(env=env_of(home), overrides={"tools.load": ["f.py"]})
    assert loaded.warnings == (told,)


def test_tools_that_ones_own_file_switches_off_are_told_likewise(home: Path) -> None:
    """The line of the file says where to look."""
    (home / "treadle.toml").write_text("[tools]\nenabled = false\n")
    loaded = read_settings(env=env_of(home), overrides={"tools.load": ["f.py"]})
    assert loaded.warnings == (f"{home}/treadle.toml:2: tools.enabled = false switches off f.py",)
    assert read_settings(env=env_of(home)).warnings == ()


def test_a_file_that_was_only_found_says_that_it_switches_tools_off(tmp_path: Path, repository: Path) -> None:
    """It needs no trust for that, so nobody may have read it."""
    (repository / "treadle.toml").write_text("[tools]\nenabled = false\n")
    loaded = read_settings(env={"HOME": str(tmp_path / "nobody")})
    assert loaded.warnings == ("treadle.toml:2: tools.enabled = false switches off every server tool",)
