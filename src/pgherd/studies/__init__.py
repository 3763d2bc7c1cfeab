"""One module per question: propose() and analyse(), both pure."""
