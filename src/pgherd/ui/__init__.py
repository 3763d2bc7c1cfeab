"""The local web page over run directories."""
