"""Operations that read packages and change nothing.

package_schema: the schemas of a package's JSON files; every reader opens a package through it
forks: the forks of a package, for `show`
system_details: what cards, processes and host of a session did, for `show`
show: `roost show`, the details of a package
determinism_summary: the determinism of a run, for `show`
profile: `roost profile`, what holds a run back
show_data: `roost show --data`, the sets of a project
verify: `roost verify`, a check of every byte
verify_packages: `roost verify` of several packages
output_reader: reads an output file while it grows
logs: `roost logs`, the output of a run
"""
