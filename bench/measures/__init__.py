"""One module a measurement; each is a command of its own (`python -m bench.measures.plain`) and bounded in time."""
