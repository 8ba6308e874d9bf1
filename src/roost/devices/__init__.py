"""The cards of a machine, and the leases by which its users share them.

In reading order:

- resource_request: what a task asks of the machine
- card: a card and its processes, as every source reports them
- device_types: the types of devices that a session may ask for
- inventory: reads the cards from the source that ROOST_DEVICES selects
- driver: the cards of NVIDIA's driver, and their health
- simulated_cards: cards from a text or a scenario file
- visible_cards: the cards that CUDA_VISIBLE_DEVICES leaves
- shared_folder: lists files in a folder that every user may write to
- lease_files: the folder of the leases, and how leases are read
- lease: takes leases
- sampling: samples of the machine, once a second, for all sessions
- lease_events: wakes a waiting process when a lease ends
- demand: what other queues wait for
- usage_ledger: what each user has used, for fair share
"""
