"""The real tools that make load: each module is an argv and a parser of the tool's output. No load generator of ours."""
