"""Operations on the cards of this machine.

device_list: the result types of the list of cards
devices: the list of cards, the rules of the lab for them, and drains
device_history: what the cards and the host did, and who held the cards
host_status: the cores and the memory of the host
interactive_lease: `roost lease`, cards for a program of the user
"""
