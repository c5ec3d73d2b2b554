"""TensorZero's gateway as its wheel brings it: `python tensorzero_gateway.py CONFIG` serves and says where.

Stands alone, because it runs in the environment of its package, which has no command that serves: the same server is
what its own client starts.
"""

import signal
import sys

import tensorzero

gateway = tensorzero._start_http_gateway(
    config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False
)
print(gateway.base_url.rpartition(":")[2].partition("/")[0], flush=True)
signal.pause()
