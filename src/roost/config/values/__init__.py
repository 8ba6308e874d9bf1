"""What a config holds before its settings have types: nested dicts, and what a command line changes in them.

nested_values: values by their paths; merging and comparing two nested dicts
store_url: URLs of stores of remote copies, and what is refused in them
overrides: ``a.b=c``, ``+a.b=c`` and ``~a.b``: parsing, checking against a config, applying
"""
