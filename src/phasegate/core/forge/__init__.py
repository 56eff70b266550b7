"""Pull requests and forge addresses as values, and the decisions about them."""
