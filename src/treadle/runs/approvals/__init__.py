"""Approvals of tool calls: asks a person, applies remembered rules, carries the decision to the run."""
