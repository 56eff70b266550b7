"""The configuration: `settings` declares it, `layers` reads its sources, `load` combines them."""
