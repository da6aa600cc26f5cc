"""The command line of train.py: one table of flags, one parser, one report of all mistakes."""
