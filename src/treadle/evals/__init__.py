"""Evaluates how well a model calls tools: scenarios are played, graded and reported."""
