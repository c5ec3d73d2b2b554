"""The exit codes of all commands."""

OK = 0
ERROR = 1
USAGE = 2
DENIED = 3
LIMIT = 4
CANCELLED = 130
TERMINATED = 143

EXIT_CODES = """\
exit codes: 0 done, 1 error, 2 usage or configuration, 3 a tool was denied, 4 a limit was reached,
130 cancelled, 143 terminated"""
