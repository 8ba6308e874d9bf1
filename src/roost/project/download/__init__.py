"""Downloads with a checksum.

download: roost.download, which tries mirrors in turn and never leaves a partial file
transfer_speed: detects mirrors that are too slow
"""
