"""Forges: where pull requests are. One module a forge behind `port.Forge`; `table` names them."""
