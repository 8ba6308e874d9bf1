"""What holds a run back: what ``profile`` measured of a session, and the bottlenecks that follow from it.

profile_record: the file of one session
bottlenecks: what holds the run back, with the setting that mends it
"""
