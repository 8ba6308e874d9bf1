"""Operations that list packages: summaries, queries, columns, groups.

package_row: the summary of a package in a list
package_summary: makes that summary
list_packages: the packages of folders, with an index of the summaries
query: the query language of lists
term_match: whether values match a term of a query, and their order
search: selects and sorts packages by a query
search_columns: the values of a key of a query, for packages of several folders
search_index: the search fields of all packages of a folder, in a cache
search_fields: the settings and newest metrics of one package
known_folders: the folders of packages that roost knows
named_packages: the packages that words on a command line name
run_listing: `roost ls`, packages with the columns that distinguish them
run_groups: means over runs that share a setting, a sweep, or all but their seed
"""
