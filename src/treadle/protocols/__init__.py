"""Translates between bytes and core types: one package per API, plus what they share. Pure: no IO, no clock."""
