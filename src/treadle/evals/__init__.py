"""Evaluates how well a model calls tools: plays scenarios, grades them, and reports the results."""
