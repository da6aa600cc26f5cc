"""From a file to a model's input: the one place that training and every bundle share.

Imports neither torch nor Lightning and is copied into each bundle.
"""
