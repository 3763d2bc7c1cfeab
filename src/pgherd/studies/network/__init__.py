"""Network (E14): how much a link carries by number of streams, and whether latency or bandwidth is the bottleneck."""
