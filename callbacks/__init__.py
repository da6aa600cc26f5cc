"""Callbacks, one idea a file; the list of those with flags, in their order, is in train.py."""
