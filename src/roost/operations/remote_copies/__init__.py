"""Remote copies of packages on request.

- typed_url: the URL of a store as a user types it
- push: uploads a package now
- pull: lists the copies in a store, restores one
"""
