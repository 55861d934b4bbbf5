"""The command line, one file a verb.

A verb imports what it runs when it runs, so that `--help` and a mistyped option answer at once.
"""
