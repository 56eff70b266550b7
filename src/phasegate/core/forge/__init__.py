"""Pull requests and forge addresses as values; decisions about them."""
