"""Operations on the records of packages: curves, plots and exports.

record_columns: decodes lines of records to columns of numbers
history_cache: the columns of a run, kept in the cache
curve: the result types of envelope
envelope: curves reduced to a width in pixels, for the web page
plot_panels: the content of a plot
plot_drawing: draws it with matplotlib
plot: `roost plot`
tensorboard: `roost tensorboard`
export_records: `roost export --records`
"""
