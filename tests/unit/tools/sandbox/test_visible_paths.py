import pathlib

import pytest

from treadle.tools.sandbox import visible_paths as places


def test_the_environment_is_short_and_holds_no_secret() -> None:
    """What looks like one is dropped even where a pattern fits, unless it is named exactly."""
    source = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "HOME": "/home/ada",
        "OPENAI_API_KEY": "k",
        "LC_TOKEN": "t",
        "MY_FLAG": "1",
        "MY_PASSWORD": "p",
        "NAMED_SECRET": "s",
        "OTHER": "x",
    }
    env = places.environment(source, ("MY_*", "NAMED_SECRET"), "/scratch")
    assert {name: env.get(name) for name in source} == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "HOME": "/scratch/home",
        "OPENAI_API_KEY": None,
        "LC_TOKEN": None,
        "MY_FLAG": "1",
        "MY_PASSWORD": None,
        "NAMED_SECRET": "s",
        "OTHER": None,
    }
    assert (env["TMPDIR"], env["HISTFILE"], env["PAGER"]) == ("/scratch/tmp", "/dev/null", "cat")


def test_programs_are_readable_and_homes_are_not(tmp_path: pathlib.Path) -> None:
    """The installation around a folder of PATH, but of a shared prefix only the programs."""
    home = tmp_path / "home"
    for folder in (".pyenv/shims", ".local/bin", ".local/lib", ".local/share", "bin"):
        (home / folder).mkdir(parents=True)
    path = ":".join(str(home / name) for name in (".pyenv/shims", ".local/bin", "bin", "missing"))
    found = [each for each in places.readable(path, str(home), network=False) if each.startswith(str(tmp_path))]
    assert found == [str(home / name) for name in (".pyenv", ".local/bin", ".local/lib", "bin")]


def test_settings_of_the_system_are_readable_without_its_secrets(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the secret lies one folder deeper."""
    for name in ("passwd", "shadow", "shadow-", "sudoers", "ssl/certs/a", "ssl/private/key", "krb5.keytab"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    monkeypatch.setattr(places, "SETTINGS", str(tmp_path))
    found = [each for each in places.readable("", "", network=False) if each.startswith(str(tmp_path))]
    assert found == [f"{tmp_path}/passwd", f"{tmp_path}/ssl/certs"]
