"""The checks of `treadle doctor`, in order. Each checks one thing and changes nothing."""

from collections.abc import Mapping

from treadle.cli.doctor.check_result import Check as Check
from treadle.cli.doctor.gateway_checks import check_addresses as check_addresses
from treadle.cli.doctor.gateway_checks import check_client_key as check_client_key
from treadle.cli.doctor.gateway_checks import check_data as check_data
from treadle.cli.doctor.gateway_checks import check_hosts as check_hosts
from treadle.cli.doctor.gateway_checks import check_keys as check_keys
from treadle.cli.doctor.gateway_checks import check_mcp as check_mcp
from treadle.cli.doctor.gateway_checks import check_port as check_port
from treadle.cli.doctor.gateway_checks import check_tools as check_tools
from treadle.cli.doctor.guarantees import check_guarantees as check_guarantees
from treadle.cli.doctor.machine_checks import check_extras as check_extras
from treadle.cli.doctor.machine_checks import check_files as check_files
from treadle.cli.doctor.machine_checks import check_isolation as check_isolation
from treadle.cli.doctor.machine_checks import check_kernel as check_kernel
from treadle.cli.doctor.machine_checks import check_packages as check_packages
from treadle.cli.doctor.machine_checks import check_python as check_python
from treadle.cli.doctor.machine_checks import check_read_only as check_read_only
from treadle.cli.doctor.machine_checks import check_sandbox as check_sandbox
from treadle.cli.doctor.replica_checks import check_replicas as check_replicas
from treadle.cli.doctor.store_checks import check_store as check_store
from treadle.cli.doctor.upstream_checks import Asking as Asking
from treadle.cli.doctor.upstream_checks import check_upstreams as check_upstreams
from treadle.config import Settings


def check_machine() -> list[Check]:
    """Run the checks that depend on no setting."""
    return [
        check_python(),
        check_packages(),
        check_kernel(),
        check_sandbox(),
        check_read_only(),
        check_isolation(),
        check_guarantees(),
        check_files(),
    ]


def check_settings(settings: Settings, env: Mapping[str, str], *, asking: Asking) -> list[Check]:
    """Run the checks of what the settings name, in the order in which a person would fix things."""
    return [
        check_extras(settings),
        check_data(env),
        check_store(settings, env, is_offline=asking == "none"),
        *([] if asking == "none" else check_replicas(settings, env)),
        *check_upstreams(settings, env, asking=asking),
        check_addresses(settings),
        check_tools(settings),
        *check_mcp(settings, env),
        check_port(settings),
        check_hosts(settings),
        check_keys(settings, env),
    ]
