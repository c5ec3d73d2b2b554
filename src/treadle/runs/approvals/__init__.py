"""Approvals of tool calls: requests them, applies remembered rules, and passes decisions to the run."""
