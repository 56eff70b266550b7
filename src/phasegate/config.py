"""One typed configuration: flag over environment over file over default."""
