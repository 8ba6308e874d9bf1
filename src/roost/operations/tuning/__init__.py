"""Fast settings, found by measuring a copy of a project.

tune: `roost tune`
tuning_file: what was found, as a config for `-f`
rate_picture: the picture of a learning-rate range test
"""
