"""The report of an evaluation, as Markdown and as one HTML page that needs no other file.

In reading order:

- report_content: what a report shows, from the summaries and single rows
- number_text: numbers and plain values as text
- report_markdown: the report as Markdown
- histogram_svg: a histogram as SVG
- report_media: pictures, sound and texts of cases, as parts of the page
- report_html: the report as a page
- report_files: their files
"""
