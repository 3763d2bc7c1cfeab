"""Load generators: each module builds the command line of a real tool and parses its output. pgherd generates no load itself."""
