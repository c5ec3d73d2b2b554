"""Answers given again: a model call whose plan was sent before may be answered from the journal.

It is read from the journal, so what is forgotten there is not given again. Nothing is kept here, and no run goes
another way: a found answer is heard as a model is.
"""
