"""Everything that Phasegate does with git: checkouts, changes, harvest, merge, refs."""
