"""The words of the product, as data, and their loader."""
