"""The command line: one thin module per verb, imported only when called."""
