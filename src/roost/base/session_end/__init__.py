"""When a session must have ended, as far as machine and platform say.

deadline_files: times that may appear while a session runs: deadline files, systemd's scheduled shutdown.
platform_limit: the documented length of a session on Colab and on Kaggle.
"""
