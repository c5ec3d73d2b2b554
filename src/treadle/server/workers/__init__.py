"""Several processes that serve one port: who starts and replaces them, and what each is told."""
