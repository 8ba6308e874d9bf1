"""What people of other training tools write in a config.

known_tools: how to recognise a config of another tool, and what its keys are called here
foreign_keys: keys of other tools in a config, which are refused
option_tables: every option of some trainers, with its default and its equivalent
synonyms: names of settings and values in other tools, for suggestions
"""
