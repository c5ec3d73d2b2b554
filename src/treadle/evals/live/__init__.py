"""Scenarios with real models: the plan and its bound, the ledger, the runner, and what raw streams show."""
