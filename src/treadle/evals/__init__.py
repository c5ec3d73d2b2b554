"""Scenarios that are played, graded and reported: how well tools are called."""
