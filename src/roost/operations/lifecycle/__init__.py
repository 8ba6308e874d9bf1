"""Operations on one run, in the order of its life.

new_project: a project from a template
explain: the merged settings of a run, and where each comes from
check: a run in miniature, which finds mistakes early
run_estimate: time and disk of a run, from the measurements of a check
run: a new package and its first session
join: another machine takes part in a session
attach: follows a running session
stop: requests a session to save and end
run_limits: the limits that a run has reached, and what would prolong it
continue_: another session of a package
fork: a new package that continues from a checkpoint of another one
rerun: a new package that begins the run of another one again
debug: stops in one step of a package
"""
