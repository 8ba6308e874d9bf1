"""What a config holds before its settings have types: nested dicts, and what a command line changes in them.

nested_values: values by their paths; merging and comparing two nested dicts
overrides: ``a.b=c``, ``+a.b=c`` and ``~a.b``: parsing, checking against a config, applying
"""
