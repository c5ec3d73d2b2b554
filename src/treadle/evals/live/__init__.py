"""Evaluations with real models: plan, spending limit, runner."""
