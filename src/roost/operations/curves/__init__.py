"""Operations on the records of packages: curves and exports.

record_columns: decodes lines of records to columns of numbers
history_cache: the columns of a run, kept in the cache
curve: the result types of envelope
envelope: curves reduced to a width in pixels, for the web page
tensorboard: `roost tensorboard`
flush_mirrors: `roost mirror`
export_records: `roost export --records`
"""
