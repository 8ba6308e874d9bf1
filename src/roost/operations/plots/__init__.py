"""Pictures of the records and settings of packages, as files and in the terminal.

plot_view: how curves are presented: axes, smoothing, means
x_axis: steps as epochs, times or numbers of samples
recorded_run: the records of one run, read for a plot
run_labels: what distinguishes the runs of a plot, and which differ only in their seed
curve_styles: colours and dashes
point_reduction: the points of a curve that a picture can show
smoothing: moving averages
group_bands: the mean of several runs, with a band
plot_panels: the content of a plot
system_panels: the content of a plot of system metrics
picture_file: a figure as the bytes of a file
plot_drawing: draws curves with matplotlib
setting_points: settings and metrics of runs
setting_drawing: draws these as points, or lines through parallel axes
plot: `roost plot`
"""
