"""Everything done with git: checkouts, changes, harvest, merge, refs."""
