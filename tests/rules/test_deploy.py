"""The files of deploy/: every flag, variable, path, series, name and version in them is one that the code has."""

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules.generated import all_series
from rules.tree import ROOT
from treadle.cli.main import build_parser
from treadle.config import ServerSection, load_settings
from treadle.config.environment import PROVIDERS, leaf_paths, variable_of
from treadle.journal.store_url import PASSWORD_ENV
from treadle.server.auth.installation_secret import CHARS_MIN
from treadle.server.route_table import TABLE
from treadle.server.server_process import CLOSE_TIMEOUT_S
from treadle.server.server_state import GRACE_S

DEPLOY = ROOT / "deploy"
ACCESS = {route.pattern: route.access for route in TABLE if "GET" in route.methods.split()}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OTHERS = {"PATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "XDG_DATA_HOME"}
VARIABLES = {
    *(variable_of(path) for path in leaf_paths()),
    *(provider.key_env for provider in PROVIDERS),
    *("TREADLE_CONFIG", "TREADLE_SECRET", PASSWORD_ENV),
}
SECRET = "x" * CHARS_MIN
COMMAND = re.compile(r"(?:^|\s)(treadle (?:keys|store|login|doctor|config) [^>`#\n,()]*)")


def text_of(name: str) -> str:
    """Return a file of deploy/."""
    return (DEPLOY / name).read_text(encoding="utf-8")


def compose() -> Any:
    """Return the compose file."""
    return yaml.safe_load(text_of("compose.yaml"))


def objects() -> dict[str, Any]:
    """Return the objects for Kubernetes, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(text_of("kubernetes.yaml"))}


def pod() -> Any:
    """Return the pod of the deployment."""
    return objects()["Deployment"]["spec"]["template"]["spec"]


def containers() -> list[Any]:
    """Return its containers, those that run first in front."""
    return [*pod()["initContainers"], *pod()["containers"]]


def unit() -> dict[str, list[str]]:
    """Return what the systemd unit sets."""
    found: dict[str, list[str]] = {}
    for line in text_of("treadle.service").splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def command_lines() -> list[str]:
    """Return every command line of Treadle's in these files, comments included."""
    lines = [value for name in ("ExecStart", "ExecStartPre") for value in unit()[name]]
    lines += [f"treadle {shlex.join(compose()['services']['treadle']['command'])}"]
    lines += [f"treadle {shlex.join(each['args'])}" for each in containers()]
    lines += [f"treadle {shlex.join(re.findall(r'^CMD (.*)$', text_of('Containerfile'), re.MULTILINE))}"]
    for path in sorted(DEPLOY.rglob("*")):
        if path.is_file():
            lines += COMMAND.findall(path.read_text(encoding="utf-8"))
    return [line.replace('["serve"]', "serve").replace("'", "") for line in lines]


@pytest.mark.parametrize("line", command_lines())
def test_a_command_line_is_understood(line: str) -> None:
    """Every command and flag exists."""
    words = shlex.split(line)
    assert words[0].rpartition("/")[2] == "treadle"
    args, unknown = build_parser().parse_known_args([word.rstrip(".,;:)") for word in words[1:]])
    assert (bool(args.command), unknown) == (True, [])


def test_every_variable_is_one_that_is_read() -> None:
    """A misspelt one would be a mistake that stops the start, or one that nobody notices."""
    named = set(compose()["services"]["treadle"]["environment"])
    named |= {each["name"] for container in containers() for each in container["env"]}
    named |= {value.partition("=")[0] for value in unit()["Environment"]}
    named |= set(re.findall(r"^(?:ENV| {4})\s*([A-Z_]+)=", text_of("Containerfile"), re.MULTILINE))
    for name in ("treadle.service", "compose.yaml"):
        named |= set(re.findall(r"\b(TREADLE_[A-Z_]+)\b", text_of(name)))
    named |= set(re.findall(r"--from-literal=([A-Z_]+)", text_of("kubernetes.yaml")))
    assert named - VARIABLES - OTHERS == set()


def test_the_configuration_loads_and_wants_keys() -> None:
    """Others can reach the gateway, so it answers to names and to nobody without a key."""
    settings = load_settings(DEPLOY / "treadle.toml", env={"HOME": "/nowhere", "TREADLE_SECRET": SECRET})
    assert (settings.server.host, settings.keys.required) == ("0.0.0.0", "always")
    assert "treadle" in settings.server.allowed_hosts
    environment = {each["name"]: each["value"] for each in pod()["containers"][0]["env"]}
    services = compose()["services"]["treadle"]["environment"]
    for env in (environment, {key: value for key, value in services.items() if key.startswith("TREADLE_")}):
        loaded = load_settings(DEPLOY / "treadle.toml", env={"HOME": "/nowhere", **env, "TREADLE_SECRET": SECRET})
        assert loaded.store.url.startswith("postgresql://treadle@postgres/treadle")
        assert loaded.rates.url == "valkey://valkey:6379/0"


def test_what_is_asked_over_http_is_there() -> None:
    """Probes and Prometheus ask for paths that exist, at the port and by a name that is answered to."""
    settings = load_settings(DEPLOY / "treadle.toml", env={"HOME": "/nowhere"})
    port = ServerSection().port
    probes = [pod()["containers"][0][name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert [(probe["path"], ACCESS[probe["path"]].is_open) for probe in probes] == [
        ("/healthz", True),
        ("/healthz", True),
        ("/readyz", True),
    ]
    assert all(probe["httpHeaders"] == [{"name": "Host", "value": "localhost"}] for probe in probes)
    [scrape] = yaml.safe_load(text_of("prometheus/prometheus.yml"))["scrape_configs"]
    assert ACCESS[scrape["metrics_path"]].reads == "viewer"
    [target] = scrape["static_configs"][0]["targets"]
    assert target in {f"{name}:{port}" for name in settings.server.allowed_hosts}
    assert pod()["containers"][0]["ports"] == [{"name": "http", "containerPort": port}]
    assert objects()["Service"]["spec"]["ports"][0]["port"] == port
    assert f"EXPOSE {port}\n" in text_of("Containerfile")
    assert f"127.0.0.1:{port}/healthz" in text_of("Containerfile")
    assert compose()["services"]["treadle"]["ports"] == [f"127.0.0.1:{port}:{port}"]


def test_every_series_of_the_alerts_is_one_that_is_given() -> None:
    """An alert on a name that nobody gives never fires."""
    ends = {"counter": "_total", "histogram": "_bucket", "gauge": ""}
    given = {f"{series.name}{ends[series.kind]}" for series in all_series()}
    rules = yaml.safe_load(text_of("prometheus/alerts.yml"))["groups"][0]["rules"]
    named = {name for rule in rules for name in re.findall(r"\btreadle_\w+", rule["expr"])}
    assert named
    assert named - given == set()
    assert all(rule["annotations"].keys() == {"summary", "action"} for rule in rules)


def test_images_have_the_version_of_the_package() -> None:
    """A release that forgets one of them is noticed."""
    files = "".join(text_of(each) for each in ("compose.yaml", "kubernetes.yaml", "Containerfile"))
    named = re.findall(r"\btreadle:(\d+\.\d+\.\d+)", files)
    assert set(named) == {PROJECT["version"]}
    assert len(named) >= 5


def test_the_container_is_built_from_what_is_there_and_runs_without_root() -> None:
    """Files, extras and the user; the start of a service has the time that Treadle takes to leave."""
    text = text_of("Containerfile")
    copied = [word for line in re.findall(r"^COPY (?!--)(.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    [extras] = re.findall(r"'\.\[([a-z,]+)\]'", text)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert "USER 10001:10001" in text
    assert pod()["securityContext"]["runAsUser"] == 10_001
    assert all(each["securityContext"]["readOnlyRootFilesystem"] for each in containers())
    needed = GRACE_S + CLOSE_TIMEOUT_S + 5
    assert pod()["terminationGracePeriodSeconds"] > needed + 5
    assert int(unit()["TimeoutStopSec"][0]) > needed
    assert int(compose()["services"]["treadle"]["stop_grace_period"].removesuffix("s")) > needed
    kept = text_of("Containerfile.dockerignore")
    assert all(f"!{name}" in kept for name in copied)


def test_a_mistake_in_the_configuration_is_not_started_again_and_again() -> None:
    """The unit leaves the code for configuration alone; other failures it starts again after."""
    from treadle.cli.command_base import USAGE

    assert unit()["RestartPreventExitStatus"] == [str(USAGE)]
    assert unit()["Restart"] == ["on-failure"]


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """Where systemd's own checker is to be had."""
    checker = shutil.which("systemd-analyze")
    if checker is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / "treadle.service"
    copy.write_text(text_of("treadle.service").replace("/opt/treadle/bin/treadle", "/bin/true"), encoding="utf-8")
    done = subprocess.run([checker, "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False)
    if "Failed to" in done.stderr and "treadle.service" not in done.stderr:
        pytest.skip(f"systemd-analyze does not work here: {done.stderr.strip()[:200]}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("linter", "arguments"),
    [("hadolint", ("Containerfile",)), ("kubernetes-validate", ("--strict", "--quiet", "kubernetes.yaml"))],
)
def test_linters_find_nothing(linter: str, arguments: tuple[str, ...]) -> None:
    """`make check-deploy` brings them; elsewhere this is left out."""
    program = shutil.which(linter)
    if program is None:
        pytest.skip(f"{linter} is not installed: make check-deploy")
    done = subprocess.run([program, *arguments], cwd=DEPLOY, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_above_can_fail() -> None:
    """A flag that is not there, a variable that nobody reads, and a path without a rule are noticed."""
    with pytest.raises(SystemExit):
        build_parser().parse_args(["serve", "--wrokers", "2"])
    assert "TREADLE_STORE__ULR" not in VARIABLES
    with pytest.raises(LookupError):
        ACCESS["/metrix"]
