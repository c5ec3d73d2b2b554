"""Answers given again: a model call whose plan was sent before may be answered from the journal."""
