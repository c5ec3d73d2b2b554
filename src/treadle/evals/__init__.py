"""Scenarios that are played, graded and reported: how well tools are called.

A scenario is played through the real runtime, by a scripted model or a real one; graders are pure and read only the
journal and the world.
"""
