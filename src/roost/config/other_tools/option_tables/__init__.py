"""The options of other trainers with their defaults, and what each is in roost: one table for the page in
docs/ and for ``roost convert``.

option_table: an option, and a group of them
speechain_options: SpeeChain's runner and its three configs
cornernet_options: CornerNet-Lite's train.py
"""
